"""What a broker holds, as plain values, to compare it with the model and with the state after a crash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from leveret.broker.broker import Broker
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.messages.carbon_copies import split_key
from leveret.broker.messages.contents import body_of, header_of
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.messages.returned import Returned
from leveret.broker.queues.queue import Queue
from leveret.broker.storage.definitions import GLOBAL_PARAMETER, PARAMETER, VHOST, key_of
from leveret.broker.storage.page import Page
from leveret.broker.streams.chunk import ChunkGroup, decode
from leveret.broker.streams.stream import Stream
from leveret.net.disk.archive import Archive
from leveret.wire.properties import decode_header

from .topology import KEEPING, STREAMS


class Death(NamedTuple):
    """One entry of x-death, without its time."""

    queue: str
    reason: str
    count: int
    exchange: str
    key: str
    expiration: str | None


class Row(NamedTuple):
    """A message in a queue.

    Attributes:
        expires_us: When it expires, 0 = never.
        first: (queue, reason, exchange) of its first death.
        returns: How often it was requeued, where that is counted; in a stream its offset.
    """

    id: int
    exchange: str
    key: str
    persistent: bool
    expires_us: int
    deaths: tuple[Death, ...]
    first: tuple[str, str, str] | None
    redelivered: bool
    returns: int = 0

    @property
    def source(self) -> str:
        """The queue that it was dead-lettered from, "" = it was published to this one. Order holds within a source."""
        return self.deaths[0].queue if self.deaths else ""


# kind, key and value of a definition
Defined = tuple[str, tuple[str, ...], str]


class State(NamedTuple):
    """The contents of a broker.

    Attributes:
        exchanges: (name, durable).
        bindings: (source, key, queue).
        queues: The messages of each queue in order.
        definitions: What an operator has defined beside the defaults.
    """

    exchanges: frozenset[tuple[str, bool]]
    bindings: frozenset[tuple[str, str, str]]
    queues: dict[str, tuple[Row, ...]]
    durable: frozenset[str]
    definitions: frozenset[Defined] = frozenset()

    def kept(self) -> State:
        """Return the part that survives a stop: persistent messages in durable queues, all messages in quorum queues
        and streams, durable exchanges and their bindings."""
        exchanges = frozenset((name, durable) for name, durable in self.exchanges if durable)
        names = {name for name, _ in exchanges}
        queues = {
            name: tuple(row for row in self.queues[name] if row.persistent or name in KEEPING)
            for name in sorted(self.durable)
        }
        return State(
            exchanges,
            frozenset(binding for binding in self.bindings if binding[0] in names and binding[2] in self.durable),
            queues,
            self.durable,
            self.definitions,
        )

    def delivered(self) -> State:
        """Return the same after an unclean stop, when any message may have been delivered before."""
        queues = {
            name: rows if name in STREAMS else tuple(row._replace(redelivered=True) for row in rows)
            for name, rows in self.queues.items()
        }
        return self._replace(queues=queues)

    def matches(self, other: State) -> bool:
        """Whether both are equal, apart from how many of the streams' oldest messages retention has removed."""
        for name in STREAMS & self.queues.keys() & other.queues.keys():
            mine, theirs = self.queues[name], other.queues[name]
            first = max((rows[0].returns for rows in (mine, theirs) if rows), default=0)
            newest = [tuple(row for row in rows if row.returns >= first) for rows in (mine, theirs)]
            if newest[0] != newest[1] or bool(mine) != bool(theirs):
                return False
        return self._replace(queues=_others(self)) == other._replace(queues=_others(other))

    def difference(self, other: State) -> str:
        """Return a readable difference of two states."""
        lines: list[str] = []
        for field in ("exchanges", "bindings", "durable", "definitions"):
            mine, theirs = getattr(self, field), getattr(other, field)
            if mine != theirs:
                lines.append(f"{field}: only here {sorted(mine - theirs)}, only there {sorted(theirs - mine)}")
        for name in sorted(self.queues.keys() | other.queues.keys()):
            if self.queues.get(name, ()) != other.queues.get(name, ()):
                lines += [f"{name}: here", *map(str, self.queues.get(name, ())), "there"]
                lines += map(str, other.queues.get(name, ()))
        return "\n".join(lines)


def _others(state: State) -> dict[str, tuple[Row, ...]]:
    return {name: () if name in STREAMS else rows for name, rows in state.queues.items()}


