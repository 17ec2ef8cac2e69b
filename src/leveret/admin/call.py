"""One request: its user, its parameters, and calls of the broker for it."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from leveret.admin.answers import HttpError, LongAnswer, bad_request, json_answer
from leveret.admin.login import LoggedInUser
from leveret.admin.paths.examined import Examiner
from leveret.control.calls.client import AsyncControlClient
from leveret.control.refusal import (
    ACCESS_REFUSED,
    BAD_REQUEST,
    BUSY,
    CONFLICT,
    INTERNAL,
    NOT_AUTHORISED,
    NOT_FOUND,
    Refused,
)

OK: Final = b'{"ok":'

# HTTP status and error of the broker's refusals; other kinds are answered with 400 and their own name
STATUS: Final[dict[str, tuple[int, str]]] = {
    BAD_REQUEST: (400, "bad_request"),
    CONFLICT: (400, "bad_request"),
    NOT_FOUND: (404, "not_found"),
    NOT_AUTHORISED: (401, "not_authorised"),
    ACCESS_REFUSED: (403, "access_refused"),
    INTERNAL: (500, "internal_server_error"),
    BUSY: (503, "service_unavailable"),
}


def answer_of(refused: Refused) -> HttpError:
    """Return the HTTP error for a refused command."""
    status, error = STATUS.get(refused.kind, (400, refused.kind))
    return HttpError(status, error, refused.reason)


class ApiCall:
    """One request of a logged in user."""

    def __init__(
        self,
        request: Request,
        values: dict[str, str],
        user: LoggedInUser,
        control: AsyncControlClient,
        examiner: Examiner,
    ) -> None:
        self.request = request
        self.values = values  # the variables of the path
        self.user = user
        self.found: Any = None  # the object at the path, for routes that have one
        self.examiner = examiner  # caches hashes of files
        self._control = control

    @property
    def vhost(self) -> str | None:
        """The requested virtual host: that of the path or of the header X-Vhost; None means all."""
        return self.values.get("vhost") or self.request.headers.get("x-vhost") or None

    async def ask(self, command: str, **fields: Any) -> Any:
        """Run a command and return its result. Raises Refused if it fails."""
        return await self._control.call(command, fields, self.user.by)

    async def ask_raw(self, command: str, **fields: Any) -> bytes:
        """Run a command and return its result as the broker's JSON. Raises Refused if it fails."""
        try:
            line = await self._control.raw(command, fields, self.user.by)
        except OSError as error:
            raise Refused(INTERNAL, f"the broker does not answer: {error}") from error
        return _json_of(line)

    async def pass_on(self, command: str, **fields: Any) -> Response:
        """Pass on a command's answer as the broker sends it; only one piece of a long answer is in memory."""
        try:
            line, rest = await self._control.begin(command, fields, self.user.by)
        except OSError as error:
            raise Refused(INTERNAL, f"the broker does not answer: {error}") from error
        return json_answer(_json_of(line)) if rest is None else LongAnswer(line[len(OK) :], rest)

    async def vhost_exists(self) -> bool:
        """Return whether the virtual host of the path exists."""
        try:
            await self.ask("get_vhost", name=self.values["vhost"])
        except Refused as refused:
            if refused.kind != NOT_FOUND:
                raise
            return False
        return True

    def query(self, name: str) -> str | None:
        """Return the first parameter of this name in the query, or None."""
        return next(iter(self.request.query_params.getlist(name)), None)

    def flag(self, name: str) -> bool:
        """Return whether the query has name=true."""
        return self.query(name) == "true"

    def number(self, name: str) -> int | None:
        """Return a number of the query for paging. Raises HttpError 400 if it is not a number."""
        given = self.query(name)
        try:
            return None if given is None else int(given)
        except ValueError:
            raise bad_request("Pagination parameters are invalid") from None

    def columns(self) -> list[str] | None:
        """Return the columns that the query requests; None means all."""
        given = self.query("columns")
        return None if given is None else [column for column in given.split(",") if column]


def _json_of(line: bytes) -> bytes:
    """Return the result in an answer. Raises Refused if it is a refusal."""
    if line.startswith(OK):
        return line[len(OK) : -2]
    answer = msgspec.json.decode(line)
    raise Refused(answer["error"], answer["reason"])
