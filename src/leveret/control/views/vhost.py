"""A virtual host as RabbitMQ's HTTP API shows it, and the sums over it for the overview."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from leveret.broker.counters import FIELDS
from leveret.broker.exchanges import tracing
from leveret.broker.storage.definitions import VHOST
from leveret.broker.totals import Totals
from leveret.broker.vhost import VHost
from leveret.control.node import BrokerNode
from leveret.control.sliced import CHUNK, Steps
from leveret.control.tables import plain_table
from leveret.control.views.connection import is_open
from leveret.control.views.rates import MESSAGES, OCTETS, rates, stats_of, with_rates
from leveret.control.views.view import View

VALUES: Final = MESSAGES + FIELDS + OCTETS
_MESSAGES_STOP: Final = len(MESSAGES)
_COUNTERS_STOP: Final = _MESSAGES_STOP + len(FIELDS)


@dataclass(frozen=True)
class Sums:
    """The sums over a virtual host."""

    totals: Totals
    values: tuple[int, ...]  # in the order of VALUES
    speeds: list[float]  # rates of the values per second


def sums_of(node: BrokerNode, vhost: VHost) -> Steps[Sums]:
    """Add up the objects in a virtual host."""
    totals = Totals(vhost)
    queues = list(vhost.queues.values())
    for start in range(0, len(queues), CHUNK):
        totals.add_queues(queues[start : start + CHUNK])
        yield
    channels = list(vhost.channels)
    for start in range(0, len(channels), CHUNK):
        totals.add_channels(channels[start : start + CHUNK])
        yield
    for index, peer in enumerate(node.host.peers()):
        if peer.vhost is vhost and is_open(peer):
            totals.add_peer(peer)
        if index % CHUNK == CHUNK - 1:
            yield
    values = totals.values()
    return Sums(totals, values, rates(vhost.tally.counters, node.host.now_us(), values))


def messages_view(values: tuple[int, ...], speeds: list[float]) -> View:
    """Return message counts with rates."""
    return with_rates(MESSAGES, values[:_MESSAGES_STOP], speeds[:_MESSAGES_STOP])


def stats_view(values: tuple[int, ...], speeds: list[float], has_all: bool = False) -> View:
    """Return message statistics with rates."""
    part = slice(_MESSAGES_STOP, _COUNTERS_STOP)
    return stats_of(values[part], speeds[part], has_all)


def vhost_view(node: BrokerNode, vhost: VHost) -> Steps[View]:
    """Return an item of list_vhosts."""
    sums = yield from sums_of(node, vhost)
    definition: dict[str, Any] = plain_table(node.broker.definitions.get(VHOST, vhost.name) or {})
    description, tags = definition.get("description", ""), definition.get("tags", [])
    view: View = {
        "name": vhost.name,
        "description": description,
        "tags": tags,
        "default_queue_type": definition.get("default_queue_type", "undefined"),
        "metadata": {"description": description, "tags": tags},
        "tracing": tracing.is_on(vhost),
        "cluster_state": {node.name: "running"},
        "reply_to_delivered": int(sums.totals.replies_delivered),
        "reply_to_dropped": int(sums.totals.replies_dropped),
    }
    view |= with_rates(OCTETS, sums.values[_COUNTERS_STOP:], sums.speeds[_COUNTERS_STOP:])
    view |= messages_view(sums.values, sums.speeds)
    stats = stats_view(sums.values, sums.speeds)
    if stats:
        view["message_stats"] = stats
    return view
