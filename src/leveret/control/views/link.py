"""A federation link as in RabbitMQ's HTTP API and federation_status, with fields that only leveret has."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from leveret.broker.link_peer import CHANNEL
from leveret.broker.peer import Peer
from leveret.control.node import BrokerNode, LinkWindow
from leveret.control.tables import sayable
from leveret.control.views.channel import channel_view
from leveret.control.views.rates import rates, with_rates
from leveret.control.views.view import View
from leveret.federation.status import REFUSED, RUNNING, STARTING, LinkStatus

COUNTS: Final = ("messages", "looped", "known", "buried")
UP: Final = (STARTING, RUNNING)


def is_down(status: LinkStatus) -> bool:
    """Return whether the link needs attention. An exchange that cannot be federated has no link that could be down."""
    return status.status not in (*UP, REFUSED)


def forget_rates(node: BrokerNode, ids: set[str]) -> None:
    """Remove the rates of links other than these."""
    for gone in node.links.keys() - ids:
        del node.links[gone]


def link_views(node: BrokerNode, statuses: list[LinkStatus]) -> Iterator[View]:
    """Yield items of federation_status one by one, as there may be many."""
    peers = {peer.number: peer for peer in node.host.peers()}
    for status in statuses:
        yield _view(node, status, peers.get(status.connection))


def _view(node: BrokerNode, status: LinkStatus, peer: Peer | None) -> View:
    since_us = int(node.broker.timeline.wall_us(status.since_us)) if status.since_us else None
    view: View = {
        "node": node.name,
        "exchange": sayable(status.exchange),
        "upstream_exchange": sayable(status.upstream_exchange),
        "type": "exchange",
        "vhost": sayable(status.vhost),
        "upstream": sayable(status.upstream),
        "id": status.id,
        "status": status.status,
        "uri": sayable(status.uri),
        "timestamp": "" if since_us is None else _rabbitmqs(since_us),
        "since_ms": None if since_us is None else since_us // 1000,
        "policy": sayable(status.policy),
        "upstream_queue": sayable(status.upstream_queue),
        "max_hops": status.max_hops,
        "unacknowledged": status.unacknowledged,
        "lag": status.lag,
        "bindings": status.bindings,
        "unbound": status.unbound,
        "reconnects": status.reconnects,
    }
    if status.error:
        view["error"] = sayable(status.error)
    if status.warning:
        view["warning"] = sayable(status.warning)
    if peer is not None and status.status == RUNNING:
        view["local_connection"] = peer.name
        channel = peer.channels.get(CHANNEL)
        if channel is not None:
            view["local_channel"] = channel_view(node, peer, channel)
    return view | _counts(node, status)


def _counts(node: BrokerNode, status: LinkStatus) -> View:
    values = (status.messages, status.looped, status.known, status.rejected)
    window = node.links.setdefault(status.id, LinkWindow())
    return with_rates(COUNTS, values, rates(window, node.host.now_us(), values))


def _rabbitmqs(us: int) -> str:
    """Format local time as RabbitMQ does: hours without a leading zero."""
    at = time.localtime(us // 1_000_000)
    return f"{at.tm_year:04}-{at.tm_mon:02}-{at.tm_mday:02} {at.tm_hour}:{at.tm_min:02}:{at.tm_sec:02}"
