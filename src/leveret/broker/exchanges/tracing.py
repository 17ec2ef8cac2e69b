"""The firehose of a virtual host: amq.rabbitmq.trace gets a copy of every publish and of every delivery.

Routing keys, headers and the choice of events are those of RabbitMQ 3.10.8, measured: publishes when they are accepted
(before their transaction commits), and deliveries from queues; no direct replies, no dead lettering, and no delivery of
messages of amq.rabbitmq.trace itself. While the firehose is on, routes and consumers handle each message singly; while
it is off, it costs nothing.

Beyond RabbitMQ: while amq.rabbitmq.trace has a binding with the argument x-leveret-audit=true, events have more
headers, for all consumers: their time (timestamp_in_us, wall clock), the number of a publish that is to be confirmed
(publish_seq_no), which of its queues are streams (routed_streams), and whether it is part of a transaction or stage, so
that maybe nobody will see it (is_provisional). Events of their own report confirms and refusals (confirm.ack and
confirm.nack, from first_seq_no to last_seq_no). docs/guides/spark/audit.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchanges import routing
from leveret.broker.exchanges.lookup import Seeker
from leveret.broker.exchanges.route import Route
from leveret.broker.messages import carbon_copies
from leveret.broker.messages.contents import HEADER_AT, header_of
from leveret.broker.names import REPLY_PREFIX
from leveret.broker.queues.queue import Queue
from leveret.broker.timers import Timer
from leveret.session.confirms import ACKED, NACKED
from leveret.session.connection import Unfinished
from leveret.wire.errors import ProtocolError
from leveret.wire.frames import content_frames
from leveret.wire.properties import Properties, encode_header, property_spans
from leveret.wire.table import Value, decode_table, encode_short, encode_table, encode_value, join_table

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel
    from leveret.broker.messages.entry import Entry
    from leveret.broker.peer import Peer
    from leveret.broker.vhost import VHost

EXCHANGE = "amq.rabbitmq.trace"
AUDIT = "x-leveret-audit"
_EXCHANGE_KEY = encode_short(EXCHANGE)
_AUDIT_ARGUMENT = encode_table({AUDIT: True})[4:]
_WORDS: Final = {ACKED: "ack", NACKED: "nack"}
_EMPTY: Final = content_frames(1, encode_header(Properties(), 0), b"", 4096)
# gets each event at once: its routing key, its headers as encoded entries including those for audits, and its content
Listener = Callable[["VHost", str, list[tuple[bytes, bytes]], bytes], None]


class AnotherTurn(Timer):
    """Makes a turn begin soon."""

    def fire(self, until_us: i64, most: i64, now_us: i64) -> i64:
        self.timer_us = 0
        return 1


class Tracing:
    """The firehose of one virtual host. The events of a turn are published at its end."""

    def __init__(self, vhost: VHost, node: str) -> None:
        self.vhost = vhost
        self.node = node  # the broker's name in events
        self.is_public = False  # the firehose is on, so events are published
        self.listener: Listener | None = None  # a listener in this process, which gets events in any case
        self._told: list[tuple[str, list[tuple[bytes, bytes]], bytes]] = []
        self._events: list[tuple[str, bytes]] = []  # the same as messages, to be published
        self._seeker = Seeker(vhost.share)
        self._another_turn = AnotherTurn(vhost.timers)  # for the rest
        self._generation: i64 = 0  # of the bindings for which _is_audited was found
        self._is_audited = False

    @property
    def is_audited(self) -> bool:
        """Whether events have more headers than RabbitMQ's."""
        if self._generation != self.vhost.generation:
            self._generation = self.vhost.generation
            bindings = self.vhost.exchanges[EXCHANGE].every()
            self._is_audited = any(_AUDIT_ARGUMENT in binding.arguments for binding in bindings)
        return self._is_audited

    @property
    def hears_answers(self) -> bool:
        """Whether confirms have to be reported."""
        return self.listener is not None or self.is_audited

    def published(self, connection: Peer, channel: BrokerChannel, route: Route, content: bytes) -> None:
        """Report an accepted publish with this route."""
        name = route.exchange.name if route.exchange is not None else ""
        if route.exchange is None:
            # RabbitMQ does not check that these queues exist
            queues = {key for key in route.keys if not key.startswith(REPLY_PREFIX)}
        else:
            queues = {queue.name for queue in route.queues if not queue.is_schedule}
        entries = self._message(name, route.keys, content) + self._circumstances(connection, int(channel.number))
        names: list[Value] = [*sorted(queues)]
        entries.append((b"routed_queues", encode_value(names)))
        more = _more(channel, route) if self.hears_answers else []
        self._tell(f"publish.{name}", entries, content, more)

    def answered(self, connection: Peer, channel: BrokerChannel, told: list[tuple[i64, i64, i64]]) -> None:
        """Report the confirms and refusals that the channel's publisher is about to get."""
        circumstances = self._circumstances(connection, int(channel.number))
        for word, first, last in told:
            entries = [(b"node", encode_value(self.node)), *circumstances]
            entries.append((b"first_seq_no", encode_value(int(first))))
            entries.append((b"last_seq_no", encode_value(int(last))))
            self._tell(f"confirm.{_WORDS[word]}", entries, _EMPTY, [], True)

    def delivered(self, connection: Peer, channel: int, queue: Queue, entry: Entry) -> None:
        """Report a delivery by basic.deliver or basic.get."""
        if entry.key.startswith(_EXCHANGE_KEY):
            return
        middle = 1 + entry.key[0]
        name = entry.key[1:middle].decode("utf-8", "surrogateescape")
        key = entry.key[middle + 1 : middle + 1 + entry.key[middle]].decode("utf-8", "surrogateescape")
        content = entry.shown()
        try:
            keys = [key, *carbon_copies.CarbonCopies(content).cc, *carbon_copies.blind_keys(entry.key)]
        except ProtocolError:
            keys = [key]  # its headers cannot be read
        entries = self._message(name, keys, content)
        entries.append((b"redelivered", encode_value(int(entry.redelivered))))
        self._tell(f"deliver.{queue.name}", entries + self._circumstances(connection, channel), content, [])

    def emit(self, now_us: int) -> bool:
        """Publish the events of this turn; False if none. If a lookup takes several turns, the others wait."""
        told = self._told
        self._told = []
        vhost = self.vhost
        exchange = vhost.exchanges[EXCHANGE]
        time = encode_value(int(vhost.timeline.wall_us(now_us)))
        for name, entries, told_content in told:
            if self.is_audited:
                entries.append((b"timestamp_in_us", time))
            self._events.append((name, _event(entries, told_content)))
        count = 0
        seeker = self._seeker
        while count < len(self._events) and seeker.go_on():
            name, content = self._events[count]
            key = _EXCHANGE_KEY + encode_short(name)
            route = Route(vhost.generation, key, exchange, [name])
            try:
                route.set_queues(routing.targets(vhost, exchange, Envelope(route.keys, key, content), seeker))
            except Unfinished:
                break
            seeker.clear()
            vhost.accept(route, content, False, -1, now_us)
            count += 1
        del self._events[:count]
        if self._events:
            self._another_turn.wake(now_us + 1)
        return count > 0

    def _message(self, exchange: str, keys: list[str], content: bytes) -> list[tuple[bytes, bytes]]:
        names: list[Value] = [*keys]
        return [
            (b"exchange_name", encode_value(exchange)),
            (b"routing_keys", encode_value(names)),
            (b"properties", b"F" + join_table(_properties(header_of(content)))),
            (b"node", encode_value(self.node)),
        ]

    def _circumstances(self, connection: Peer, channel: int) -> list[tuple[bytes, bytes]]:
        return [
            (b"vhost", encode_value(self.vhost.name)),
            (b"connection", encode_value(connection.name)),
            (b"channel", encode_value(channel)),
            (b"user", encode_value(connection.user)),
        ]

    def _tell(
        self, key: str, entries: list[tuple[bytes, bytes]], content: bytes, more: list[tuple[bytes, bytes]],
        is_for_audits: bool = False,
    ) -> None:  # fmt: skip
        """Report an event. more: headers for audits only; is_for_audits: the event itself is for audits only."""
        if self.listener is not None:
            self.listener(self.vhost, key, entries + more, content)
        if not self.is_public or not self.vhost.exchanges[EXCHANGE].outgoing:
            return
        if self.is_audited:
            entries = entries + more
        elif is_for_audits:
            return
        name = key.encode("utf-8", "surrogateescape")[:255].decode("utf-8", "surrogateescape")
        self._told.append((name, entries, content))


