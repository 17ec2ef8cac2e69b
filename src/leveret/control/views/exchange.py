"""An exchange as RabbitMQ's HTTP API shows it."""

from __future__ import annotations

from typing import Final

from leveret.broker.exchange_types.deduplication import Deduplication
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.vhost import PREDECLARED, VHost
from leveret.control.node import BrokerNode
from leveret.control.tables import plain_table
from leveret.control.views.rates import passage_stats
from leveret.control.views.view import View
from leveret.wire.table import Value

# RabbitMQ's names for who declared an exchange: the broker itself; unknown, as it was before the last start
OURS: Final = "rmq-internal"
UNKNOWN: Final = "none"
_PREDECLARED: Final = frozenset([name for name, _ in PREDECLARED])


def exchange_view(node: BrokerNode, vhost: VHost, exchange: Exchange | None) -> View:
    """Return an item of list_exchanges; None is the default exchange."""
    if exchange is None:
        view = _view("", vhost, "direct", (True, False, False), {})
        passage = vhost.tally.passage
    else:
        flags = (exchange.durable, exchange.auto_delete, exchange.internal)
        view = _view(exchange.name, vhost, exchange.kind, flags, exchange.arguments)
        view["user_who_performed_action"] = OURS if exchange.name in _PREDECLARED else exchange.user or UNKNOWN
        if exchange.effect.policy:
            view["policy"] = exchange.effect.policy
        passage = exchange.passage
        if isinstance(exchange.matcher, Deduplication):
            cache = exchange.matcher.cache
            view["cache_info"] = {"size": cache.size, "bytes": cache.octets(), "entries": cache.count()}
    vhost.tally.count_publishes()
    stats = passage_stats(passage, node.host.now_us())
    if stats:
        view["message_stats"] = stats
    return view


def exchange_details(node: BrokerNode, vhost: VHost, exchange: Exchange | None) -> View:
    """Return the view for get_exchange. RabbitMQ adds statistics of channels and queues when its rates_mode is
    "detailed"."""
    return exchange_view(node, vhost, exchange) | {"incoming": [], "outgoing": []}


def _view(name: str, vhost: VHost, kind: str, flags: tuple[bool, bool, bool], arguments: dict[str, Value]) -> View:
    return {
        "name": name,
        "vhost": vhost.name,
        "type": kind,
        "durable": flags[0],
        "auto_delete": flags[1],
        "internal": flags[2],
        "arguments": plain_table(arguments),
        "user_who_performed_action": OURS,
    }
