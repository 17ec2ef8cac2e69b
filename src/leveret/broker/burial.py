"""What becomes of a message that dies in its queue: it goes to the queue's dead letter exchange, or it is dropped.

A queue with x-dead-letter-strategy=at-least-once drops none: see stranded.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.broker import overflow
from leveret.broker.copies import blind_keys, is_claimed, keys_in, split_key
from leveret.broker.deadletter import HEADER_AT, DeadLetter
from leveret.broker.entry import Entry
from leveret.broker.kinds.envelope import Envelope
from leveret.broker.queue import Queue
from leveret.broker.returned import published_content
from leveret.broker.route import Route
from leveret.broker.stranded import Letter, Stranded
from leveret.session.confirms import JOURNALLED
from leveret.wire.errors import ProtocolError
from leveret.wire.scan import HeaderScan
from leveret.wire.table import encode_short

if TYPE_CHECKING:
    from leveret.broker.exchange import Exchange
    from leveret.broker.vhost import VHost

FULL: Final = "dead letter refused by a full queue"


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
    if queue.stranded is not None:
        letter = Letter(entry, reason, now_us)
        trouble = _send(vhost, queue, letter, now_us)
        if trouble:
            vhost.tell_once(queue, f"{trouble}: the message is kept until a queue takes it")
            queue.stranded.add(letter)
            if len(queue.stranded.letters) == 1:
                _plan(vhost, queue, queue.stranded, now_us, False)
            else:
                _take_room(queue, queue.stranded)
        return
    is_moved = False
    if queue.dead_letter_exchange is not None:
        found = prepare(vhost, queue, entry, reason, now_us)
        if found.trouble:
            vhost.discard(queue, found.trouble)
        for _ in _refusing(vhost, found.route, found.content, now_us):
            vhost.discard(queue, FULL)
        is_moved = _move(vhost, found.route, found, entry, now_us)
    if entry.id and not is_moved:
        vhost.log.settle(entry.shelf, entry.id)


def retry(vhost: VHost, queue: Queue, stranded: Stranded, now_us: i64) -> None:
    """Try those of the dead letters that a queue keeps whose time has come."""
    letters = stranded.next_few(now_us)
    if not letters:
        return
    is_moving = False
    for letter in letters:
        if _send(vhost, queue, letter, now_us):
            stranded.add(letter)
        else:
            is_moving = True
    _plan(vhost, queue, stranded, now_us, is_moving)


def hurry(vhost: VHost, now_us: i64) -> None:
    """A binding, an exchange or a queue came or went: there may be a way for what is kept."""
    vhost.stranded_generation = vhost.generation
    for queue in list(vhost.stranding.values()):
        if queue.is_deleted or queue.stranded is None or not queue.stranded.letters:
            del vhost.stranding[int(queue.number)]
        elif queue.stranded.hurry(now_us):
            vhost.timers.add(queue.stranded.retry_us, queue)


def reconsider(vhost: VHost, queue: Queue, stranded: Stranded, now_us: i64) -> None:
    """A policy has changed what becomes of the dead letters that a queue keeps."""
    if queue.stranded is not None:
        _take_room(queue, queue.stranded)
        return
    for letter in stranded.letters:
        entry = letter.entry
        if not letter.reached:
            bury(vhost, queue, entry, letter.reason, letter.died_us)
        elif entry.id:
            vhost.log.settle(entry.shelf, entry.id)  # some queue has it, so it is not lost


def _plan(vhost: VHost, queue: Queue, stranded: Stranded, now_us: i64, is_moving: bool) -> None:
    _take_room(queue, stranded)
    if stranded.plan(now_us, is_moving):
        if not vhost.stranding:
            vhost.stranded_generation = vhost.generation
        vhost.stranding[int(queue.number)] = queue
        vhost.timers.add(stranded.retry_us, queue)


def _take_room(queue: Queue, stranded: Stranded) -> None:
    if queue.limits is not None:
        queue.limits.aside = len(stranded.letters)
        queue.limits.octets_aside = stranded.octets


def _send(vhost: VHost, queue: Queue, letter: Letter, now_us: i64) -> str:
    """Give a letter to the queues that it has not reached yet. Returns why it must be kept, "" if all have it."""
    entry = letter.entry
    found = prepare(vhost, queue, entry, letter.reason, letter.died_us)
    left = [target for target in found.route.queues if target not in letter.reached]
    if not left and found.trouble and not letter.reached:
        return found.trouble
    full = _refusing(vhost, found.route.to(left), found.content, now_us)
    if full:
        left = [target for target in left if target not in full]
        vhost.accept(found.route.to(left), found.content, found.persistent, -1, now_us)
        letter.reached += left
        return FULL
    if not _move(vhost, found.route.to(left), found, entry, now_us) and entry.id:
        vhost.log.settle(entry.shelf, entry.id)
    return ""


def _move(vhost: VHost, route: Route, found: Burial, entry: Entry, now_us: i64) -> bool:
    """Deliver. True if the journal's record of the arrivals says also that the message has left its queue."""
    moved = entry if entry.id else None
    return vhost.accept(route, found.content, found.persistent, -1, now_us, moved) == JOURNALLED


def _refusing(vhost: VHost, route: Route, content: bytes, now_us: i64) -> list[Queue]:
    """The queues that refuse a message and do not bury it in their turn."""
    refusing = overflow.refusing_queues(vhost, route, content, now_us)
    return [queue for queue in refusing if queue.limits is not None and not queue.limits.buries]


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
    if route.is_per_message and exchange is not None:
        route.set_queues(vhost.targets(exchange, Envelope(keys, key, content)))
    for requester in route.replies:
        vhost.reply(requester, content, route.key)
    trouble = "" if route.queues or route.replies else "dead letter without a route"
    if reason != "rejected":
        # what waits in between is no circle, as with RabbitMQ's delayed exchanges
        free = [target for target in route.queues if target.is_schedule or not letter.is_in_circle(target.name)]
        if len(free) < len(route.queues):
            trouble = "dead letter cycle"
            route.set_queues(free)
    return Burial(route, content, persistent, trouble)


def _is_persistent(content: bytes) -> bool:
    scan = HeaderScan()
    scan.scan(content, HEADER_AT, HEADER_AT + i64(read_i32_be(content, 3)))
    return scan.delivery_mode == 2
