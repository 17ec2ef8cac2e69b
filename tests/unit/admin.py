"""The HTTP API without a broker: a fake control gives the answers that a test sets, and records its calls."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import httpx
import msgspec

from leveret.admin.api import Api
from leveret.admin.cors import Cors
from leveret.control.calls.line import SOMEBODY, Caller, result_of
from leveret.control.refusal import BAD_REQUEST, NOT_AUTHORISED, NOT_FOUND, Refused

Answer = Callable[[dict[str, Any]], Any]

USERS = {
    "root": ["administrator"],
    "watch": ["monitoring"],
    "rules": ["policymaker"],
    "plain": ["management"],
    "nobody": [],
}
MINE = "mine"


class FakeControl:
    """A stand-in for AsyncControlClient."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []  # all calls but those of a login
        self.callers: list[Caller] = []
        # command -> what answers it
        self.answers: dict[str, Answer] = {
            "authenticate": self._authenticate,
            "list_user_permissions": self._permissions,
            "get_vhost": self._vhost,
        }

    def _authenticate(self, fields: dict[str, Any]) -> Any:
        if fields["name"] not in USERS or fields["password"] != "secret":
            raise Refused(NOT_AUTHORISED, "Login failed")
        return {"name": fields["name"], "tags": USERS[fields["name"]]}

    def _permissions(self, fields: dict[str, Any]) -> Any:
        mine = ["/", MINE] if fields["user"] == "root" else [MINE]
        return [{"user": fields["user"], "vhost": vhost} for vhost in mine]

    def _vhost(self, fields: dict[str, Any]) -> Any:
        if fields["name"] not in ("/", MINE, "theirs"):
            raise Refused(NOT_FOUND, "no virtual host")
        return {"name": fields["name"], "description": "", "tags": []}

    async def raw(self, command: str, fields: dict[str, Any], by: Caller) -> bytes:
        if command not in ("authenticate", "list_user_permissions", "get_vhost"):
            self.asked.append((command, fields))
        self.callers.append(by)
        try:
            if command not in self.answers:
                raise Refused(BAD_REQUEST, f"unknown command '{command}'")
            return msgspec.json.encode({"ok": self.answers[command](fields)}) + b"\n"
        except Refused as refused:
            return msgspec.json.encode({"error": refused.kind, "reason": refused.reason}) + b"\n"

    async def begin(self, command: str, fields: dict[str, Any], by: Caller) -> tuple[bytes, None]:
        return await self.raw(command, fields, by), None

    async def call(self, command: str, fields: dict[str, Any] | None = None, by: Caller = SOMEBODY) -> Any:
        return result_of(await self.raw(command, fields or {}, by))

    def fields_of(self, command: str) -> dict[str, Any]:
        """Return the fields of the only call of this command."""
        (fields,) = [fields for name, fields in self.asked if name == command]
        return fields


class Browser:
    """An HTTP client of an Api on a fake control."""

    def __init__(self, origins: tuple[str, ...] = ()) -> None:
        self.control = FakeControl()
        self.api = Api(self.control, Cors(origins))  # type: ignore[arg-type]

    async def __call__(
        self, method: str, path: str, user: str | None = "root", password: str = "secret", json: Any = None,
        headers: dict[str, str] | None = None, content: bytes | None = None,
    ) -> httpx.Response:  # fmt: skip
        sent = dict(headers or {})
        if user is not None:
            sent["authorization"] = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
        transport = httpx.ASGITransport(self.api, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, json=json, headers=sent, content=content)


def missing(fields: dict[str, Any]) -> Any:
    """Refuse the command with NOT_FOUND."""
    raise Refused(NOT_FOUND, "there is none")