def body(id: int) -> bytes:
    """Return the body of a message: id and contents that depend on it. Five ids in a row have bodies of one length."""
    return b"%06d " % id + bytes((id + at) % 251 for at in range(id // 5 * 37 % 120))


def id_of(content: bytes) -> int:
    """Return the id of a body; raise AssertionError if a single octet of it is wrong."""
    id = int(content.partition(b" ")[0])
    assert content == body(id), f"message {id} has another body: {content!r}"
    return id


class Meaning(NamedTuple):
    """The contents of a message."""

    id: int
    persistent: bool
    deaths: tuple[Death, ...]
    first: tuple[str, str, str] | None


@lru_cache(maxsize=4096)
def meaning_of(header: bytes, content: bytes) -> Meaning:
    """Parse a header payload and a body; raise AssertionError if they can't belong to one message of the simulation."""
    properties, _ = decode_header(header)
    headers = properties.headers or {}
    deaths = tuple(
        Death(
            str(death["queue"]), str(death["reason"]), int(death["count"]), str(death["exchange"]),  # type: ignore[call-overload]
            str(death["routing-keys"][0]), death.get("original-expiration"),  # type: ignore[arg-type,index]
        )
        for death in headers.get("x-death", [])  # type: ignore[union-attr]
    )  # fmt: skip
    first = None
    if deaths:
        assert properties.expiration is None, "a dead letter keeps its expiration"
        first = tuple(str(headers[f"x-first-death-{name}"]) for name in ("queue", "reason", "exchange"))
    return Meaning(id_of(content), properties.delivery_mode == 2, deaths, first)  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def _at_rest(content: bytes, key: bytes) -> Row:
    of = meaning_of(header_of(content), body_of(content))
    return Row(of.id, *split_key(key), of.persistent, 0, of.deaths, of.first, False)


def _row(entry: Entry) -> Row:
    row = _at_rest(entry.shown(), entry.key)
    returns = int(entry.returns) if isinstance(entry, Returned) else 0
    return row._replace(expires_us=int(entry.expires_us), redelivered=entry.redelivered, returns=returns)


def _place(entry: Entry) -> tuple[int, int]:
    return int(-entry.message_list.index), int(entry.position)


def _waiting(queue: Queue) -> list[Entry]:
    """Return the ready messages of a queue, in any order; its pages are read and left where they are."""
    log = queue.vhost.log
    found = queue.in_memory()
    for page in [item for each in queue.message_lists for item in each.ready._items[each.ready._head :]]:
        if isinstance(page, Page):
            data = log.read_page(int(page.segment), int(page.offset), int(page.size))
            assert data is not None, "a page is not there"
            for item in page.load(data):
                if isinstance(item, MessageBatch):
                    found += [item.entry(index) for index in range(int(item.taken), int(item.buffer.count))]
                else:
                    found.append(item)
    return found


def _rows_of(groups: list[ChunkGroup]) -> tuple[Row, ...]:
    return tuple(
        _at_rest(group.content(index), group.key)._replace(returns=int(group.offset) + index)
        for group in groups
        for index in range(int(group.count))
    )


@lru_cache(maxsize=1024)
def _rows_in(payload: bytes, first: int) -> tuple[Row, ...]:
    return _rows_of(decode(payload, first))


def _stream(stream: Stream, archive: Archive) -> tuple[Row, ...]:
    """Return all messages of a stream, in its files and in memory; check that there are no gaps."""
    rows: list[Row] = []
    files = archive.files
    for found in files.segments:
        segment = replace(found)  # its index may not be loaded yet, and must stay so
        files.look_into(segment)
        assert segment.places is not None
        for place in segment.places:
            payload = files.read(segment, place)
            assert payload is not None
            rows += _rows_in(payload, place.first)
    assert len(rows) == int(stream.history.end - stream.history.first)
    rows += _rows_of(stream.tail)
    first, end = int(stream.first), int(stream.next_offset)
    assert [row.returns for row in rows] == list(range(first, end)), f"{stream.name}: {first} to {end}"
    return tuple(rows)


def coming_back(broker: Broker) -> set[tuple[str, int, str]]:
    """Return (queue, id, source) of each message that is on its way back to its queue."""
    found: set[tuple[str, int, str]] = set()
    for way in broker.requeue_jobs.of(broker.vhosts["/"]):
        for tag, delivery in way.channel.unacked.tagged(0):
            if isinstance(delivery, Entry) and not delivery.queue.is_deleted and (way.stop == 0 or tag <= way.stop):
                row = _row(delivery)
                found.add((delivery.queue.name, row.id, row.source))
    return found


def state_of(broker: Broker, archives: Mapping[int, Archive]) -> State:
    """Return everything that the broker holds, including unacknowledged messages; `archives` by queue number."""
    vhost = broker.vhosts["/"]
    entries: dict[str, list[Entry]] = {name: _waiting(queue) for name, queue in vhost.queues.items()}
    for channel in vhost.holding():
        for delivery in channel.unacked.all():
            if isinstance(delivery, Entry) and not delivery.queue.is_deleted:
                entries[delivery.queue.name].append(delivery)
    exchanges = [exchange for exchange in vhost.exchanges.values() if not exchange.name.startswith("amq.")]
    return State(
        frozenset((exchange.name, exchange.durable) for exchange in exchanges),
        frozenset(
            (binding.source.name, binding.key, binding.destination.name)
            for exchange in exchanges
            for binding in exchange.every()
            if not isinstance(binding.destination, Exchange)
        ),
        {name: tuple(_row(e) for e in sorted(found, key=_place)) for name, found in entries.items()}
        | {
            name: _stream(queue, archives[int(queue.number)])
            for name, queue in vhost.queues.items()
            if isinstance(queue, Stream)
        },
        frozenset(name for name, queue in vhost.queues.items() if queue.durable),
        frozenset(
            (kind, key_of(kind, definition), str(definition.get("value")))
            for kind in (VHOST, PARAMETER, GLOBAL_PARAMETER)
            for definition in broker.definitions.all(kind)
            if definition["name"] != "/"
        ),
    )
