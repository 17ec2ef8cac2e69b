"""exchange.*: declare, delete, bind, unbind (AMQP 0-9-1 reference; texts as RabbitMQ words them)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.arguments import invalid_type
from leveret.broker.channel import BrokerChannel
from leveret.broker.delay import DELAYED, DELAYED_TYPE
from leveret.broker.exchange import KINDS, Exchange
from leveret.broker.queue_methods import fail, inequivalent, inequivalent_argument, not_default
from leveret.wire import grammar
from leveret.wire.errors import ACCESS_REFUSED, COMMAND_INVALID, NOT_FOUND, PRECONDITION_FAILED
from leveret.wire.method import Method

if TYPE_CHECKING:
    from leveret.broker.peer import Peer


def find(peer: Peer, method: Method, name: str) -> Exchange:
    """The exchange of this name, or 404."""
    exchange = peer.vhost.exchanges.get(name)
    if exchange is None:
        raise fail(method, NOT_FOUND, f"no exchange '{name}' in vhost '{peer.vhost.name}'")
    return exchange


def declare(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """exchange.declare"""
    name = method.text("exchange").replace("\r", "").replace("\n", "")
    vhost = peer.vhost
    exchange = vhost.exchanges.get(name)
    if method.flag("passive"):
        if name:
            find(peer, method, name)
        else:
            not_default(method, name)
    else:
        kind = method.text("type")
        _check_type(method, kind)
        not_default(method, name)
        if exchange is not None:
            _check_same(peer, method, exchange)
            if exchange.durable:
                peer.hold_until_synced()
        else:
            if name.startswith("amq."):
                raise fail(method, ACCESS_REFUSED, f"exchange name '{name}' contains reserved prefix 'amq.*'")
            alternate = method.table("arguments").get("alternate-exchange", "")
            if not isinstance(alternate, str):
                text = invalid_type("alternate-exchange", alternate, f"exchange '{name}' in vhost '{vhost.name}'")
                raise fail(method, PRECONDITION_FAILED, text)
            if kind == DELAYED:
                _check_delayed_type(method)
            flags = [method.flag(flag) for flag in ("durable", "auto_delete", "internal")]
            vhost.add_exchange(Exchange(name, kind, flags[0], flags[1], flags[2], method.table("arguments")))
            if flags[0]:
                peer.hold_until_synced()
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.EXCHANGE_DECLARE_OK)


def _check_type(method: Method, kind: str) -> None:
    if kind not in KINDS:
        what = "unknown" if kind else "invalid"
        raise fail(method, COMMAND_INVALID, f"{what} exchange type '{kind}'")


def _check_delayed_type(method: Method) -> None:
    """The type by whose rules a delayed exchange routes in the end; the texts are those of RabbitMQ's plugin."""
    kind = method.table("arguments").get(DELAYED_TYPE)
    if not isinstance(kind, str):
        text = f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type"
        raise fail(method, PRECONDITION_FAILED, text)
    if kind == DELAYED:
        raise fail(method, PRECONDITION_FAILED, f"Invalid argument, '{DELAYED}' can't be used for '{DELAYED_TYPE}'")
    _check_type(method, kind)


def _check_same(peer: Peer, method: Method, exchange: Exchange) -> None:
    what = f"exchange '{exchange.name}' in vhost '{peer.vhost.name}'"
    if method.text("type") != exchange.kind:
        raise inequivalent(method, "type", what, method.text("type"), exchange.kind)
    for flag, current in (
        ("durable", exchange.durable),
        ("auto_delete", exchange.auto_delete),
        ("internal", exchange.internal),
    ):
        if method.flag(flag) != current:
            raise inequivalent(method, flag, what, str(method.flag(flag)).lower(), str(current).lower())
    inequivalent_argument(method, ("alternate-exchange",), what, exchange.arguments)


def delete(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """exchange.delete; deleting what is not there succeeds."""
    name = method.text("exchange")
    not_default(method, name)
    if name.startswith("amq."):
        text = f"deletion of system exchange '{name}' in vhost '{peer.vhost.name}' not allowed"
        raise fail(method, ACCESS_REFUSED, text)
    exchange = peer.vhost.exchanges.get(name)
    if exchange is not None:
        if method.flag("if_unused") and exchange.outgoing:
            raise fail(method, PRECONDITION_FAILED, f"exchange '{name}' in vhost '{peer.vhost.name}' in use")
        peer.vhost.delete_exchange(exchange)
    if exchange is None or exchange.durable:
        peer.hold_until_synced()
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.EXCHANGE_DELETE_OK)


def bind(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """exchange.bind: from source to destination."""
    not_default(method, method.text("source"))
    not_default(method, method.text("destination"))
    source = find(peer, method, method.text("source"))
    destination = find(peer, method, method.text("destination"))
    peer.vhost.bind(source, destination, method.text("routing_key"), method.table("arguments"))
    if source.durable and destination.durable:
        peer.hold_until_synced()
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.EXCHANGE_BIND_OK)


def unbind(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """exchange.unbind; removing what is not there succeeds."""
    not_default(method, method.text("source"))
    not_default(method, method.text("destination"))
    vhost = peer.vhost
    source = vhost.exchanges.get(method.text("source"))
    destination = vhost.exchanges.get(method.text("destination"))
    if source is not None and destination is not None:
        binding = vhost.find_binding(source, destination, method.text("routing_key"), method.table("arguments"))
        if binding is not None:
            vhost.unbind(binding)
        if binding is None or binding.is_durable:
            peer.hold_until_synced()
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.EXCHANGE_UNBIND_OK)
