"""Federation links: how they stand, and what operators do about them (RabbitMQ, Federation)."""

from __future__ import annotations

from leveret.control.checks import vhost_named
from leveret.control.command import Command, Query
from leveret.control.node import Node
from leveret.control.refusal import Refused, not_found
from leveret.control.views.link import forget_rates, is_down, link_views


class FederationStatus(Query):
    """Every link, and every exchange for which a policy asks for links that it can't have. vhost: only those of this
    one; only_down: only links that are neither running nor starting."""

    vhost: str | None = None
    only_down: bool = False

    def run(self, node: Node) -> object:
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
    """One link, by its id. vhost: where it must be, None = anywhere."""

    id: str
    vhost: str | None = None

    def run(self, node: Node) -> object:
        statuses = node.host.federator.statuses()
        is_there = any(status.id == self.id and self.vhost in (None, status.vhost) for status in statuses)
        if not self.id or not is_there or not self.act(node):
            raise no_link()
        return None

    def act(self, node: Node) -> bool:
        """Do it. False if the link is gone."""
        raise NotImplementedError


class RestartFederationLink(LinkCommand):
    """Connect anew, at once."""

    def act(self, node: Node) -> bool:
        return node.host.federator.restart(self.id)


class PauseFederationLink(LinkCommand):
    """Disconnect until it is resumed, restarts of the broker notwithstanding; messages wait in the upstream queue."""

    def act(self, node: Node) -> bool:
        return node.host.federator.pause(self.id)


class ResumeFederationLink(LinkCommand):
    """Connect again after a pause."""

    def act(self, node: Node) -> bool:
        return node.host.federator.resume(self.id)


def no_link() -> Refused:
    """In rabbitmqctl's words."""
    return not_found("Link with the given ID was not found")
