"""Another broker's link to this broker, as far as it is known here: its upstream queue and the consumer."""

from __future__ import annotations

from typing import Final

from leveret.broker.counters import FIELDS
from leveret.broker.queues.queue import Queue
from leveret.control.node import BrokerNode
from leveret.control.tables import sayable
from leveret.control.views.rates import rates, with_rates
from leveret.control.views.view import View

_PREFIX: Final = "federation: "
_ARROW: Final = " -> "
_DELIVER: Final = slice(FIELDS.index("deliver"), FIELDS.index("deliver_no_ack") + 1)


def downstream_view(node: BrokerNode, queue: Queue) -> View:
    """Return an item of list_downstreams; exchange and downstream are taken from the queue's name
    (federation.names)."""
    exchange, _, downstream = queue.name.removeprefix(_PREFIX).partition(_ARROW)
    consumer = next(iter(queue.consumers.all()), None)
    queue.consumers.count_deliveries()
    counted, ready, unacked = queue.counters.values(), int(queue.count()), int(queue.outstanding())
    # queue_view uses the same window, so the values must be the same, too
    speeds = rates(queue.counters, node.host.now_us(), (*counted, ready + unacked, ready, unacked))
    delivered, speed = sum(counted[_DELIVER]), round(sum(speeds[_DELIVER]), 2)
    view: View = {
        "vhost": sayable(queue.vhost.name),
        "queue": sayable(queue.name),
        "exchange": sayable(exchange),
        "downstream": sayable(downstream),
        "status": "running" if consumer is not None else "disconnected",
        "messages": ready,
        "unacknowledged": unacked,
        "connection": sayable(consumer.connection.name) if consumer is not None else None,
    }
    return view | with_rates(("delivered",), (delivered,), [speed])
