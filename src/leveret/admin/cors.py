"""Cross-origin requests: which web pages of others may use the API. None, unless an operator names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

MAX_AGE_S: Final = 1800


class Cors:
    """origins: those that are let in, "*" = all."""

    def __init__(self, origins: Sequence[str] = ()) -> None:
        self._origins = frozenset(origins)

    def lets_in(self, origin: str) -> bool:
        """Whether pages of this origin may use the API."""
        return origin != "null" and not self._origins.isdisjoint((origin, "*"))

    def allow(self, request: Request, answer: Response, methods: Sequence[str]) -> None:
        """Tell a browser that its page may read this answer, if it may."""
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
