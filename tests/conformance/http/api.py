"""A plain client of the HTTP API: what is asked goes out as written, and what comes back is kept as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

__all__ = ["Answer", "Api", "segment"]

TIMEOUT_S = 60.0
# a connection for each request: RabbitMQ ends one that was idle or had many, and may do so while it is asked
LIMITS = httpx.Limits(max_keepalive_connections=0)


def segment(name: str) -> str:
    """A name as one segment of a path: a slash in it, too, is escaped."""
    return quote(name, safe="")


@dataclass(frozen=True)
class Answer:
    """What a broker said.

    Attributes:
        status: of HTTP.
        headers: in lower case.
        content: the body.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is empty. Raises ValueError if it is something else."""
        return json.loads(self.content) if self.content else None


class Api:
    """The API of one broker, asked by one user."""

    def __init__(self, url: str, user: str = "guest", password: str = "guest") -> None:
        """A client.

        Args:
            url: http://HOST:PORT, without a path.
            user: "" sends no credentials.
            password: of the user.
        """
        self.url = url
        self._client = httpx.Client(auth=(user, password) if user else None, timeout=TIMEOUT_S, trust_env=False,
                                    limits=LIMITS)

    def call(
        self, verb: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request.

        Args:
            verb: GET, PUT, …
            path: from /api on, escaped, with the query.
            body: sent as JSON; bytes are sent as they are; None is no body.
            headers: more of them.
        """
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        given = {"content-type": "application/json", **(headers or {})}
        answer = self._client.request(verb, self.url + path, content=content, headers=given)
        return Answer(answer.status_code, {name.lower(): each for name, each in answer.headers.items()}, answer.content)

    def as_user(self, user: str, password: str) -> Api:
        """The same broker, asked by somebody else."""
        return Api(self.url, user, password)

    def close(self) -> None:
        """Lets go of the connections."""
        self._client.close()
