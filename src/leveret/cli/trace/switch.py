"""Switches that turn the firehose of a virtual host on and off, over HTTP or the control socket."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from base64 import b64encode
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote, urlsplit

from leveret.control.calls.blocking import ControlClient
from leveret.control.refusal import Refused

TIMEOUT_S: Final = 10.0


class SwitchError(Exception):
    """The firehose's state can't be read or changed; the text says why, and what to do."""


class Switch(Protocol):
    """A switch of the firehose. Methods raise SwitchError."""

    def is_on(self) -> bool:
        """Return whether the firehose is on."""

    def turn(self, on: bool) -> None:
        """Turn the firehose on or off."""


class CtlSwitch:
    """A switch that uses the control socket of a broker on this machine."""

    def __init__(self, data_dir: str, vhost: str) -> None:
        self._data_dir = data_dir
        self._vhost = vhost

    def is_on(self) -> bool:
        return bool(self._call("get_vhost", name=self._vhost)["tracing"])

    def turn(self, on: bool) -> None:
        self._call("trace_on" if on else "trace_off", vhost=self._vhost)

    def _call(self, command: str, **fields: str) -> Any:
        try:
            with ControlClient(self._data_dir, timeout_s=TIMEOUT_S) as control:
                return control.call(command, **fields)
        except Refused as refused:
            raise SwitchError(refused.reason) from None
        except OSError as error:
            raise SwitchError(f"no broker is running in {self._data_dir}: {error.strerror or error}") from None


class HttpSwitch:
    """A switch that uses the HTTP API of leveret or RabbitMQ.

    Args:
        url: http://user:password@host:port.
        vhost: the virtual host.
        user, password: used if the URL has none.
    """

    def __init__(self, url: str, vhost: str, user: str, password: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("an admin URL must begin with http:// or https:// and name a host")
        user = unquote(parts.username) if parts.username is not None else user
        password = unquote(parts.password) if parts.password is not None else password
        self.where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._path = f"{self.where}/api/vhosts/{quote(vhost, safe='')}"
        self._login = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"

    def is_on(self) -> bool:
        return bool(self._call("GET").get("tracing"))

    def turn(self, on: bool) -> None:
        # a PUT resets the properties of a virtual host that it does not contain
        kept = {name: value for name, value in self._call("GET").items() if name in ("description", "tags") and value}
        if isinstance(kept.get("tags"), list):
            kept["tags"] = ",".join(kept["tags"])
        self._call("PUT", kept | {"tracing": on})

    def _call(self, method: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": self._login, "Content-Type": "application/json"}
        try:
            request = urllib.request.Request(self._path, data, headers, method=method)
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                text = answer.read()
                return dict(json.loads(text)) if text else {}
        except urllib.error.HTTPError as error:
            hint = "; the user needs the administrator tag" if error.code == 401 else ""
            raise SwitchError(f"{self.where} answers {error.code} {error.reason}{hint}") from None
        except (OSError, ValueError) as error:
            raise SwitchError(f"no answer from {self.where}: {getattr(error, 'reason', error)}") from None
