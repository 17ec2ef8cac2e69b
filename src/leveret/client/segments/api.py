"""The part of the broker's HTTP API that readers of sealed files need (docs/reference/http-api.md, "Streams'
files")."""

from __future__ import annotations

import base64
import http.client
import json
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from leveret.client.protocol.url import parse_url
from leveret.client.segments.errors import SegmentsUnavailable

TIMEOUT_S: Final = 60.0
"""Timeout in seconds for a part of a file."""
CALL_TIMEOUT_S: Final = 20.0
"""Timeout in seconds for other requests; the list of files may take two seconds."""


class NotThere(Exception):
    """The API answered 404."""


@dataclass(frozen=True)
class StreamApi:
    """Address and login for a stream's files. It can be pickled; the password is kept out of repr.

    Attributes:
        path: path of the stream's resources.
        settings_url: an amqps URL with the TLS settings; None for plain HTTP.
    """

    host: str
    port: int
    path: str
    user: str
    password: str = field(repr=False)
    settings_url: str | None = field(repr=False)

    @staticmethod
    def of(api_url: str, amqp_url: str, vhost: str, stream: str) -> StreamApi:
        """Build the address from options.

        User and password are taken from the API's URL, else from the AMQP URL. TLS settings (cacertfile, verify and so
        on, as in AMQP URLs) are taken from the API's URL, else from an amqps URL. ``ValueError`` names the wrong
        option.
        """
        parts, amqp = urlsplit(api_url), parse_url(amqp_url)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise ValueError("the port of option apiUrl is not a number from 1 to 65535") from None
        host = parts.hostname or "localhost"
        settings = None
        if parts.scheme == "https":
            query = parts.query or (urlsplit(amqp_url).query if amqp.tls else "")
            settings = f"amqps://{f'[{host}]' if ':' in host else host}/?{query}"
            parse_url(settings)  # raises ValueError now if a setting is wrong
        has_user = parts.username is not None
        user = unquote(parts.username or "") if has_user else amqp.user
        password = unquote(parts.password or "") if has_user else amqp.password
        path = f"{parts.path.rstrip('/')}/api/streams/{_quoted(vhost)}/{_quoted(stream)}"
        return StreamApi(host, port, path, user, password, settings)

    @property
    def url(self) -> str:
        """The API's URL without user and password, for messages."""
        return f"{'http' if self.settings_url is None else 'https'}://{self.host}:{self.port}"

    def connection(self, timeout_s: float = TIMEOUT_S) -> http.client.HTTPConnection:
        """Return a new connection; it connects with its first request."""
        if self.settings_url is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        context = parse_url(self.settings_url).tls_context()
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=context)

    @property
    def login(self) -> dict[str, str]:
        """The authorization header."""
        text = f"{self.user}:{self.password}".encode()
        return {"Authorization": "Basic " + base64.b64encode(text).decode()}

    def segments(self) -> list[dict[str, Any]]:
        """Return the stream's sealed files as the API describes them. Raises the errors of :meth:`_call`."""
        rows = self._call("GET", "/segments")["segments"]
        return [row for row in rows if row["kind"] == "table"]

    def grant(self, first: int, duration_ms: int, name: str) -> str:
        """Grant a new lease and return its id."""
        return str(self._call("POST", "/leases", first=first, duration_ms=duration_ms, name=name)["id"])

    def renew(self, lease: str, duration_ms: int, first: int | None) -> None:
        """Restart a lease's duration and, unless ``first`` is None, give up the messages before. NotThere if it has
        ended."""
        given = {} if first is None else {"first": first}
        self._call("PUT", f"/leases/{lease}", duration_ms=duration_ms, **given)

    def release(self, lease: str) -> None:
        """End a lease. NotThere if it has ended already."""
        self._call("DELETE", f"/leases/{lease}")

    def check(self, status: int, body: bytes) -> None:
        """Raise NotThere for status 404, SegmentsUnavailable for other errors."""
        if status < 400:
            return
        if status == 404:
            raise NotThere(self.path)
        if status in (401, 403):
            raise SegmentsUnavailable(
                f"the HTTP API at {self.url} refuses user {self.user!r} ({status}): to read files there, a user needs "
                "a tag, such as management, and permission to read the stream; option apiUrl may name another user"
            )
        raise SegmentsUnavailable(f"the HTTP API at {self.url} (option apiUrl) replied {status}: {_reason(body)}")

    def _call(self, method: str, where: str, **asked: Any) -> Any:
        """Call the API and return the parsed answer. Raises NotThere, or SegmentsUnavailable, which names the
        option."""
        connection = self.connection(CALL_TIMEOUT_S)
        headers = self.login | ({"Content-Type": "application/json"} if asked else {})
        try:
            connection.request(method, self.path + where, json.dumps(asked) if asked else None, headers)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(self, error) from error
        finally:
            connection.close()
        self.check(answer.status, body)
        try:
            return json.loads(body) if body else None
        except ValueError:
            raise SegmentsUnavailable(
                f"the server at {self.url} is not leveret's HTTP API: correct option apiUrl"
            ) from None


def unreachable(api: StreamApi, error: BaseException) -> SegmentsUnavailable:
    """Return the error for an API that does not answer."""
    return SegmentsUnavailable(f"the HTTP API at {api.url} (option apiUrl) can't be reached: {error or repr(error)}")


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="surrogateescape")


def _reason(body: bytes) -> str:
    try:
        told = json.loads(body)
        return str(told.get("reason") or told.get("error") or told)
    except (ValueError, AttributeError):
        return body[:200].decode("utf-8", "replace")
