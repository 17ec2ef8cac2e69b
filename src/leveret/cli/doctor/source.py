"""Sources of the broker's state: the HTTP API of RabbitMQ or leveret, or the control socket of a local leveret."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote, urlsplit

from leveret.cli.doctor.parts import StatePart
from leveret.control.calls.blocking import ControlClient
from leveret.control.refusal import Refused

PAGE_SIZE: Final = 500
TIMEOUT_S: Final = 60.0


class BrokerUnreachable(Exception):
    """Nothing can be fetched: no connection, or no login."""


class Unavailable(Exception):
    """This part can't be fetched; the text says why."""


class StateSource(Protocol):
    """A broker whose state can be fetched."""

    @property
    def where(self) -> str:
        """The broker's address without a password, for people."""

    def fetch(self, part: StatePart) -> Any:
        """Return a part, all pages of it. Raises Unavailable or Unreachable."""


class HttpStateSource:
    """The HTTP API of a broker.

    Args:
        url: an http or https URL with user and password; guest and guest by default.
        cacert: a PEM file that signs the server's certificate.

    Raises:
        ValueError: the URL is invalid.
    """

    def __init__(self, url: str, cacert: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the URL of the HTTP API must begin with http:// or https://, not {_unsecret(url)!r}")
        try:
            port = parts.port or (15672 if parts.scheme == "http" else 15671)
        except ValueError:
            raise ValueError(f"the port in {_unsecret(url)!r} must be a number from 1 to 65535") from None
        self._prefix = parts.path.rstrip("/").removesuffix("/api") + "/api/"
        self._user = unquote(parts.username) if parts.username is not None else "guest"
        password = unquote(parts.password) if parts.password is not None else "guest"
        login = base64.b64encode(f"{self._user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {login}"}
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=cacert)
            self._connection = http.client.HTTPSConnection(parts.hostname, port, timeout=TIMEOUT_S, context=context)
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, port, timeout=TIMEOUT_S)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.where = f"{parts.scheme}://{host}:{port}"

    def fetch(self, part: StatePart) -> Any:
        query = [f"columns={quote(','.join(part.columns))}"] if part.columns else []
        if not part.is_paged:
            return self._get(part.path, query)
        rows: list[Any] = []
        page = count = 1
        while page <= count:
            answer = self._get(part.path, [*query, f"page={page}", f"page_size={PAGE_SIZE}"], page > 1)
            if answer is None:  # the list has become shorter meanwhile
                break
            rows += answer["items"]
            count, page = answer["page_count"], page + 1
        return rows

    def _get(self, path: str, query: list[str], may_be_gone: bool = False) -> Any:
        target = self._prefix + path + ("?" + "&".join(query) if query else "")
        status, reason, body = self._exchange(target)
        if status == 401 and path == "overview":
            raise BrokerUnreachable(
                f"{self.where} refused the login of {self._user!r}: {_reason(body) or reason}. The user needs the "
                "tag monitoring, or better administrator"
            )
        if status == 400 and may_be_gone:
            return None
        if status == 503 and path.startswith("health/"):
            status = 200  # a failed health check; the body says why
        if status != 200:
            raise Unavailable(_explained(status, path, self._user, _reason(body) or reason))
        try:
            return json.loads(body)
        except ValueError:
            raise BrokerUnreachable(
                f"{self.where}/api/{path} did not return JSON: is it the HTTP API of a broker?"
            ) from None

    def _exchange(self, target: str) -> tuple[int, str, bytes]:
        for is_last in (False, True):
            try:
                self._connection.request("GET", target, headers=self._headers)
                answer = self._connection.getresponse()
                return answer.status, answer.reason, answer.read()
            except (http.client.RemoteDisconnected, http.client.CannotSendRequest, BrokenPipeError) as error:
                self._connection.close()  # reconnect after a connection was idle for too long
                if is_last:
                    raise BrokerUnreachable(f"no answer from {self.where}: {error}") from None
            except (OSError, http.client.HTTPException) as error:
                raise BrokerUnreachable(f"no answer from {self.where}: {error}") from None
        raise AssertionError


class ControlSource:
    """A leveret that runs on this machine as this user, by its data directory."""

    def __init__(self, data_dir: str) -> None:
        self.where = data_dir
        try:
            self._client = ControlClient(data_dir, timeout_s=TIMEOUT_S)
        except OSError as error:
            text = f"no broker is running in {data_dir}: {error.strerror or error}"
            raise BrokerUnreachable(f"{text}. Give another --data-dir, or the --url of its HTTP API") from None

    def fetch(self, part: StatePart) -> Any:
        if not part.command:
            raise Unavailable("leveret has no deprecated features")
        fields = part.fields | ({"columns": list(part.columns)} if part.columns else {})
        if not part.is_paged:
            return self._call(part.command, fields)
        rows: list[Any] = []
        page = count = 1
        while page <= count:
            answer = self._call(part.command, fields | {"page": page, "page_size": PAGE_SIZE})
            rows += answer["items"]
            count, page = answer["page_count"], page + 1
        return rows

    def _call(self, command: str, fields: dict[str, Any]) -> Any:
        try:
            return self._client.call(command, **fields)
        except Refused as refused:
            raise Unavailable(refused.reason) from None
        except OSError as error:
            raise BrokerUnreachable(f"no answer from the broker of {self.where}: {error}") from None


def _explained(status: int, path: str, user: str, reason: str) -> str:
    if status in (401, 403):
        return f"user {user!r} may not see /api/{path} (it needs the monitoring or administrator tag)"
    if status == 404:
        return f"this broker has no /api/{path}"
    return f"/api/{path} returned {status} {reason}"


def _reason(body: bytes) -> str:
    try:
        said = json.loads(body)
    except ValueError:
        return ""
    return str(said.get("reason", "")) if isinstance(said, dict) else ""


def _unsecret(url: str) -> str:
    """Return the URL without user and password."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
