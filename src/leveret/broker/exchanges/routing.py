"""Routing: which queues a message reaches through bindings, other exchanges and alternate exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.delayed.delay import delay_us_of
from leveret.broker.exchange_types.deduplication import Deduplication
from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.recent_history import RecentHistory
from leveret.broker.exchanges.route import QUEUES_MAX, Route
from leveret.broker.names import REPLY_PREFIX
from leveret.broker.queues.queue import Queue
from leveret.session.confirms import HANDLED, JOURNALLED, SYNCING
from leveret.wire.errors import NOT_IMPLEMENTED, ProtocolError

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.exchanges.lookup import Seeker
    from leveret.broker.messages.carbon_copies import CarbonCopies
    from leveret.broker.vhost import VHost

# what the route of a message depends on, from one exchange on
KEYS: Final[i64] = 0  # its keys only
HOPS: Final[i64] = 1  # its keys, and the links that it has come over
CONTENT: Final[i64] = 2  # more
# bindings, or words of patterns, that are examined in one turn: a millisecond or two
WORK_MAX: Final[i64] = 16_384
# the cost of an exchange in bindings
EXCHANGE_WORK: Final[i64] = 1
# the generation of a route that is valid for one message only
STALE: Final[i64] = -1
# cached routes of messages from other brokers, for one exchange and routing key
TRAVELLED_MAX: Final = 64
# if a message may reach more exchanges, each message is looked up by itself, which is always right
EXCHANGES_MAX: Final = 4096


def find(vhost: VHost, exchange: Exchange | None, key: bytes, keys: list[str], seeker: Seeker | None = None) -> Route:
    """Return a new route for an exchange (None: the default exchange) and routing keys, several of them with CC or BCC.

    With a seeker, this and the functions below raise Unfinished if the lookup takes several turns.
    """
    route = Route(vhost.generation, key, exchange, keys)
    if exchange is None:
        route.is_per_message = vhost.tracing is not None
        found: dict[str, Queue] = {}
        for name in keys:
            if name in vhost.queues:
                found[name] = vhost.queues[name]
            elif name in vhost.replies and vhost.replies[name] not in route.replies:
                route.replies.append(vhost.replies[name])
            elif name.startswith(REPLY_PREFIX) and name not in vhost.replies:
                route.lost_replies += 1
        route.set_queues(list(found.values()))
    else:
        _lead(vhost, route, exchange, CONTENT if vhost.tracing is not None else _look(vhost, exchange, True), seeker)
    if len(route.queues) > QUEUES_MAX:
        route.is_wide = route.is_per_message = True
    return route


def onward(vhost: VHost, exchange: Exchange, key: bytes, keys: list[str], seeker: Seeker) -> Route:
    """Return the route of messages that the delayed exchange has held, and that no exchange will hold again."""
    route = Route(vhost.generation, key, exchange, keys)
    _lead(vhost, route, exchange, _look(vhost, exchange, False), seeker)
    return route


def copied(vhost: VHost, route: Route, found: CarbonCopies, seeker: Seeker) -> Route:
    """Return the route of a message with CC or BCC."""
    keys = [route.keys[0], *found.cc, *found.bcc]
    copied = find(vhost, route.exchange, found.kept_key(route.key), keys, seeker)
    copied.demand(route.is_mandatory)
    copied.is_repeatable = False
    if copied.plain is not None:
        copied.plain.is_repeatable = False
    return copied


def _lead(vhost: VHost, route: Route, exchange: Exchange, look: i64, seeker: Seeker | None) -> None:
    route.is_per_message = look != KEYS
    if look == CONTENT:
        return
    queues = targets(vhost, exchange, Envelope(route.keys, route.key, b""), seeker)
    if seeker is not None and seeker.is_stale:
        route.generation = STALE
    if look == HOPS:
        route.plain = route.to(queues)
    else:
        route.set_queues(queues)


def _look(vhost: VHost, exchange: Exchange, may_wait: bool) -> i64:
    """Return what a message's route from this exchange on depends on: KEYS, HOPS or CONTENT."""
    if exchange.name in vhost.plain:
        return KEYS
    if may_wait and exchange.name in vhost.hop_bound:
        return HOPS  # avoids the search: a link may have bound it by very many keys
    look = KEYS
    start = exchange
    seen = {exchange.name}
    todo = [exchange]
    while todo:
        exchange = todo.pop()
        if exchange.matcher.is_hop_bound:
            look = HOPS
        elif exchange.matcher.is_per_message or (may_wait and exchange.schedule is not None):
            return CONTENT
        following = [onward.name for onward in exchange.onward]
        if exchange.alternate in vhost.exchanges:
            following.append(exchange.alternate)
        for name in following:
            if name not in seen:
                seen.add(name)
                todo.append(vhost.exchanges[name])
        if len(seen) > EXCHANGES_MAX:
            return CONTENT
    if may_wait:
        (vhost.plain if look == KEYS else vhost.hop_bound).add(start.name)
    return look


