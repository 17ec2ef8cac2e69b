"""Federation: links here, with commands to restart, pause and resume them, and links of others to this broker."""

from __future__ import annotations

from typing import Any

from leveret.broker.queues.queue import Queue
from leveret.control.command import Command, Query
from leveret.control.listing import Listing
from leveret.control.node import BrokerNode
from leveret.control.refusal import Refused, not_found
from leveret.control.sliced import Steps, choose
from leveret.control.validation.checks import vhost_named
from leveret.control.views.downstream import downstream_view
from leveret.control.views.link import forget_rates, is_down, link_views
from leveret.control.views.view import View
from leveret.federation.names import PURPOSE, QUEUE_PURPOSE


class FederationStatus(Query):
    """Return the state of every link, and of exchanges whose policy asks for links that are impossible."""

    vhost: str | None = None  # only those of this virtual host
    only_down: bool = False  # only links that are neither running nor starting

    def run(self, node: BrokerNode) -> object:
        if self.vhost is not None:
            vhost_named(node, self.vhost)
        statuses = node.host.federator.statuses()
        forget_rates(node, {status.id for status in statuses})
        if self.vhost is not None:
            statuses = [status for status in statuses if status.vhost == self.vhost]
        if self.only_down:
            statuses = [status for status in statuses if is_down(status)]
        return link_views(node, statuses)


class LinkCommand(Command):
    """A command for one link, by its id."""

    id: str
    vhost: str | None = None  # where the link must be, None = anywhere

    def run(self, node: BrokerNode) -> None:
        statuses = node.host.federator.statuses()
        is_there = any(status.id == self.id and self.vhost in (None, status.vhost) for status in statuses)
        if not self.id or not is_there or not self.act(node):
            raise no_link()

    def act(self, node: BrokerNode) -> bool:
        """Do it. Returns False if the link has gone."""
        raise NotImplementedError


class RestartFederationLink(LinkCommand):
    """Reconnect at once."""

    def act(self, node: BrokerNode) -> bool:
        return node.host.federator.restart(self.id)


class PauseFederationLink(LinkCommand):
    """Disconnect until the link is resumed, even if the broker restarts; messages wait in the upstream queue."""

    def act(self, node: BrokerNode) -> bool:
        return node.host.federator.pause(self.id)


class ResumeFederationLink(LinkCommand):
    """Connect again after a pause."""

    def act(self, node: BrokerNode) -> bool:
        return node.host.federator.resume(self.id)


def no_link() -> Refused:
    """Return the error, in rabbitmqctl's words."""
    return not_found("Link with the given ID was not found")


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
