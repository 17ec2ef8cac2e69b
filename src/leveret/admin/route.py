"""One line of the table of routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property

from starlette.requests import Request
from starlette.responses import Response

from leveret.admin import login, rules
from leveret.admin.answers import no_object
from leveret.admin.paths.actions import Action, Find
from leveret.admin.rules import Rule
from leveret.control.calls.client import AsyncControlClient

Open = Callable[[Request, AsyncControlClient], Awaitable[Response]]

DESTINATIONS = {"e": "exchange", "q": "queue"}


@dataclass(frozen=True)
class PathRoute:
    """A path with its verbs and the rules for using it."""

    path: str
    may: Rule  # who may use it
    find: Find | None = None  # finds the object at the path; if it does not exist, the answer is 404, except to a PUT
    get: Action | None = None
    put: Action | None = None
    post: Action | None = None
    delete: Action | None = None
    may_change: Rule | None = None  # who may use PUT, POST and DELETE, if not the same users
    open: Open | None = None  # answers everybody, without a login
    is_form: bool = False  # `open` is for POST
    has_auth_in_query: bool = False
    is_file: bool = False  # the answer is not JSON

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods in the header Allow."""
        if self.open is not None:
            return ("POST", "OPTIONS") if self.is_form else ("HEAD", "GET", "OPTIONS")
        there = {"HEAD": self.get, "GET": self.get, "PUT": self.put, "POST": self.post, "DELETE": self.delete}
        return (*(name for name, action in there.items() if action), "OPTIONS")

    @property
    def is_owned(self) -> bool:
        """Whether the permission depends on the object at the path."""
        return self.may is rules.owner

    def rule(self, method: str) -> Rule:
        return self.may_change if self.may_change is not None and method not in ("GET", "HEAD") else self.may

    def action(self, method: str) -> Action:
        action = {"PUT": self.put, "POST": self.post, "DELETE": self.delete}.get(method, self.get)
        assert action is not None
        return action

    def credentials(self, request: Request) -> tuple[str, str]:
        """Return user and password. Raises HttpError 401 if there are none."""
        header = request.headers.get("authorization")
        if self.has_auth_in_query and "auth" in request.query_params:
            header = f"Basic {request.query_params['auth']}"
        return login.credentials(header)

    def bound(self, values: dict[str, str]) -> dict[str, str]:
        """Return the path's variables in the commands' terms. Raises HttpError 404 for unknown destination types."""
        found = dict(values)
        for name in ("exchange", "source", "destination"):
            if found.get(name) == "amq.default":
                found[name] = ""
        if "dtype" in found:
            dtype = found.pop("dtype")
            if dtype not in DESTINATIONS:
                raise no_object()
            found["destination_type"] = DESTINATIONS[dtype]
        return found