def start(vhost: VHost, node: str) -> None:
    """Turn the firehose on."""
    _tracing(vhost, node).is_public = True
    _look_anew(vhost)


def stop(vhost: VHost) -> None:
    """Turn the firehose off."""
    tracing = vhost.tracing
    if tracing is not None and tracing.listener is not None:
        tracing.is_public = False
        return
    vhost.tracing = None
    _look_anew(vhost)


def listen(vhost: VHost, node: str, listener: Listener) -> None:
    """Set a listener in this process, which gets the firehose's events within turns, even while it is off."""
    _tracing(vhost, node).listener = listener
    _look_anew(vhost)


def is_on(vhost: VHost) -> bool:
    """Whether the firehose is on."""
    return vhost.tracing is not None and vhost.tracing.is_public


def _tracing(vhost: VHost, node: str) -> Tracing:
    if vhost.tracing is None:
        vhost.tracing = Tracing(vhost, node)
    return vhost.tracing


def _look_anew(vhost: VHost) -> None:
    """Drop cached routes and delivery prefixes, which were made for another state of the firehose."""
    vhost.changed()
    for channel in vhost.channels:
        for consumer in channel.consumers.values():
            consumer.forget_key()


def _more(channel: BrokerChannel, route: Route) -> list[tuple[bytes, bytes]]:
    """Return a publish's headers for audits, and have the channel note its confirms from now on."""
    entries: list[tuple[bytes, bytes]] = []
    confirms = channel.confirms
    if confirms is not None:
        entries.append((b"publish_seq_no", encode_value(int(confirms.published + 1))))
        if confirms.told is None:
            confirms.told = []
    if route.has_stream:
        streams: list[Value] = [*sorted(queue.name for queue in route.queues if queue.is_stream)]
        entries.append((b"routed_streams", encode_value(streams)))
    if channel.is_kept_back:
        entries.append((b"is_provisional", encode_value(True)))
    return entries


def _event(entries: list[tuple[bytes, bytes]], content: bytes) -> bytes:
    """Return the content of an event: a message's body with other properties; class, weight and size stay."""
    head = content[HEADER_AT : HEADER_AT + 12] + b"\x20\x00" + join_table(entries)
    body = content[8 + int.from_bytes(content[3:7], "big") :]
    return content[:3] + len(head).to_bytes(4, "big") + head + b"\xce" + body


def _properties(header: bytes) -> list[tuple[bytes, bytes]]:
    """Return a content header's properties as the entries of a table, the last one first."""
    entries: list[tuple[bytes, bytes]] = []
    for name, start_at, stop_at in reversed(property_spans(header)):
        raw = header[start_at:stop_at]
        if name == "headers":
            try:
                decode_table(raw, 0)
            except ProtocolError:
                continue  # malformed: they were not decoded before
            value = b"F" + raw
        elif name in ("delivery_mode", "priority", "timestamp"):
            value = encode_value(int.from_bytes(raw, "big", signed=name == "timestamp"))
        else:
            value = encode_value(raw[1:].decode("utf-8", "surrogateescape"))
        entries.append((name.encode(), value))
    return entries
