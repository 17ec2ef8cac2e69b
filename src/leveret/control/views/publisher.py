"""The view of a publisher reference."""

from __future__ import annotations

from leveret.broker.publishers.reference import PublisherReference
from leveret.control.node import BrokerNode
from leveret.control.views.view import View


def publisher_view(node: BrokerNode, vhost: str, reference: PublisherReference) -> View:
    """Return an item of list_publishers.

    last_id is 0 before the first publish. refused counts the ids among the last 65,536 that were refused or returned.
    connection is the name of the connection that holds the reference, or None. idle_ms is the time in milliseconds
    since it was last held, 0 while it is held.
    """
    holder = reference.holder
    return {
        "vhost": vhost,
        "name": reference.name,
        "owner": reference.owner,
        "epoch": reference.epoch,
        "last_id": int(reference.last_id),
        "refused": reference.refused.bit_count(),
        "connection": None if holder is None else holder.peer.name,
        "idle_ms": 0 if holder is not None else max(0, node.host.now_us() - int(reference.used_us)) // 1000,
    }
