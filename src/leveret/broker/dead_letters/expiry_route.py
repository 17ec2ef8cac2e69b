"""The fast path of messages that expire and go to exactly one queue; dead_lettering.py handles all others.

Delays consist of such expiries, so they must be cheap: the route is looked up once for each queue and key, the history
is a detached history (detached_history.py), and the journal gets a record without the content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.dead_letters.detached_history import Cause, DeadEntry, DetachedHistory, history_of, mark_of
from leveret.broker.exchanges import routing
from leveret.broker.messages.carbon_copies import split_key
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.returned import Returned
from leveret.broker.queues.message_list import MessageList
from leveret.broker.queues.queue import Queue
from leveret.session.connection import Unfinished
from leveret.wire.table import encode_short

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

# per queue: delays of seconds have few different keys, delays of milliseconds any number
EXPIRY_ROUTES_MAX: Final = 512


class ExpiryRoute:
    """Where messages with one key go that expire in one queue."""

    def __init__(self, generation: i64, exchange: str | None, routing_key: str | None) -> None:
        self.generation = generation  # valid for this generation of the bindings
        self.exchange = exchange  # exchange, routing_key: valid while the queue has these arguments
        self.routing_key = routing_key
        self.target: Queue | None = None  # the only queue that gets them; None = they need a closer look
        self.key = b""  # their new key
        self.change = b""  # how it differs from the old one, for the journal: see `moved_key`
        self.cause: Cause | None = None
        self.mark = b""
        self.target_mark = b""


def expire(vhost: VHost, queue: Queue, until_us: i64, most: i64) -> i64:
    """Expire up to `most` of the oldest messages whose time to live ends by until_us; return how many.

    Reads no page before its time. Sets the queue's alarm for the messages that are left.
    """
    count: i64 = 0
    first_us = queue.expires_us()
    if first_us != 0 and first_us <= until_us:
        entry = queue.peek()
        while entry is not None and entry.expires_us != 0 and entry.expires_us <= until_us and count < most:
            count += 1
            queue.drop_head(entry)
            vhost.expire(queue, entry)
            next_us = vhost.timers.next_us()
            if 0 < next_us < until_us:
                until_us = next_us  # where it waits now its time ends before that of others here
            entry = queue.peek()
        first_us = queue.expires_us()
    if first_us != 0:
        queue.wake(first_us)
    return count


def go_on(vhost: VHost, queue: Queue, entry: Entry) -> bool:
    """Move an expired entry, which was taken out of its queue, to the next queue.

    Returns False, with nothing done, if it needs a closer look.
    """
    way = queue.expiry_routes.get(entry.key)
    if (
        way is None
        or way.generation != vhost.generation
        or way.exchange != queue.dead_letter_exchange
        or way.routing_key != queue.dead_letter_key
    ):
        try:
            way = _find(vhost, queue, entry.key)
        except Unfinished:
            vhost.slow_dead_letters.probe.clear()
            return False
    target, cause = way.target, way.cause
    if target is None or cause is None or target.limits is not None or isinstance(entry, Returned):
        return False
    history = history_of(entry)
    if history is None or way.mark in history.deaths or way.target_mark in history.deaths:
        return False
    died_us = vhost.timeline.wall_us(entry.expires_us)
    history = history.died(cause, died_us)
    # from the instant it was due, so that lateness does not add up over several queues
    expires_us = target.expiry(entry.expires_us, -1)
    message_list = target.list_of(history.content)
    id = _journal(vhost, entry, history, died_us, way, message_list, expires_us)
    message_list.put(DeadEntry(message_list, history, way.key, id, expires_us))
    if expires_us != 0 and target.timer_us == 0:
        target.wake(expires_us)  # it may be due before others there
    return True


def _journal(
    vhost: VHost,
    entry: Entry,
    history: DetachedHistory,
    died_us: i64,
    way: ExpiryRoute,
    message_list: MessageList,
    expires_us: i64,
) -> i64:
    """Record the move; return the message's new id, 0 if the journal does not need it any more."""
    log = vhost.log
    target = message_list.queue
    if not (target.is_journalled if history.persistent else target.keeps_all):
        if entry.id != 0:
            log.settle(entry.message_list, entry.id)
        return 0
    if log.is_here(entry.message_list, entry.id):
        return log.move_on(entry, died_us, way.change, message_list, expires_us)
    return log.message(history.composed(), way.key, message_list, expires_us, entry if entry.id else None)


def _find(vhost: VHost, queue: Queue, key: bytes) -> ExpiryRoute:
    way = ExpiryRoute(vhost.generation, queue.dead_letter_exchange, queue.dead_letter_key)
    _lead(vhost, queue, key, way)
    if len(queue.expiry_routes) >= EXPIRY_ROUTES_MAX or queue.expiry_routes_generation != vhost.generation:
        queue.expiry_routes.clear()
        queue.expiry_routes_generation = vhost.generation
    queue.expiry_routes[key] = way
    return way


def _lead(vhost: VHost, queue: Queue, key: bytes, way: ExpiryRoute) -> None:
    exchange = vhost.exchanges.get(way.exchange or "")
    if way.exchange is None or (exchange is None and way.exchange):
        return
    change = encode_short(way.exchange)
    if way.routing_key is not None:
        change += encode_short(way.routing_key)
    moved = moved_key(key, change)
    if len(moved) != 2 + moved[0] + moved[1 + moved[0]]:
        return  # BCC keys or a claim of x-death follow
    route = routing.find(vhost, exchange, moved, [split_key(moved)[1]], vhost.slow_dead_letters.probe)
    if route.is_per_message or route.is_limited or route.is_delayed or route.replies or len(route.queues) != 1:
        return
    target = route.queues[0]
    if target is queue or target.is_stream:
        return
    way.target = target
    way.key = moved
    way.change = change
    way.cause = Cause(queue.name, key)
    way.mark = mark_of(queue.name)
    way.target_mark = mark_of(target.name)


def moved_key(key: bytes, change: bytes) -> bytes:
    """Return the key of a message after an expiry.

    change: the new exchange as a short string, and then the new routing key, if it changes.
    """
    return change if len(change) > 1 + change[0] else change + key[1 + key[0] :]
