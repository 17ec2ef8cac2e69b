"""exchange.*: declare, delete (AMQP 0-9-1 reference; texts as RabbitMQ words them)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.access.access import EXCHANGE, check, check_onward
from leveret.broker.access.quotas import check_exchanges
from leveret.broker.access.users import CONFIGURE
from leveret.broker.channel import BrokerChannel
from leveret.broker.delayed.delay import DELAYED, DELAYED_TYPE
from leveret.broker.exchange_types.exchange_arguments import (
    ALTERNATE,
    EXCHANGE_ARGUMENT_NAMES,
    FEDERATION_UPSTREAM,
    MAX_HOPS,
    refused_exchange,
)
from leveret.broker.exchange_types.federation_upstream import hops_of
from leveret.broker.exchange_types.table import KINDS
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.methods.queue_methods import compare_arguments, fail, inequivalent, not_default
from leveret.broker.terms import shown, text_of, type_of
from leveret.wire import grammar
from leveret.wire.errors import ACCESS_REFUSED, COMMAND_INVALID, NOT_FOUND, PRECONDITION_FAILED
from leveret.wire.method import Method
from leveret.wire.table import split_table

if TYPE_CHECKING:
    from leveret.broker.peer import Peer
    from leveret.broker.vhost import VHost


def name_of(method: Method, field: str) -> str:
    """Return a name without line ends: RabbitMQ removes them in declare, bind and delete, not in publish."""
    return method.text(field).replace("\r", "").replace("\n", "")


def find(peer: Peer, method: Method, name: str) -> Exchange:
    """Return the exchange of this name; raise 404 if it does not exist."""
    exchange = peer.vhost.exchanges.get(name)
    if exchange is None:
        raise fail(method, NOT_FOUND, f"no exchange '{name}' in vhost '{peer.vhost.name}'")
    return exchange


def declare(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """exchange.declare; a passive one checks the name only."""
    name = name_of(method, "exchange")
    if not method.flag("passive"):
        check_type(method, method.text("type"), True)
    not_default(method, name)
    exchange = peer.vhost.exchanges.get(name)
    if method.flag("passive"):
        find(peer, method, name)
    else:
        check(peer, method, CONFIGURE, EXCHANGE, name)
        if exchange is not None:
            _check_same(peer, method, exchange)
        else:
            _create(peer, method, name)
        if method.flag("durable"):
            # the connection that declared it first may still be waiting for the disk
            peer.hold_until_synced()
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.EXCHANGE_DECLARE_OK)


def check_type(method: Method, kind: str, may_delay: bool) -> None:
    """Raise 503 (command invalid) for an unknown exchange type. may_delay: the delayed type is allowed."""
    if kind not in KINDS and not (may_delay and kind == DELAYED):
        what = "unknown" if kind else "invalid"
        raise fail(method, COMMAND_INVALID, f"{what} exchange type '{kind}'")


def _create(peer: Peer, method: Method, name: str) -> None:
    if name.startswith("amq."):
        raise fail(method, ACCESS_REFUSED, f"exchange name '{name}' contains reserved prefix 'amq.*'")
    onward = method.table("arguments").get(ALTERNATE)
    if isinstance(onward, str):
        check_onward(peer, method, EXCHANGE, name, onward, None)
    check_new(peer.vhost.name, method, name)
    check_exchanges(peer, method, name)
    create(peer.vhost, method, name).user = peer.user


def create(vhost: VHost, method: Method, name: str) -> Exchange:
    """Add the exchange of an exchange.declare that has been checked."""
    durable, auto_delete, internal = (method.flag(flag) for flag in ("durable", "auto_delete", "internal"))
    kind, arguments = method.text("type"), method.table("arguments")
    vhost.strangers.look(arguments, EXCHANGE_ARGUMENT_NAMES, "exchange", name)
    return vhost.add_exchange(name, kind, durable, auto_delete, internal, arguments)


def check_new(vhost: str, method: Method, name: str) -> None:
    """Raise 406 if the arguments of an exchange.declare are invalid, 503 for an unknown x-delayed-type."""
    kind = method.text("type")
    _check_arguments(vhost, method, name, kind)
    if kind == DELAYED:
        kind = str(method.table("arguments")[DELAYED_TYPE])
        check_type(method, kind, False)
        _check_arguments(vhost, method, name, kind)


def _check_arguments(vhost: str, method: Method, name: str, kind: str) -> None:
    refused = refused_exchange(kind, method.tables["arguments"], f"exchange '{name}' in vhost '{vhost}'")
    if refused:
        raise fail(method, PRECONDITION_FAILED, refused)


def _alternate(method: Method) -> bytes | None:
    return dict(split_table(method.tables["arguments"])).get(ALTERNATE.encode())


def _check_same(peer: Peer, method: Method, exchange: Exchange) -> None:
    """Raise 406 if the declaration differs in type, flags or alternate exchange; other arguments are not compared."""
    what = f"exchange '{exchange.name}' in vhost '{peer.vhost.name}'"
    if method.text("type") != exchange.kind:
        raise inequivalent(method, "type", what, _atom(method.text("type")), _atom(exchange.kind))
    for flag, current in (
        ("durable", exchange.durable),
        ("auto_delete", exchange.auto_delete),
        ("internal", exchange.internal),
    ):
        if method.flag(flag) != current:
            raise inequivalent(method, flag, what, str(method.flag(flag)).lower(), str(current).lower())
    if exchange.kind == FEDERATION_UPSTREAM:
        # as in RabbitMQ, this argument is compared and no other
        compare_arguments(method, what, (MAX_HOPS,), {MAX_HOPS: hops_of(exchange.arguments)})
        return
    given, declared = _alternate(method), exchange.arguments.get(ALTERNATE)
    now = declared if isinstance(declared, str) else None
    if now is None and given is None:
        return
    if now is None or given is None:
        received = "none" if given is None else f"the value '{_plain(given)}' of type '{type_of(given)}'"
        current_text = "none" if now is None else f"the value '{now}' of type 'longstr'"
    elif text_of(given) == now.encode("utf-8", "surrogateescape"):
        return
    else:
        received, current_text = "none" if given[:1] == b"V" else f"'{_plain(given)}'", f"'{now}'"
    text = f"inequivalent arg '{ALTERNATE}' for {what}: received {received} but current is {current_text}"
    raise fail(method, PRECONDITION_FAILED, text)


def _atom(kind: str) -> str:
    """Return a type's name as Erlang prints it: one with a hyphen is quoted."""
    return f"'{kind}'" if "-" in kind else kind


def _plain(value: bytes) -> str:
    text = text_of(value)
    return shown(value) if text is None else text.decode("utf-8", "surrogateescape")


def delete(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """exchange.delete; succeeds for an exchange that does not exist."""
    name = name_of(method, "exchange")
    not_default(method, name)
    if name.startswith("amq."):
        text = f"deletion of system exchange '{name}' in vhost '{peer.vhost.name}' not allowed"
        raise fail(method, ACCESS_REFUSED, text)
    check(peer, method, CONFIGURE, EXCHANGE, name)
    exchange = peer.vhost.exchanges.get(name)
    if exchange is not None:
        if method.flag("if_unused") and exchange.outgoing:
            raise fail(method, PRECONDITION_FAILED, f"exchange '{name}' in vhost '{peer.vhost.name}' in use")
        peer.vhost.delete_exchange(exchange)
    if exchange is None or exchange.durable:
        peer.hold_until_synced()
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.EXCHANGE_DELETE_OK)
