"""The overview of RabbitMQ's HTTP API: versions, counts of objects, and message rates."""

from __future__ import annotations

import platform
from typing import Final

from leveret.broker.vhost import VHost
from leveret.control.node import BrokerNode
from leveret.control.sliced import Steps
from leveret.control.views.node import exchange_types, listener_views
from leveret.control.views.rates import churn_rates
from leveret.control.views.vhost import VALUES, Sums, messages_view, stats_view, sums_of
from leveret.control.views.view import View

# for users without any virtual host
NOTHING: Final = (0,) * len(VALUES)
NO_SPEEDS: Final = [0.0] * len(VALUES)


def overview(node: BrokerNode, vhosts: list[VHost], is_for_all: bool) -> Steps[View]:
    """Return the overview of these virtual hosts, with is_for_all also node-wide parts that only monitors may see."""
    sums: list[Sums] = []
    for vhost in vhosts:
        sums.append((yield from sums_of(node, vhost)))
    values = tuple(sum(figures) for figures in zip(*[each.values for each in sums], strict=True)) or NOTHING
    speeds = [round(sum(some), 2) for some in zip(NO_SPEEDS, *[each.speeds for each in sums], strict=True)]
    settings = node.broker.settings
    view: View = {
        "management_version": settings.version,
        "rates_mode": "basic",
        "sample_retention_policies": {"global": [], "basic": [], "detailed": []},
        "exchange_types": exchange_types(),
        "product_name": settings.product,
        "product_version": settings.version,
        "rabbitmq_version": settings.version,
        "leveret_version": node.version,
        "leveret_core": node.core,
        "cluster_name": node.broker.cluster_name.value,
        "erlang_version": "none",
        "erlang_full_version": f"no Erlang: {platform.python_implementation()} {platform.python_version()}",
        "release_series_support_status": "supported",
        "disable_stats": False,
        "enable_queue_totals": False,
        "message_stats": stats_view(values, speeds, True),
        "queue_totals": messages_view(values, speeds),
        "object_totals": {
            "channels": sum(int(each.totals.channels) for each in sums),
            "connections": sum(int(each.totals.connections) for each in sums),
            "consumers": sum(int(each.totals.consumers) for each in sums),
            "exchanges": sum(len(vhost.exchanges) + 1 for vhost in vhosts),
            "queues": sum(int(each.totals.queues) for each in sums),
        },
        "statistics_db_event_queue": 0,
        "node": node.name,
    }
    if is_for_all:
        view["churn_rates"] = churn_rates(node.broker.churn, node.host.now_us())
        view["listeners"] = listener_views(node)
        view["contexts"] = contexts(node)
    return view


def contexts(node: BrokerNode) -> list[View]:
    """Return the addresses at which the HTTP API is served."""
    return [
        {
            "node": node.name,
            "description": "leveret HTTP API",
            "path": "/",
            "ip": listener.address,
            "port": str(listener.port),
            "ssl_opts": [],
        }
        for listener in node.host.listeners
        if listener.protocol in ("http", "https")
    ]
