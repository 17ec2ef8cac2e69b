"""The broker's HTTP API, as far as readers of sealed files need it (docs/reference/http-api.md, "Streams' files")."""

from __future__ import annotations

import base64
import http.client
import json
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from leveret.client.url import parse_url
from leveret.spark.segments.errors import SegmentsUnavailable

TIMEOUT_S: Final = 60.0
"""For a part of a file."""
CALL_TIMEOUT_S: Final = 20.0
"""For all else: the list of files may take two seconds."""


class NotThere(Exception):
    """404."""


@dataclass(frozen=True)
class Api:
    """Where a stream's files are served, and to whom. It pickles; the password is kept out of repr.

    path: of the stream's resources; settings_url: an amqps URL with the TLS settings, None = plain HTTP.
    """

    host: str
    port: int
    path: str
    user: str
    password: str = field(repr=False)
    settings_url: str | None = field(repr=False)

    @staticmethod
    def of(api_url: str, amqp_url: str, vhost: str, stream: str) -> Api:
        """User and password are those of the API's URL, or else those of the AMQP URL; TLS settings (cacertfile,
        verify and so on, as in AMQP URLs) are those of the API's URL, or else those of an amqps URL.

        ``ValueError`` names the option that is wrong.
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
            parse_url(settings)  # says now what is wrong with it
        has_user = parts.username is not None
        user = unquote(parts.username or "") if has_user else amqp.user
        password = unquote(parts.password or "") if has_user else amqp.password
        path = f"{parts.path.rstrip('/')}/api/streams/{_quoted(vhost)}/{_quoted(stream)}"
        return Api(host, port, path, user, password, settings)

    @property
    def url(self) -> str:
        """For people."""
        return f"{'http' if self.settings_url is None else 'https'}://{self.host}:{self.port}"

    def connection(self, timeout_s: float = TIMEOUT_S) -> http.client.HTTPConnection:
        """One that connects with its first request."""
        if self.settings_url is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        context = parse_url(self.settings_url).tls_context()
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=context)

    @property
    def login(self) -> dict[str, str]:
        """The header that says who asks."""
        text = f"{self.user}:{self.password}".encode()
        return {"Authorization": "Basic " + base64.b64encode(text).decode()}

    def segments(self) -> list[dict[str, Any]]:
        """The stream's sealed files as the API tells them. Errors as those of :meth:`_call`."""
        rows = self._call("GET", "/segments")["segments"]
        return [row for row in rows if row["kind"] == "table"]

    def grant(self, first: int, duration_ms: int, name: str) -> str:
        """A new lease: its id."""
        return str(self._call("POST", "/leases", first=first, duration_ms=duration_ms, name=name)["id"])

    def renew(self, lease: str, duration_ms: int, first: int | None) -> None:
        """Its time begins anew; first: what is older is not needed any more. NotThere if it has ended."""
        given = {} if first is None else {"first": first}
        self._call("PUT", f"/leases/{lease}", duration_ms=duration_ms, **given)

    def release(self, lease: str) -> None:
        """It is not needed any more. NotThere if it has ended."""
        self._call("DELETE", f"/leases/{lease}")

    def check(self, status: int, body: bytes) -> None:
        """NotThere for 404, SegmentsUnavailable for all others that refuse something."""
        if status < 400:
            return
        if status == 404:
            raise NotThere(self.path)
        if status in (401, 403):
            raise SegmentsUnavailable(
                f"the HTTP API at {self.url} refuses user {self.user!r} ({status}): who reads files there needs a tag,"
                " such as management, and permission to read the stream; option apiUrl may name another user"
            )
        raise SegmentsUnavailable(f"the HTTP API at {self.url} (option apiUrl) says {status}: {_reason(body)}")

    def _call(self, method: str, where: str, **asked: Any) -> Any:
        """NotThere, or SegmentsUnavailable, which names the option, if that can't be had."""
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
            raise SegmentsUnavailable(f"what answers at {self.url} is no HTTP API of leveret: option apiUrl") from None


def unreachable(api: Api, error: BaseException) -> SegmentsUnavailable:
    """The error for an API that does not answer."""
    return SegmentsUnavailable(f"the HTTP API at {api.url} (option apiUrl) can't be reached: {error or repr(error)}")


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="surrogateescape")


def _reason(body: bytes) -> str:
    try:
        told = json.loads(body)
        return str(told.get("reason") or told.get("error") or told)
    except (ValueError, AttributeError):
        return body[:200].decode("utf-8", "replace")
