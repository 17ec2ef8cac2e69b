"""Logins: basic authentication against the broker's users."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import Any, Final

from starlette.requests import Request

from leveret.admin.answers import REALM, HttpError, not_authorised
from leveret.admin.origin import is_direct
from leveret.control.calls.client import AsyncControlClient
from leveret.control.calls.line import Caller
from leveret.control.refusal import NOT_AUTHORISED, Refused

ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
POLICYMAKER: Final = "policymaker"
MANAGEMENT: Final = "management"
TAGS: Final = frozenset({ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT})
# a refusal that does not depend on the password
REMOTE: Final = "User can only log in via localhost"


class LoggedInUser:
    """A user who has logged in."""

    def __init__(self, name: str, tags: list[str], address: str, control: AsyncControlClient) -> None:
        self.name = name
        self.tags = tags
        self.by = Caller(user=name, address=address, interface="http")
        self._control = control
        self._vhosts: list[str] | None = None

    @property
    def is_administrator(self) -> bool:
        return ADMINISTRATOR in self.tags

    @property
    def is_monitor(self) -> bool:
        """Whether the user may see all users' connections, and the node."""
        return self.is_administrator or MONITORING in self.tags

    @property
    def is_policymaker(self) -> bool:
        return self.is_administrator or POLICYMAKER in self.tags

    async def vhosts(self) -> list[str]:
        """Return the virtual hosts in which the user has a permission."""
        if self._vhosts is None:
            found: list[Any] = await self._control.call("list_user_permissions", {"user": self.name}, self.by)
            self._vhosts = [each["vhost"] for each in found]
        return self._vhosts


def nobody() -> HttpError:
    """Return the answer to a wrong password or an unknown name."""
    return HttpError(401, "not_authorized", "Login failed", {"www-authenticate": REALM})


def credentials(header: str | None) -> tuple[str, str]:
    """Return user and password of an Authorization header. HttpError 401 if it is missing, 400 if malformed."""
    if header is None:
        raise HttpError(401, headers={"www-authenticate": REALM})
    scheme, _, token = header.partition(" ")
    if scheme.lower() == "bearer" and token:
        raise nobody()
    try:
        name, colon, password = b64decode(token.strip(), validate=True).decode().partition(":")
    except ValueError:
        raise HttpError(400) from None
    if scheme.lower() != "basic" or not colon:
        raise HttpError(400)
    return name, password


async def log_in(request: Request, control: AsyncControlClient, name: str, password: str) -> LoggedInUser:
    """Return the user. Raises HttpError 401 with RabbitMQ's texts, also for users who may not use the API."""
    address = request.client.host if request.client else ""
    by = Caller(user=name, address=address, interface="http")
    fields: dict[str, Any]
    try:
        fields = {"name": name, "password": password, "address": address, "protocol": "http"}
        if not is_direct(request):
            fields["is_direct"] = False
        answer = await control.call("authenticate", fields, by)
        while "wait_us" in answer:  # at most once: the broker then knows until when the login has to wait
            await asyncio.sleep(answer["wait_us"] / 1e6)
            answer = await control.call("authenticate", fields | {"due_us": answer["due_us"]}, by)
    except Refused as refused:
        if refused.kind != NOT_AUTHORISED:
            raise
        if refused.reason == REMOTE:
            raise not_authorised(REMOTE) from None
        raise nobody() from None
    user = LoggedInUser(answer["name"], answer["tags"], address, control)
    if TAGS.isdisjoint(user.tags):
        raise not_authorised("Not management user")
    return user
