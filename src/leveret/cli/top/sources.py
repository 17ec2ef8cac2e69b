"""Sources of the figures: the HTTP API of leveret or RabbitMQ, or the control socket of a data directory.

A call that is not answered raises Unreachable; the next one reconnects, so a restarted broker is found again.
"""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import Request, urlopen

from leveret.cli.top.views import View, column_of
from leveret.control.calls.blocking import ControlClient
from leveret.control.refusal import Refused

TIMEOUT_S: Final = 10.0
REFUSALS: Final = {401: "wrong user name or password, or the user lacks a management tag", 404: "this is not the "
                                                                                                "HTTP API of a "
                                                                                                "broker"}
ROWS_MAX: Final = 500  # the largest page of leveret and RabbitMQ


class Unreachable(Exception):
    """There is no answer; the text names the source and the reason."""


@dataclass(frozen=True)
class SampleRequest:
    """A request for a sample of a view.

    Attributes:
        sort: title of a column.
        text: what a name must contain.
    """

    view: View
    sort: str
    is_reversed: bool = False
    text: str = ""

    def page(self) -> dict[str, Any]:
        """Return the parameters of a list request for the first page in this order."""
        column = column_of(self.view, self.sort) or self.view.columns[0]
        found: dict[str, Any] = {"page": 1, "page_size": ROWS_MAX, "sort": column.path}
        found["sort_reverse"] = column.is_number != self.is_reversed
        return found | ({"name": self.text} if self.text else {})


@dataclass(frozen=True)
class Snapshot:
    """A sample of a broker.

    Attributes:
        overview: of the broker.
        nodes: of its cluster.
        items: rows of the view.
        total: the number of rows without filter and paging.
    """

    overview: dict[str, Any]
    nodes: list[dict[str, Any]]
    items: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0

    @property
    def alarms(self) -> list[str]:
        """The alarms that are on, in words."""
        names = {"mem_alarm": "memory", "disk_free_alarm": "disk", "disk_wait_alarm": "time for the disk"}
        return [f"{names[key]} on {node['name']}" for node in self.nodes for key in names if node.get(key)]


class SampleSource(Protocol):
    """A source of samples. `name` is for people, without a password."""

    name: str

    def ask(self, question: SampleRequest) -> Snapshot:
        """Fetch a sample. Raises Unreachable."""

    def close(self) -> None:
        """Release the connection."""


class SocketSource:
    """The control socket of a broker on this machine."""

    def __init__(self, data_dir: str) -> None:
        self.name = data_dir
        self._data_dir = data_dir
        self._client: ControlClient | None = None
        self._turn = threading.Lock()  # one call at a time: answers come in the order of the calls

    def ask(self, question: SampleRequest) -> Snapshot:
        with self._turn:
            return self._ask(question)

    def _ask(self, question: SampleRequest) -> Snapshot:
        try:
            overview, nodes = self._call("overview"), self._call("list_nodes")
            view = question.view
            found = self._call(view.command, **(question.page() if view.is_paged else {}))
        except Refused as refused:
            raise Unreachable(f"{self.name}: {refused.reason}") from None
        except OSError as error:
            self.close()
            raise Unreachable(f"no broker is running in {self.name}: {error.strerror or error}") from None
        return _snapshot(overview, nodes, found)

    def _call(self, command: str, **fields: Any) -> Any:
        if self._client is None:
            self._client = ControlClient(self._data_dir, timeout_s=TIMEOUT_S)
        return self._client.call(command, **fields)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class HttpSampleSource:
    """http://USER:PASSWORD@HOST:15672, of leveret or RabbitMQ. Raises ValueError for an invalid URL."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the URL of an HTTP API looks like http://guest:guest@localhost:15672, not {url!r}")
        port = parts.port or (15671 if parts.scheme == "https" else 15672)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.name = f"{parts.scheme}://{host}:{port}"
        self._base = self.name + parts.path.rstrip("/").removesuffix("/api") + "/api/"
        user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
        self._login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def ask(self, question: SampleRequest) -> Snapshot:
        view = question.view
        overview, nodes = self._get("overview"), self._get("nodes", may_lack=True)
        query = question.page() if view.is_paged else {}
        found = self._get(view.address, view.may_lack, **query)
        return _snapshot(overview, nodes, found)

    def _get(self, path: str, may_lack: bool = False, **query: Any) -> Any:
        values = {key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()}
        address = self._base + quote(path) + ("?" + urlencode(values) if values else "")
        request = Request(address, headers={"authorization": self._login, "accept": "application/json"})
        try:
            with urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            # without the tag monitoring a user sees no nodes; RabbitMQ has no streams in this form, and answers 406
            if may_lack and error.code in (401, 403, 404, 406):
                return []
            raise Unreachable(f"{self.name}: {REFUSALS.get(error.code, f'HTTP {error.code}')}") from None
        except (URLError, OSError, ValueError) as error:
            raise Unreachable(f"no answer from {self.name}: {getattr(error, 'reason', None) or error}") from None

    def close(self) -> None:
        """Do nothing: no connection is kept."""


def _snapshot(overview: Any, nodes: Any, found: Any) -> Snapshot:
    if isinstance(found, dict):
        return Snapshot(overview, nodes, found["items"], found["total_count"])
    return Snapshot(overview, nodes, found, len(found))
