"""Brokers that federate this broker's exchanges: the state of their links here."""

from __future__ import annotations

from typing import Any

from leveret.broker.queues.queue import Queue
from leveret.control.listing import Listing
from leveret.control.node import BrokerNode
from leveret.control.sliced import Steps, choose
from leveret.control.views.downstream import downstream_view
from leveret.control.views.view import View
from leveret.federation.names import PURPOSE, QUEUE_PURPOSE


class ListDownstreams(Listing):
    """List upstream queues declared by links of other brokers, by virtual host and name."""

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        found: list[Queue] = []
        for vhost in self.hosts(node):
            found += yield from choose(list(vhost.queues.values()), _is_upstream_queue)
        found.sort(key=lambda queue: (queue.vhost.name, queue.name))
        return found

    def name_of(self, item: Queue) -> str:
        return item.name

    def view(self, node: BrokerNode, item: Queue) -> View | None:
        return None if item.is_deleted else downstream_view(node, item)


def _is_upstream_queue(queue: Queue) -> bool:
    return queue.arguments.get(QUEUE_PURPOSE) == PURPOSE
