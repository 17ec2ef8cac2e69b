"""An exchange as RabbitMQ's HTTP API shows it."""

from __future__ import annotations

from leveret.broker.counters import Passage
from leveret.broker.exchange import Exchange
from leveret.broker.vhost import VHost
from leveret.control.node import Node
from leveret.control.tables import plain_table
from leveret.control.views.rates import passage_stats
from leveret.control.views.view import View
from leveret.wire.table import Value


def exchange_view(node: Node, vhost: VHost, exchange: Exchange | None) -> View:
    """An item of list_exchanges; None: the default exchange."""
    if exchange is None:
        return _view(node, vhost, "", "direct", (True, False, False), {}, vhost.tally.passage)
    flags = (exchange.durable, exchange.auto_delete, exchange.internal)
    return _view(node, vhost, exchange.name, exchange.kind, flags, exchange.arguments, exchange.passage)


def exchange_details(node: Node, vhost: VHost, exchange: Exchange | None) -> View:
    """get_exchange: RabbitMQ has figures of channels and queues beside it when its rates_mode is "detailed"."""
    return exchange_view(node, vhost, exchange) | {"incoming": [], "outgoing": []}


def _view(
    node: Node,
    vhost: VHost,
    name: str,
    kind: str,
    flags: tuple[bool, bool, bool],
    arguments: dict[str, Value],
    passage: Passage,
) -> View:
    vhost.tally.count_publishes()
    view: View = {
        "name": name,
        "vhost": vhost.name,
        "type": kind,
        "durable": flags[0],
        "auto_delete": flags[1],
        "internal": flags[2],
        "arguments": plain_table(arguments),
        "policy": None,
    }
    stats = passage_stats(passage, node.host.now_us())
    if stats:
        view["message_stats"] = stats
    return view