def look(vhost: VHost, route: Route, content: bytes, is_staged: bool, seeker: Seeker) -> i64:
    """Find the queues for one message of a route that is_per_message. Returns the state of its confirm so far.

    Raises 540 if it is_staged and an exchange with a recent history would show it at once, or one that deduplicates
    would keep its key.
    """
    if route.published != 0:
        vhost.tally.count_publishes()  # for the queues of the messages before
    if route.exchange is None or route.is_wide:
        return HANDLED
    log = vhost.log
    events = log.events
    if seeker.is_idle:
        seeker.batch = -1
    envelope = Envelope(route.keys, route.key, content)
    envelope.is_staged = is_staged
    route.set_queues(targets(vhost, route.exchange, envelope, seeker))
    if log.events != events or seeker.batch == log.batch:
        return JOURNALLED  # a recent history has recorded it
    if envelope.is_duplicate:
        return log.standing()  # the first copy may not be on disk yet
    return SYNCING if log.synced < seeker.batch else HANDLED


def travelled(vhost: VHost, route: Route, hops: bytes, content: bytes, seeker: Seeker) -> Route:
    """Return the route of a message with these encoded hops, on which exchanges look at hops only.

    It is cached, because most messages come over the same few links.
    """
    found = route.travelled.get(hops)
    if found is None:
        assert route.exchange is not None
        found = route.to(targets(vhost, route.exchange, Envelope(route.keys, route.key, content), seeker))
        if len(route.travelled) >= TRAVELLED_MAX:
            route.travelled.clear()
        if not seeker.is_stale:
            route.travelled[hops] = found
    return found


def targets(vhost: VHost, exchange: Exchange, envelope: Envelope, seeker: Seeker | None = None) -> list[Queue]:
    """Return the queues that a message reaches from an exchange, each once, and the schedules that hold it.

    After Unfinished, ask for the same again.
    """
    if seeker is not None and not seeker.is_idle:
        known = seeker.found(exchange, envelope)
        if known is not None:
            return known
    start = exchange
    left = WORK_MAX if seeker is None else max(seeker.share.left, seeker.share.least)
    if seeker is not None:
        seeker.share.left -= left
    found: dict[str, Queue] = {}
    waits: list[Queue] = []
    seen = {exchange.name}
    todo = [exchange]
    while todo:
        exchange = todo.pop()
        if seeker is not None:
            work = EXCHANGE_WORK + exchange.matcher.weight(envelope)
            left -= work
            if left < 0:
                todo.append(exchange)
                seeker.share.left += left + work
                seeker.begin(vhost, start, envelope, found, waits, [], seen, todo)
        if stays(vhost, exchange, envelope, waits):
            continue
        bindings = exchange.matcher.match(envelope)
        if exchange.history is not None and exchange.history.news is not None:
            vhost.log.declared(exchange.history.news.record(vhost.name, exchange.name))
            if seeker is not None:
                seeker.batch = vhost.log.batch
        fall_back(vhost, exchange, bindings, seen, todo)
        left -= len(bindings)
        if seeker is not None and left < 0:
            seeker.share.left += left
            seeker.begin(vhost, start, envelope, found, waits, bindings, seen, todo)
        follow(bindings, found, seen, todo)
    if seeker is not None:
        seeker.share.left += left
    return [*found.values(), *waits]


def stays(vhost: VHost, exchange: Exchange, envelope: Envelope, waits: list[Queue]) -> bool:
    """Whether this exchange's schedule holds a message. Raises 540 if the exchange does not take staged messages."""
    if exchange.schedule is not None and holds_us(exchange, envelope) > 0:
        waits.append(exchange.schedule)
        return True
    if envelope.is_staged and isinstance(exchange.matcher, RecentHistory):
        text = f"exchange '{exchange.name}' in vhost '{vhost.name}' keeps a history and does not accept staged messages"
        raise ProtocolError(NOT_IMPLEMENTED, text, 60, 40)
    if envelope.is_staged and isinstance(exchange.matcher, Deduplication):
        # a stage that is given up would leave keys behind, and its repetition would lose its messages
        text = f"exchange '{exchange.name}' in vhost '{vhost.name}' deduplicates and does not accept staged messages"
        raise ProtocolError(NOT_IMPLEMENTED, text, 60, 40)
    return False


def fall_back(vhost: VHost, exchange: Exchange, bindings: list[Binding], seen: set[str], todo: list[Exchange]) -> None:
    """Follow the alternate exchange if none of the exchange's bindings takes the message."""
    alternate = alternate_of(vhost, exchange) if not bindings else None
    if alternate is not None and alternate.name not in seen:
        seen.add(alternate.name)
        todo.append(alternate)


def holds_us(exchange: Exchange, envelope: Envelope) -> i64:
    """Return how long a delayed exchange holds a message in microseconds, 0 = not at all."""
    if exchange.schedule is None or not envelope.content:
        return 0
    return delay_us_of(envelope.content)


def alternate_of(vhost: VHost, exchange: Exchange) -> Exchange | None:
    """Return the alternate exchange, or None."""
    return vhost.exchanges.get(exchange.alternate) if exchange.alternate else None


def follow(bindings: list[Binding], found: dict[str, Queue], seen: set[str], todo: list[Exchange]) -> None:
    """Follow these bindings to queues, and to exchanges that the message has not reached before."""
    for binding in bindings:
        destination = binding.destination
        if isinstance(destination, Queue):
            found[destination.name] = destination
        elif destination.name not in seen:
            seen.add(destination.name)
            todo.append(destination)
