"""queue.bind, queue.unbind, exchange.bind, exchange.unbind (AMQP 0-9-1 reference; texts as RabbitMQ words them)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.access.access import EXCHANGE, QUEUE, check, check_lead, check_topic
from leveret.broker.access.quotas import check_bindings, check_pattern
from leveret.broker.access.users import READ, WRITE
from leveret.broker.channel import BrokerChannel
from leveret.broker.exchange_types.recent_history import RecentHistory
from leveret.broker.exchanges import routing
from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.route import Route
from leveret.broker.messages.contents import header_of
from leveret.broker.methods.exchange_methods import find, name_of
from leveret.broker.methods.queue_methods import check_owner, fail, last_declared, lookup, not_default
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.ready import ITEM_OCTETS
from leveret.wire import grammar
from leveret.wire.errors import NOT_FOUND, PRECONDITION_FAILED
from leveret.wire.method import Method
from leveret.wire.properties import decode_header

if TYPE_CHECKING:
    from leveret.broker.peer import Peer
    from leveret.broker.vhost import VHost

# size in queues of the history messages that are delivered in one turn
HISTORY_STEP_OCTETS: Final[i64] = 256 << 10


def bind_queue(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """queue.bind: from exchange to queue."""
    name, key = _queue_and_key(channel, method)
    _check(peer, method, QUEUE, name, name_of(method, "exchange"), key)
    source = find(peer, method, name_of(method, "exchange"))
    queue = lookup(peer, name)
    if queue is None:
        raise fail(method, NOT_FOUND, f"no queue '{name}' in vhost '{peer.vhost.name}'")
    is_done = _bind(peer, channel, method, Binding(source, queue, key, method.tables["arguments"]))
    if is_done and not method.flag("no_wait"):
        peer.send(channel.number, grammar.QUEUE_BIND_OK)


def bind_exchange(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """exchange.bind: from source to destination."""
    to, key = name_of(method, "destination"), method.text("routing_key")
    _check(peer, method, EXCHANGE, to, name_of(method, "source"), key)
    source = find(peer, method, name_of(method, "source"))
    destination = find(peer, method, to)
    is_done = _bind(peer, channel, method, Binding(source, destination, key, method.tables["arguments"]))
    if is_done and not method.flag("no_wait"):
        peer.send(channel.number, grammar.EXCHANGE_BIND_OK)


def unbind_queue(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """queue.unbind; succeeds for a binding that does not exist."""
    name, key = _queue_and_key(channel, method)
    _check(peer, method, QUEUE, name, name_of(method, "exchange"), key)
    source = peer.vhost.exchanges.get(name_of(method, "exchange"))
    queue = peer.vhost.queues.get(name)
    if source is not None and queue is not None:
        _unbind(peer, method, Binding(source, queue, key, method.tables["arguments"]))
    peer.send(channel.number, grammar.QUEUE_UNBIND_OK)


def unbind_exchange(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """exchange.unbind; succeeds for a binding that does not exist."""
    to, key = name_of(method, "destination"), method.text("routing_key")
    _check(peer, method, EXCHANGE, to, name_of(method, "source"), key)
    source = peer.vhost.exchanges.get(name_of(method, "source"))
    destination = peer.vhost.exchanges.get(to)
    if source is not None and destination is not None:
        _unbind(peer, method, Binding(source, destination, key, method.tables["arguments"]))
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.EXCHANGE_UNBIND_OK)


def _queue_and_key(channel: BrokerChannel, method: Method) -> tuple[str, str]:
    """Return queue name and routing key. An empty name means the last declared queue; an empty key is then its name."""
    key = method.text("routing_key")
    if method.text("queue") == "":
        name = last_declared(channel, method)
        return name, key or name
    return name_of(method, "queue"), key


def _check(peer: Peer, method: Method, kind: str, name: str, source: str, key: str) -> None:
    """Raise 403 unless the user may route messages with this key from the source to this queue or exchange."""
    check(peer, method, WRITE, kind, name)
    if kind == EXCHANGE:
        not_default(method, name)
    not_default(method, source)
    check(peer, method, READ, EXCHANGE, source)
    check_topic(peer, method, peer.vhost.exchanges.get(source), key)


def _bind(peer: Peer, channel: BrokerChannel, method: Method, binding: Binding) -> bool:
    """Bind. Returns False, and sets peer.is_unfinished, while a part of the source's history is undelivered."""
    history = channel.history_delivery
    if history is None:
        _check_binding(peer, method, binding)
        if peer.vhost.bind(binding):
            history = HistoryDelivery(binding)
    if history is not None:
        is_over = history.go_on(peer.vhost, peer.now_us)
        channel.history_delivery = None if is_over else history
        peer.is_unfinished = not is_over
    if binding.is_durable and not peer.is_unfinished:
        peer.hold_until_synced()
    return not peer.is_unfinished


def _check_binding(peer: Peer, method: Method, binding: Binding) -> None:
    refusal = binding.source.matcher.refusal(binding.key, method.tables["arguments"])
    if refusal:
        raise fail(method, PRECONDITION_FAILED, refusal)
    if isinstance(binding.destination, Queue):
        check_owner(peer, method, binding.destination)
    elif binding.standing() is None:
        check_lead(peer, method, binding.destination.name, None)
    check_bindings(peer, method, binding)
    check_pattern(peer, method, binding)


def _unbind(peer: Peer, method: Method, like: Binding) -> None:
    binding = like.standing()
    if binding is not None:
        if isinstance(binding.destination, Queue):
            check_owner(peer, method, binding.destination)
        peer.vhost.unbind(binding)
    if like.is_durable:
        # the connection that removed it first may still be waiting for the disk
        peer.hold_until_synced()


class HistoryDelivery:
    """Delivery of a recent-history exchange's messages to a newly bound destination, a part in each turn.

    A destination exchange gets the newest message first. Times to live begin at delivery. A message that no queue takes
    is no error (in RabbitMQ it is an internal one).
    """

    def __init__(self, binding: Binding) -> None:
        self._source = binding.source
        self._destination = binding.destination
        matcher = binding.source.matcher
        # in reverse order: `pop` takes the next one
        self._left = list(matcher.history) if isinstance(matcher, RecentHistory) else []
        if isinstance(binding.destination, Queue):
            self._left.reverse()

    def go_on(self, vhost: VHost, now_us: i64) -> bool:
        """Deliver as many as one turn may; return True if none is left."""
        left = HISTORY_STEP_OCTETS
        while self._left and left > 0:
            envelope = self._left.pop()
            to = self._destination
            queues = [to] if isinstance(to, Queue) else routing.targets(vhost, to, envelope)
            left -= i64(len(envelope.content)) + ITEM_OCTETS * (1 + len(queues))
            route = Route(vhost.generation, envelope.key, self._source, envelope.keys)
            route.set_queues(queues)
            if queues:
                properties, _ = decode_header(header_of(envelope.content))
                ttl_us = -1 if properties.expiration is None else int(properties.expiration) * 1000
                vhost.accept(route, envelope.content, properties.delivery_mode == 2, ttl_us, now_us)
        return not self._left
