"""Cross-origin requests: which other web sites' pages may use the API. By default none; operators list them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

MAX_AGE_S: Final = 1800


class Cors:
    """The allowed origins, "*" = all."""

    def __init__(self, origins: Sequence[str] = ()) -> None:
        self._origins = frozenset(origins)

    def lets_in(self, origin: str) -> bool:
        """Return whether pages of this origin may use the API."""
        return origin != "null" and not self._origins.isdisjoint((origin, "*"))

    def allow(self, request: Request, answer: Response, methods: Sequence[str]) -> None:
        """Add the headers that allow the browser's page to read this answer, if its origin is allowed."""
        origin = request.headers.get("origin")
        if origin is None or not self.lets_in(origin):
            return
        answer.headers["access-control-allow-origin"] = origin
        answer.headers["access-control-allow-credentials"] = "true"
        if request.method == "OPTIONS":
            answer.headers["access-control-max-age"] = str(MAX_AGE_S)
            answer.headers["access-control-allow-methods"] = ", ".join(methods)
            if (asked := request.headers.get("access-control-request-headers")) is not None:
                answer.headers["access-control-allow-headers"] = asked
