"""Dead lettering: a message that dies in its queue goes to the queue's dead letter exchange, or is dropped.

Queues with x-dead-letter-strategy=at-least-once and levels of delay layouts drop no dead letter: see undeliverable.py.
For lookups that take several turns see slow_dead_letters.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.broker.dead_letters.death_history import DeathHistory
from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchanges import routing
from leveret.broker.exchanges.route import Route
from leveret.broker.messages.carbon_copies import blind_keys, is_claimed, keys_in, split_key
from leveret.broker.messages.contents import HEADER_AT
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.returned import published_content
from leveret.broker.queues import overflow
from leveret.broker.queues.queue import Queue
from leveret.session.confirms import JOURNALLED
from leveret.session.connection import Unfinished
from leveret.wire.errors import ProtocolError
from leveret.wire.scan import HeaderScan
from leveret.wire.table import encode_short

if TYPE_CHECKING:
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.exchanges.lookup import Seeker
    from leveret.broker.vhost import VHost

FULL: Final = "dead letter refused by a full queue"


class Destined:
    """A dead letter and its route."""

    def __init__(self, route: Route, content: bytes, persistent: bool, trouble: str) -> None:
        self.route = route  # its queues, without those that would close a cycle
        self.content = content
        self.persistent = persistent
        self.trouble = trouble  # why it reaches no queue, or not all of them; "" = it reaches all


class DeadLetterAddress:
    """The exchange and routing keys of a dead letter, and its content."""

    def __init__(
        self, exchange: Exchange | None, key: bytes, keys: list[str], content: bytes, history: DeathHistory
    ) -> None:
        self.exchange = exchange  # None = the default exchange
        self.key = key  # key, keys: as in a Route
        self.keys = keys
        self.content = content
        self.history = history  # its deaths, including this one


class DeadLetter:
    """A dead letter: the entry, why and when it died."""

    def __init__(self, entry: Entry, reason: str, died_us: i64, reached: list[Queue]) -> None:
        self.entry = entry
        self.reason = reason
        self.died_us = died_us
        self.reached = reached  # the queues that have it already, while others refuse it


def dead_letter(vhost: VHost, queue: Queue, entry: Entry, reason: str, now_us: i64) -> None:
    """Dead-letter an entry that was taken out of its queue; drop it if the queue has no dead letter exchange.

    now_us: when it died; its time to live in the next queue starts then.
    """
    undeliverable, slow = queue.undeliverable, vhost.slow_dead_letters
    is_late = queue.dead_letter_exchange is not None and vhost.share.arrivals < 0
    if queue.is_dead_lettering_slowly or is_late:
        slow.take(queue, DeadLetter(entry, reason, now_us, []), now_us)
        return
    try:
        if not queue.keeps_undeliverable or undeliverable is None:
            give(vhost, queue, entry, reason, now_us, slow.probe)
            return
        dead_letter = DeadLetter(entry, reason, now_us, [])
        waits = vhost.undeliverable_retry.is_on_its_way(undeliverable, entry, reason)
        trouble = "" if waits else send(vhost, queue, dead_letter, now_us, slow.probe)
        if waits or trouble:
            vhost.undeliverable_retry.keep(queue, undeliverable, dead_letter, trouble, now_us)
    except Unfinished:
        slow.probe.give_up()
        slow.take(queue, DeadLetter(entry, reason, now_us, []), now_us)


def give(vhost: VHost, queue: Queue, entry: Entry, reason: str, now_us: i64, seeker: Seeker) -> None:
    """Send an entry to the queue's dead letter exchange, or drop it if the queue has none.

    Raises Unfinished, with nothing done, if its lookup takes several turns.
    """
    is_moved = False
    if queue.dead_letter_exchange is not None:
        found = prepare(vhost, queue, entry, reason, now_us, seeker)
        if found.trouble:
            vhost.discard(queue, found.trouble)
        for _ in _refusing(vhost, found.route, found.content, now_us):
            vhost.discard(queue, FULL)
        is_moved = _move(vhost, found.route, found, entry, now_us)
    if entry.id and not is_moved:
        vhost.log.settle(entry.message_list, entry.id)


def send(vhost: VHost, queue: Queue, dead_letter: DeadLetter, now_us: i64, seeker: Seeker) -> str:
    """Send a dead letter to the queues that do not have it yet. Returns why it must be kept; "" if all queues have it.

    Raises Unfinished, with nothing done, if its lookup takes several turns.
    """
    entry = dead_letter.entry
    found = prepare(vhost, queue, entry, dead_letter.reason, dead_letter.died_us, seeker)
    route = found.route
    if dead_letter.reached:
        route = route.to([target for target in route.queues if target not in dead_letter.reached])
    elif found.trouble and not route.queues:
        return found.trouble
    if _is_onward(route):
        now_us = dead_letter.died_us  # its delay starts at its death, however long it was kept
    full = _refusing(vhost, route, found.content, now_us)
    if full:
        taking = [target for target in route.queues if target not in full]
        vhost.accept(route.to(taking), found.content, found.persistent, -1, now_us)
        dead_letter.reached += taking
        return FULL
    if not _move(vhost, route, found, entry, now_us) and entry.id:
        vhost.log.settle(entry.message_list, entry.id)
    return ""


def _is_onward(route: Route) -> bool:
    """Return whether a delayed message goes to levels of its delay layout only."""
    return all(target.level is not None for target in route.queues)


def _move(vhost: VHost, route: Route, found: Destined, entry: Entry, now_us: i64) -> bool:
    """Deliver a dead letter. Returns True if the journal record of its arrival covers its leaving the old queue."""
    moved = entry if entry.id else None
    return vhost.accept(route, found.content, found.persistent, -1, now_us, moved) == JOURNALLED


def _refusing(vhost: VHost, route: Route, content: bytes, now_us: i64) -> list[Queue]:
    """Return the queues that refuse a message, without those that dead-letter it (reject-publish-dlx)."""
    refusing = overflow.refusing_queues(vhost, route, content, now_us)
    return [queue for queue in refusing if queue.limits is not None and not queue.limits.dead_letters_refused]


def prepare(vhost: VHost, queue: Queue, entry: Entry, reason: str, now_us: i64, seeker: Seeker) -> Destined:
    """Add this death to the message's headers and find its queues. Direct replies are delivered here."""
    exchange = vhost.exchanges.get(queue.dead_letter_exchange or "")
    if exchange is None and queue.dead_letter_exchange:
        return _nowhere(vhost, entry, "dead letter exchange missing")
    try:
        return _addressed(vhost, exchange, queue, entry, reason, now_us, seeker)
    except ProtocolError:
        # Its headers were not checked before, and the consumer that rejects it is not to blame. Without its x-death
        # history it might go round in a cycle for ever.
        return _nowhere(vhost, entry, "dead letter with malformed headers")


