"""Deduplication for publishers that number their messages: a repetition is confirmed, but not stored again.

A publisher has a name, x-leveret-publisher, and its messages have growing numbers, x-leveret-sequence. A stream takes a
message only if its number is above the last one of its publisher there. Numbers may have gaps, but a smaller number
that comes later counts as a repetition; so does one of another publisher with that name.

This applies to publishes, in transactions too, by any route through exchanges and alternates. Each stream that they
reach has its own numbers; other queues take all messages. A message that reaches a stream later, as a dead letter or
from a delayed exchange, comes in another order, so its number is ignored and it is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchanges.route import Route
from leveret.broker.messages.headers import find, text_at
from leveret.broker.queues.overflow import expire_untaken
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.ready import ITEM_OCTETS
from leveret.broker.streams.marks import NAME_OCTETS_MAX
from leveret.broker.streams.stream import Stream
from leveret.broker.terms import type_of
from leveret.session.confirms import HANDLED, JOURNALLED, SYNCING
from leveret.wire.errors import PRECONDITION_FAILED, ProtocolError
from leveret.wire.table import decode_value

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel
    from leveret.broker.peer import Peer

PUBLISHER: Final = b"x-leveret-publisher"
SEQUENCE: Final = b"x-leveret-sequence"
_INTEGERS: Final = b"bBsuIilL"


class Number:
    """The publisher and sequence number of a message."""

    def __init__(self, publisher: str, sequence: i64) -> None:
        self.publisher = publisher
        self.sequence = sequence


def number_in(data: bytes, at: i64) -> Number | None:
    """Return the number in the encoded headers at this offset, None if one of the two headers is missing.

    Raises 406 if they are malformed.
    """
    sequence_at = find(data, at, SEQUENCE)
    name_at = find(data, at, PUBLISHER) if sequence_at != 0 else 0
    if name_at == 0:
        return None
    name = text_at(data, name_at)
    if name is None or not 0 < len(name) <= NAME_OCTETS_MAX:
        raise _malformed(PUBLISHER, data, name_at, "type" if name is None else "length")
    if data[sequence_at] not in _INTEGERS:
        raise _malformed(SEQUENCE, data, sequence_at, "type")
    sequence, _ = decode_value(data, int(sequence_at), len(data), 0)
    assert isinstance(sequence, int)
    return Number(name.decode("utf-8", "surrogateescape"), sequence)


def _malformed(name: bytes, data: bytes, at: i64, what: str) -> ProtocolError:
    text = f'invalid message: {{unacceptable_{what}_in_header,"{name.decode()}",{type_of(data[at : at + 1])}}}'
    return ProtocolError(PRECONDITION_FAILED, text, 60, 40)


def accept_numbered(
    peer: Peer, channel: BrokerChannel | None, route: Route, content: bytes, persistent: bool, ttl_us: i64,
    number: Number, standing: i64,
) -> i64:  # fmt: skip
    """Offer a publish with a number to the route's queues, except streams that have it already.

    channel: counts the publish; None if it is counted. standing: the state of its confirm so far. Returns the new
    state: a repetition waits as long as the first copy.
    """
    vhost = peer.vhost
    fresh: list[Queue] = []
    for queue in route.queues:
        mark = queue.sequences.get(number.publisher) if isinstance(queue, Stream) else None
        if mark is None or mark.value < number.sequence:
            fresh.append(queue)
        elif mark.id >= vhost.log.safe_below:
            vhost.log.events += 1  # a transaction's commit waits for it, too
            if vhost.log.is_open(mark.id):
                standing = JOURNALLED
            elif standing == HANDLED:
                standing = SYNCING
    if len(fresh) < len(route.queues):
        route = route.to(fresh)
    if channel is not None:
        peer.count(channel, route)
    peer.cost += len(content) + ITEM_OCTETS * len(fresh)
    if not fresh:
        return standing
    accepted = vhost.accept(route, content, persistent, ttl_us, peer.now_us)
    for queue in fresh:
        if isinstance(queue, Stream):
            queue.sequences.put(number.publisher, number.sequence).id = queue.tail[-1].id
            queue.mark()
    if ttl_us == 0 or route.is_brief:
        expire_untaken(vhost, route.queues, peer.now_us)
    return standing if accepted == HANDLED else accepted
