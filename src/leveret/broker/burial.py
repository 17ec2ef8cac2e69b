"""What becomes of a message that dies in its queue: it goes to the queue's dead letter exchange, or it is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.broker import overflow
from leveret.broker.copies import blind_keys, is_claimed, keys_in
from leveret.broker.deadletter import HEADER_AT, DeadLetter, headers_of
from leveret.broker.entry import Entry
from leveret.broker.queue import Queue
from leveret.broker.returned import published_content
from leveret.broker.route import Route
from leveret.session.confirms import JOURNALLED
from leveret.wire.errors import ProtocolError
from leveret.wire.scan import HeaderScan
from leveret.wire.table import encode_short

if TYPE_CHECKING:
    from leveret.broker.exchange import Exchange
    from leveret.broker.vhost import VHost


class Burial:
    """A dead letter and where it goes.

    route: its queues, those of a circle left out; trouble: why it reaches none, or one less; "" if nothing is wrong.
    """

    def __init__(self, route: Route, content: bytes, persistent: bool, trouble: str) -> None:
        self.route = route
        self.content = content
        self.persistent = persistent
        self.trouble = trouble


def bury(vhost: VHost, queue: Queue, entry: Entry, reason: str, now_us: i64) -> None:
    """Dead-letter an entry that was taken out of its queue, or drop it where the queue has no such exchange.

    now_us: when it died; the time to live in the next queue begins there.
    """
    is_moved = False
    if queue.dead_letter_exchange is not None:
        found = prepare(vhost, queue, entry, reason, now_us)
        if found.trouble:
            vhost.discard(queue, found.trouble)
        for full in overflow.refusing_queues(vhost, found.route, found.content, now_us):
            if full.limits is not None and not full.limits.buries:
                vhost.discard(queue, "dead letter refused by a full queue")
        moved = entry if entry.id else None
        # True if the journal's record of the arrivals says also that the message has left its queue
        is_moved = vhost.accept(found.route, found.content, found.persistent, -1, now_us, moved) == JOURNALLED
    if entry.id and not is_moved:
        vhost.log.settle(entry.shelf, entry.id)


def prepare(vhost: VHost, queue: Queue, entry: Entry, reason: str, now_us: i64) -> Burial:
    """The message with this death in its header, and where the queue's arguments send it. Requesters get theirs."""
    exchange = vhost.exchanges.get(queue.dead_letter_exchange or "")
    if exchange is None and queue.dead_letter_exchange:
        return _nowhere(vhost, entry, "dead letter exchange missing")
    try:
        return _addressed(vhost, exchange, queue, entry, reason, now_us)
    except ProtocolError:
        # Nobody has looked into its headers before, and whoever rejects it is not to blame. Without its history of
        # deaths it might go in a circle for ever.
        return _nowhere(vhost, entry, "dead letter with malformed headers")


def _nowhere(vhost: VHost, entry: Entry, trouble: str) -> Burial:
    return Burial(Route(vhost.generation, entry.key, None, []), b"", False, trouble)


def _addressed(
    vhost: VHost, exchange: Exchange | None, queue: Queue, entry: Entry, reason: str, now_us: i64
) -> Burial:
    claimed = is_claimed(entry.key)
    content = published_content(entry)
    letter = DeadLetter(content, claimed)
    old_exchange, old_key = split_key(entry.key)
    keys = [old_key, *keys_in("CC", letter.cc)]
    letter.die(queue.name, reason, old_exchange, keys, int(now_us))
    key = encode_short(exchange.name if exchange else "")
    if queue.dead_letter_key is None:
        keys += blind_keys(entry.key)
        key += entry.key[1 + entry.key[0] : len(entry.key) - claimed]
    else:
        keys = [queue.dead_letter_key]
        key += encode_short(queue.dead_letter_key)
        letter.without_cc()
    persistent = _is_persistent(content)
    content = letter.content()
    route = vhost.route(exchange, key, keys)
    if route.by_headers and exchange is not None:
        route.set_queues(vhost.targets(exchange, keys, headers_of(content)))
    for requester in route.replies:
        vhost.reply(requester, content, route.key)
    trouble = "" if route.queues or route.replies else "dead letter without a route"
    if reason != "rejected":
        free = [target for target in route.queues if not letter.is_in_circle(target.name)]
        if len(free) < len(route.queues):
            trouble = "dead letter cycle"
            route.set_queues(free)
    return Burial(route, content, persistent, trouble)


def _is_persistent(content: bytes) -> bool:
    scan = HeaderScan()
    scan.scan(content, HEADER_AT, HEADER_AT + i64(read_i32_be(content, 3)))
    return scan.delivery_mode == 2


def split_key(key: bytes) -> tuple[str, str]:
    """(exchange, routing key) from the key of an entry."""
    middle = 1 + key[0]
    end = middle + 1 + key[middle]
    return key[1:middle].decode("utf-8", "surrogateescape"), key[middle + 1 : end].decode("utf-8", "surrogateescape")
