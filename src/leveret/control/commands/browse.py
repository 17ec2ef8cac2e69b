"""Commands that read messages of a queue or stream without consuming them."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Final, Literal

import msgspec

from leveret.broker.access.access import Access
from leveret.broker.access.users import READ
from leveret.broker.messages.carbon_copies import split_key
from leveret.broker.messages.contents import body_of, header_of
from leveret.broker.queues.limits import body_octets
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.queue_types import queue_type
from leveret.broker.streams.stream import Stream
from leveret.control.browsing import Look, Seen, of_stream, single, unacknowledged, waiting
from leveret.control.command import Query
from leveret.control.commands.messages import shown_body, shown_properties
from leveret.control.node import BrokerNode
from leveret.control.refusal import NOT_AUTHORISED, Refused, bad_request, not_found
from leveret.control.sliced import Sliced, Steps
from leveret.control.tables import sayable
from leveret.control.validation.checks import vhost_named
from leveret.control.views.delayed import wall_ms
from leveret.control.views.view import View, encode
from leveret.wire.errors import ProtocolError

LIMIT_MAX: Final = 1000
TRUNCATE_MAX: Final = 1 << 20
# octets of bodies in one answer
ANSWER_OCTETS_MAX: Final = 8 << 20
# messages that one answer searches for a text, and octets of each body that are searched
SCANNED_MAX: Final = 50_000
SEARCHED_OCTETS_MAX: Final = 1 << 20
# largest body that is returned whole: its base64 must fit into a line of the socket; and the size of its pieces, a
# multiple of 3
WHOLE_OCTETS_MAX: Final = 32 << 20
PIECE_OCTETS: Final = 48 << 10
_PLACE: Final = re.compile(r"\d{1,18}(-\d{1,18})?", re.ASCII)

READY, UNACKED, UNDELIVERABLE = "ready", "unacked", "parked"


class BrowseQueue(Query):
    """Return messages in the order of delivery, without any effect on consumers.

    The answer's next_offset continues the list, None = no more messages.
    """

    queue: str
    vhost: str = "/"
    state: Literal["ready", "unacked", "parked"] = "ready"  # ready, held by consumers, or undeliverable dead letters
    offset: int = 0  # messages to skip; in a stream the first offset; negative: from the end
    limit: int = 50  # most messages to return
    text: str = ""  # case-insensitive search in routing key, exchange, properties, headers, body
    truncate: int = 4096  # most octets of each body
    encoding: Literal["auto", "base64"] = "auto"  # auto: bodies as text if they are UTF-8
    user: str | None = None  # whose read permission counts, None = no check

    def run(self, node: BrokerNode) -> object:
        if not 1 <= self.limit <= LIMIT_MAX:
            raise bad_request(f"limit must be from 1 to {LIMIT_MAX}, not {self.limit}")
        if not 0 <= self.truncate <= TRUNCATE_MAX:
            raise bad_request(f"truncate must be from 0 to {TRUNCATE_MAX}, not {self.truncate}")
        queue = readable(node, self.vhost, self.queue, self.user)
        if queue.is_stream and self.state != READY:
            raise bad_request(f"{queue.what()} is a stream, whose messages have no state: omit 'state'")
        return Sliced(self._steps(node, queue))

    def _steps(self, node: BrokerNode, queue: Queue) -> Steps[object]:
        first, total = self._span(queue)
        offset = max(first, first + total + self.offset) if self.offset < 0 else max(first, self.offset)
        needle = self.text.encode("utf-8", "surrogateescape").lower()
        items: list[msgspec.Raw] = []
        octets = scanned = 0
        next_offset: int | None = None
        for seen in self._look(node, queue, offset):
            yield
            if seen is None:
                continue
            if len(items) == self.limit or octets > ANSWER_OCTETS_MAX or scanned == SCANNED_MAX:
                next_offset = seen.offset
                break
            scanned += 1
            if not needle or _has(seen, needle):
                items.append(encode(self._view(node, seen)))
                octets += min(int(body_octets(seen.content)), self.truncate)
        return {
            "vhost": sayable(self.vhost),
            "queue": sayable(queue.name),
            "type": queue_type(queue.arguments),
            "state": self.state,
            "ready": int(queue.count()),
            "unacked": int(queue.outstanding()),
            "parked": int(queue.undeliverable_count()),
            "first_offset": first,
            "offset": offset,
            "scanned": scanned,
            "next_offset": next_offset,
            "items": items,
        }

    def _span(self, queue: Queue) -> tuple[int, int]:
        """Return the first existing offset and the number of messages."""
        if isinstance(queue, Stream):
            return int(queue.first), int(queue.committed - queue.first)
        counts = {READY: queue.count, UNACKED: queue.outstanding, UNDELIVERABLE: queue.undeliverable_count}
        return 0, int(counts[self.state]())

    def _look(self, node: BrokerNode, queue: Queue, offset: int) -> Look:
        if isinstance(queue, Stream):
            return of_stream(queue, offset)
        if self.state == UNACKED:
            return unacknowledged(queue, node.host.peers(), offset)
        return waiting(queue, offset, self.state == UNDELIVERABLE)

    def _view(self, node: BrokerNode, seen: Seen) -> View:
        exchange, key = split_key(seen.key)
        body = body_of(seen.content)
        payload, encoding = shown_body(_cut(body, self.truncate), self.encoding)
        view: View = {
            "offset": seen.offset,
            "place": seen.place,
            "exchange": sayable(exchange),
            "routing_key": sayable(key),
            "redelivered": seen.redelivered,
            "properties": _properties(seen),
            "payload_bytes": len(body),
            "payload": payload,
            "payload_encoding": encoding,
        }
        if self.state != UNDELIVERABLE:
            view["expires_ms"] = wall_ms(node, seen.expires_us)
        if seen.held is not None:
            connection, channel, consumer = seen.held
            view["held_by"] = {"connection": connection, "channel": channel, "consumer_tag": sayable(consumer) or None}
        if seen.time_us:
            view["arrived_ms"] = seen.time_us // 1000
        return view


class GetMessageBody(Query):
    """Return the whole body of a message shown by browse_queue, by its place, as consecutive base64 pieces.

    The message stays where it is.
    """

    queue: str
    place: str
    vhost: str = "/"
    user: str | None = None

    def run(self, node: BrokerNode) -> object:
        queue = readable(node, self.vhost, self.queue, self.user)
        if _PLACE.fullmatch(self.place) is None or queue.is_stream is ("-" in self.place):
            raise bad_request(f"'{self.place}' is not a message's place: use one from the answer of browse_queue")
        return Sliced(self._steps(node, queue))

    def _steps(self, node: BrokerNode, queue: Queue) -> Steps[object]:
        for seen in single(queue, node.host.peers(), self.place):
            yield
            if seen is None:
                continue
            octets = int(body_octets(seen.content))
            if octets > WHOLE_OCTETS_MAX:
                raise bad_request(f"the body has {octets} bytes, more than the limit of {WHOLE_OCTETS_MAX}: get the "
                                  "message over AMQP")
            body = body_of(seen.content)
            starts = range(0, len(body), PIECE_OCTETS)
            return (b64encode(body[start : start + PIECE_OCTETS]).decode() for start in starts)
        raise not_found(f"{queue.what()} no longer has a message at {self.place}: browse again")


def readable(node: BrokerNode, vhost: str, name: str, user: str | None) -> Queue:
    """Return the queue. Raises Refused if it does not exist, or if the user may not read from it, as for basic.get."""
    host = vhost_named(node, vhost)
    access: Access | None = None if user is None else node.broker.access(user, vhost)
    if access is not None and not access.may(READ, name):
        text = f"access to queue '{name}' in vhost '{vhost}' refused for user '{user}'"
        raise Refused(NOT_AUTHORISED, f"ACCESS_REFUSED - {text}")
    queue = host.queues.get(name)
    if queue is None:
        raise not_found(f"no queue '{name}' in vhost '{vhost}'")
    if queue.owner is not None and user is not None:
        raise Refused(
            NOT_AUTHORISED, f"{queue.what()} is exclusive to another connection: browse it with `leveret ctl`"
        )
    return queue


def _properties(seen: Seen) -> dict[str, object]:
    try:
        return shown_properties(header_of(seen.content))
    except ProtocolError:
        return {}  # they are malformed, and nothing has parsed them before


def _has(seen: Seen, needle: bytes) -> bool:
    """Return whether the message contains the text. Numbers and times match as they are shown."""
    if needle in seen.key.lower() or needle in body_of(seen.content)[:SEARCHED_OCTETS_MAX].lower():
        return True
    header = header_of(seen.content)
    if len(header) <= 14:  # class, weight, size and flags, but no properties
        return False
    return needle in header.lower() or needle in repr(_properties(seen)).encode("utf-8", "surrogateescape").lower()


def _cut(body: bytes, octets: int) -> bytes:
    """Return the first octets of a body without a truncated UTF-8 character at the end."""
    if len(body) <= octets:
        return body
    part = body[:octets]
    for back in range(1, min(4, octets) + 1):
        lead = part[-back]
        if lead & 0xC0 != 0x80:
            width = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            return part[:-back] if width > back else part
    return part
