"""The views and their columns, as data. The fields are those of RabbitMQ's HTTP API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view.

    Attributes:
        path: its dotted path in an item.
        width: the least width in characters.
        rank: columns with the highest rank are left out first if the terminal is narrow.
        is_number: aligned right, and sorted with the largest first.
        unit: "octets", "rate" or "".
    """

    title: str
    path: str
    width: int = 8
    rank: int = 0
    is_number: bool = True
    unit: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A view.

    Attributes:
        command, address: its source on the control socket and in the HTTP API.
        sort: the initial sort column.
        is_paged: whether the broker sorts, filters and pages it.
        may_lack: whether brokers without the feature answer 404.
    """

    name: str
    command: str
    address: str
    columns: tuple[ViewColumn, ...]
    sort: str
    is_paged: bool = True
    may_lack: bool = False


def _text(title: str, path: str, width: int, rank: int = 0) -> ViewColumn:
    return ViewColumn(title, path, width, rank, is_number=False)


def _rate(title: str, path: str, rank: int = 0) -> ViewColumn:
    return ViewColumn(title, path + ".rate", 9, rank, unit="rate")


QUEUES: Final = View("queues", "list_queues", "queues", (
    _text("vhost", "vhost", 6, 3), _text("name", "name", 24), _text("type", "type", 7, 5),
    ViewColumn("ready", "messages_ready"), ViewColumn("unacked", "messages_unacknowledged"),
    ViewColumn("cons", "consumers", 5, 1),
    _rate("in/s", "message_stats.publish_details", 1), _rate("out/s", "message_stats.deliver_get_details", 1),
    _rate("ack/s", "message_stats.ack_details", 2), ViewColumn("bytes", "message_bytes", 9, 3, unit="octets"),
    ViewColumn("memory", "memory", 9, 4, unit="octets"), _text("policy", "policy", 10, 6),
), sort="ready")  # fmt: skip

CONNECTIONS: Final = View("connections", "list_connections", "connections", (
    _text("name", "name", 36), _text("user", "user", 10, 1), _text("vhost", "vhost", 6, 3),
    _text("state", "state", 8, 0), ViewColumn("chans", "channels", 5, 1), _rate("in B/s", "recv_oct_details", 1),
    _rate("out B/s", "send_oct_details", 1), ViewColumn("unsent", "send_pend", 7, 2, unit="octets"),
    _text("called", "user_provided_name", 20, 4), _text("protocol", "protocol", 10, 5),
), sort="in B/s")  # fmt: skip

CHANNELS: Final = View("channels", "list_channels", "channels", (
    _text("name", "name", 40), _text("user", "user", 10, 3), _text("vhost", "vhost", 6, 4),
    ViewColumn("cons", "consumer_count", 5, 1), ViewColumn("prefetch", "prefetch_count", 8, 2),
    ViewColumn("unacked", "messages_unacknowledged"), ViewColumn("unconf", "messages_unconfirmed", 8, 1),
    _rate("in/s", "message_stats.publish_details", 1), _rate("out/s", "message_stats.deliver_get_details", 1),
    _rate("ack/s", "message_stats.ack_details", 2),
), sort="unacked")  # fmt: skip

LINKS: Final = View("links", "federation_status", "federation-links", (
    _text("vhost", "vhost", 6, 3), _text("exchange", "exchange", 20), _text("upstream", "upstream", 12),
    _text("status", "status", 9), ViewColumn("lag", "lag"), ViewColumn("messages", "messages", 10, 1),
    _rate("in/s", "messages_details", 1), ViewColumn("unacked", "unacknowledged", 8, 2),
    ViewColumn("again", "reconnects", 6, 3), _text("error", "error", 30, 1),
), sort="lag", is_paged=False, may_lack=True)  # fmt: skip

STREAMS: Final = View("streams", "list_streams", "streams", (
    _text("vhost", "vhost", 6, 3), _text("name", "name", 24), ViewColumn("messages", "messages", 11),
    ViewColumn("next", "next_offset", 11, 1), ViewColumn("lag", "lag"), ViewColumn("cons", "consumers", 5, 1),
    ViewColumn("files", "file_octets", 9, 2, unit="octets"), ViewColumn("tail", "tail_octets", 9, 3, unit="octets"),
    ViewColumn("segments", "segments", 8, 4),
), sort="messages", may_lack=True)  # fmt: skip

VIEWS: Final[dict[str, View]] = {view.name: view for view in (QUEUES, CONNECTIONS, CHANNELS, LINKS, STREAMS)}


def at(item: Item, path: str) -> Any:
    """Return the value at a dotted path, or None."""
    found: Any = item
    for step in path.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def column_of(view: View, title: str) -> ViewColumn | None:
    """Return the column of this title, or None."""
    return next((column for column in view.columns if column.title == title), None)


def fitting(view: View, width: int) -> tuple[ViewColumn, ...]:
    """Return the columns that fit; those with the highest ranks are left out first, those with rank 0 never."""
    columns = list(view.columns)
    while len(columns) > 1 and sum(column.width + 2 for column in columns) > width:
        least = max(columns, key=lambda column: (column.rank, columns.index(column)))
        if least.rank == 0:
            break
        columns.remove(least)
    return tuple(columns)


def arranged(view: View, items: Iterable[Item], sort: str, is_reversed: bool, text: str) -> list[Item]:
    """Return the items that contain `text` in a text column, sorted: numbers from the largest, texts from a."""
    words = [column.path for column in view.columns if not column.is_number]
    wanted = [item for item in items if any(text.lower() in str(at(item, path) or "").lower() for path in words)]
    column = column_of(view, sort) or view.columns[0]
    if column.is_number:
        wanted.sort(key=lambda item: float(at(item, column.path) or 0), reverse=not is_reversed)
    else:
        wanted.sort(key=lambda item: str(at(item, column.path) or ""), reverse=is_reversed)
    return wanted


def cell(column: ViewColumn, item: Item, is_first: bool = False) -> str:
    """Format a value for people; a missing one is a dash.

    With `is_first`, a rate of 0 is a dash, too: a broker's first sample says 0 of each rate.
    """
    value = at(item, column.path)
    if value is None or value == "":
        return "-"
    if column.is_number and not isinstance(value, int | float):
        return "-"  # RabbitMQ gives "" for values that it does not know yet
    if column.unit == "octets":
        return octets(float(value))
    if column.unit == "rate":
        if is_first and value == 0:
            return "-"
        return f"{value:,.0f}" if value >= 10 else f"{value:.1f}".replace(".0", "")
    return f"{value:,}" if column.is_number else str(value)


def octets(value: float) -> str:
    """Format a size with a unit so that it has at most four digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