def _nowhere(vhost: VHost, entry: Entry, trouble: str) -> Destined:
    return Destined(Route(vhost.generation, entry.key, None, []), b"", False, trouble)


def _addressed(
    vhost: VHost, exchange: Exchange | None, queue: Queue, entry: Entry, reason: str, now_us: i64, seeker: Seeker
) -> Destined:
    found = addressed(vhost, exchange, queue, entry, reason, now_us)
    persistent = _is_persistent(published_content(entry))
    keys, key, content, history = found.keys, found.key, found.content, found.history
    route = routing.find(vhost, exchange, key, keys, seeker)
    if route.is_per_message and exchange is not None:
        route.set_queues(routing.targets(vhost, exchange, Envelope(keys, key, content), seeker))
    for requester in route.replies:
        vhost.reply(requester, content, route.key)
    trouble = "" if route.queues or route.replies else "dead letter without a route"
    free = [target for target in route.queues if not is_cut(history, reason, target)]
    if len(free) < len(route.queues):
        trouble = "dead letter cycle"
        route.set_queues(free)
    if len(free) > 1:
        vhost.share.arrivals -= len(free)
    return Destined(route, content, persistent, trouble)


def is_cut(history: DeathHistory, reason: str, target: Queue) -> bool:
    """Return whether a dead letter is kept from this queue, in which it has died before, to break an endless cycle.

    A delayed exchange's queue does not count, as with RabbitMQ's plugin.
    """
    return reason != "rejected" and not target.is_schedule and history.is_in_circle(target.name)


def addressed(
    vhost: VHost, exchange: Exchange | None, queue: Queue, entry: Entry, reason: str, now_us: i64
) -> DeadLetterAddress:
    """Return the content, with this death in its headers, and the address of an entry that dies in a queue now.

    Has no effect yet. Raises ProtocolError if its headers are malformed.
    """
    claimed = is_claimed(entry.key)
    content = published_content(entry)
    history = DeathHistory(content, claimed)
    old_exchange, old_key = split_key(entry.key)
    keys = [old_key, *keys_in("CC", history.cc)]
    history.die(queue.name, reason, old_exchange, keys, int(vhost.timeline.wall_us(now_us)))
    key = encode_short(exchange.name if exchange else "")
    if queue.dead_letter_key is None:
        keys += blind_keys(entry.key)
        key += entry.key[1 + entry.key[0] : len(entry.key) - claimed]
    else:
        keys = [queue.dead_letter_key]
        key += encode_short(queue.dead_letter_key)
        history.without_cc()
    return DeadLetterAddress(exchange, key, keys, history.content(), history)


def _is_persistent(content: bytes) -> bool:
    scan = HeaderScan()
    scan.scan(content, HEADER_AT, HEADER_AT + i64(read_i32_be(content, 3)))
    return scan.delivery_mode == 2
