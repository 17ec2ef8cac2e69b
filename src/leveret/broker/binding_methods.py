"""queue.bind, queue.unbind, exchange.bind, exchange.unbind (AMQP 0-9-1 reference; texts as RabbitMQ words them)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker import routing
from leveret.broker.access import EXCHANGE, QUEUE, check, check_lead, check_topic
from leveret.broker.binding import Binding
from leveret.broker.channel import BrokerChannel
from leveret.broker.contents import header_of
from leveret.broker.exchange import Exchange
from leveret.broker.exchange_methods import find, name_of
from leveret.broker.exchange_types.recent_history import RecentHistory
from leveret.broker.queue import Queue
from leveret.broker.queue_methods import check_owner, fail, last_declared, lookup, not_default
from leveret.broker.quotas import check_bindings, check_pattern
from leveret.broker.route import Route
from leveret.broker.users import READ, WRITE
from leveret.wire import grammar
from leveret.wire.errors import NOT_FOUND, PRECONDITION_FAILED
from leveret.wire.method import Method
from leveret.wire.properties import decode_header

if TYPE_CHECKING:
    from leveret.broker.peer import Peer
    from leveret.broker.vhost import VHost


def bind_queue(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """queue.bind: from exchange to queue."""
    name, key = _queue_and_key(channel, method)
    _check(peer, method, QUEUE, name, name_of(method, "exchange"), key)
    source = find(peer, method, name_of(method, "exchange"))
    queue = lookup(peer, name)
    if queue is None:
        raise fail(method, NOT_FOUND, f"no queue '{name}' in vhost '{peer.vhost.name}'")
    _bind(peer, method, Binding(source, queue, key, method.tables["arguments"]))
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.QUEUE_BIND_OK)


def bind_exchange(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """exchange.bind: from source to destination."""
    to, key = name_of(method, "destination"), method.text("routing_key")
    _check(peer, method, EXCHANGE, to, name_of(method, "source"), key)
    source = find(peer, method, name_of(method, "source"))
    destination = find(peer, method, to)
    _bind(peer, method, Binding(source, destination, key, method.tables["arguments"]))
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.EXCHANGE_BIND_OK)


def unbind_queue(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """queue.unbind; removing what is not there succeeds."""
    name, key = _queue_and_key(channel, method)
    _check(peer, method, QUEUE, name, name_of(method, "exchange"), key)
    source = peer.vhost.exchanges.get(name_of(method, "exchange"))
    queue = peer.vhost.queues.get(name)
    if source is not None and queue is not None:
        _unbind(peer, method, Binding(source, queue, key, method.tables["arguments"]))
    peer.send(channel.number, grammar.QUEUE_UNBIND_OK)


def unbind_exchange(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """exchange.unbind; removing what is not there succeeds."""
    to, key = name_of(method, "destination"), method.text("routing_key")
    _check(peer, method, EXCHANGE, to, name_of(method, "source"), key)
    source = peer.vhost.exchanges.get(name_of(method, "source"))
    destination = peer.vhost.exchanges.get(to)
    if source is not None and destination is not None:
        _unbind(peer, method, Binding(source, destination, key, method.tables["arguments"]))
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.EXCHANGE_UNBIND_OK)


def _queue_and_key(channel: BrokerChannel, method: Method) -> tuple[str, str]:
    """An empty queue name means the queue declared last; with an empty routing key this, too, is the queue's name."""
    key = method.text("routing_key")
    if method.text("queue") == "":
        name = last_declared(channel, method)
        return name, key or name
    return name_of(method, "queue"), key


def _check(peer: Peer, method: Method, kind: str, name: str, source: str, key: str) -> None:
    """403 unless the user may have messages with this key go from the source to the queue or exchange of this name."""
    check(peer, method, WRITE, kind, name)
    if kind == EXCHANGE:
        not_default(method, name)
    not_default(method, source)
    check(peer, method, READ, EXCHANGE, source)
    check_topic(peer, method, peer.vhost.exchanges.get(source), key)


def _bind(peer: Peer, method: Method, binding: Binding) -> None:
    refusal = binding.source.matcher.refusal(binding.key, method.tables["arguments"])
    if refusal:
        raise fail(method, PRECONDITION_FAILED, refusal)
    if isinstance(binding.destination, Queue):
        check_owner(peer, method, binding.destination)
    elif binding.standing() is None:
        check_lead(peer, method, binding.destination.name, None)
    check_bindings(peer, method, binding)
    check_pattern(peer, method, binding)
    if peer.vhost.bind(binding):
        deliver_history(peer.vhost, binding, peer.now_us)
    if binding.is_durable:
        peer.hold_until_synced()


def _unbind(peer: Peer, method: Method, like: Binding) -> None:
    binding = like.standing()
    if binding is not None:
        if isinstance(binding.destination, Queue):
            check_owner(peer, method, binding.destination)
        peer.vhost.unbind(binding)
    if like.is_durable:
        # who removed it first may still be waiting for the disk
        peer.hold_until_synced()


def deliver_history(vhost: VHost, binding: Binding, now_us: i64) -> None:
    """What a recent-history exchange has kept goes to its new destination; an exchange gets the newest first.

    Their times to live begin now. That no queue takes one of them is no error (in RabbitMQ an internal one).
    """
    matcher = binding.source.matcher
    if not isinstance(matcher, RecentHistory):
        return
    destination = binding.destination
    history = list(matcher.history)
    if isinstance(destination, Exchange):
        history.reverse()
    for envelope in history:
        queues = routing.targets(vhost, destination, envelope) if isinstance(destination, Exchange) else [destination]
        route = Route(vhost.generation, envelope.key, binding.source, envelope.keys)
        route.set_queues(queues)
        if queues:
            properties, _ = decode_header(header_of(envelope.content))
            ttl_us = -1 if properties.expiration is None else int(properties.expiration) * 1000
            vhost.accept(route, envelope.content, properties.delivery_mode == 2, ttl_us, now_us)
