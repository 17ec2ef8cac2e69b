"""A plain client of the HTTP API: it sends requests as they are given, and keeps answers as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from ...no_tls import NO_TLS

__all__ = ["Answer", "Api", "segment"]

TIMEOUT_S = 60.0
# a new connection for each request: RabbitMQ closes one that was idle or had many, possibly during a request
LIMITS = httpx.Limits(max_keepalive_connections=0)


def segment(name: str) -> str:
    """Return a name as one segment of a path, with slashes escaped."""
    return quote(name, safe="")


@dataclass(frozen=True)
class Answer:
    """A broker's HTTP response.

    Attributes:
        status: The HTTP status.
        headers: The headers, with names in lower case.
        content: The body.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is empty. Raises ValueError if it is not JSON."""
        return json.loads(self.content) if self.content else None


class Api:
    """The API of one broker, used by one user."""

    def __init__(self, url: str, user: str = "guest", password: str = "guest") -> None:
        """Create a client.

        Args:
            url: http://HOST:PORT, without a path.
            user: "" sends no credentials.
            password: The user's password.
        """
        self.url = url
        self._client = httpx.Client(auth=(user, password) if user else None, timeout=TIMEOUT_S, trust_env=False,
                                    limits=LIMITS, verify=NO_TLS)

    def call(
        self, verb: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send one request and return the answer.

        Args:
            verb: GET, PUT, …
            path: Path from /api on, escaped, with the query.
            body: Sent as JSON; bytes are sent unchanged, None sends no body.
            headers: Additional headers.
        """
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        given = {"content-type": "application/json", **(headers or {})}
        answer = self._client.request(verb, self.url + path, content=content, headers=given)
        return Answer(answer.status_code, {name.lower(): each for name, each in answer.headers.items()}, answer.content)

    def as_user(self, user: str, password: str) -> Api:
        """Return a client of the same broker for another user."""
        return Api(self.url, user, password)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
