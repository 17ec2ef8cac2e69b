"""Publisher references: clients whose publishes are numbered (docs/guides/exactly-once.md)."""

from __future__ import annotations

from typing import Any

from leveret.broker.publishers.reference import PublisherReference
from leveret.control.command import Command, Query
from leveret.control.commands.objects import vhost_of
from leveret.control.listing import Listing
from leveret.control.node import BrokerNode
from leveret.control.refusal import not_found
from leveret.control.sliced import Steps
from leveret.control.views.publisher import publisher_view
from leveret.control.views.view import View


class ListPublishers(Listing):
    """List publisher references."""

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        found: list[tuple[str, PublisherReference]] = []
        for vhost in self.hosts(node):
            found += [(vhost.name, reference) for _, reference in sorted(vhost.publishers.by_name.items())]
            yield
        return found

    def name_of(self, item: tuple[str, PublisherReference]) -> str:
        return item[1].name

    def view(self, node: BrokerNode, item: tuple[str, PublisherReference]) -> View | None:
        return publisher_view(node, *item)


class GetPublisher(Query):
    """Return one publisher reference, by its name."""

    vhost: str
    name: str

    def run(self, node: BrokerNode) -> object:
        reference = vhost_of(node, self.vhost).publishers.by_name.get(self.name)
        if reference is None:
            raise _unknown(self.name, self.vhost)
        return publisher_view(node, self.vhost, reference)


class ForgetPublisher(Command):
    """Forget a publisher reference: its client is refused if it comes back, and another may begin under its name.

    The channel that holds it is closed. The name of a closed reference may be used again.
    """

    name: str
    vhost: str = "/"

    def run(self, node: BrokerNode) -> object:
        if not vhost_of(node, self.vhost).publishers.forget(self.name):
            raise _unknown(self.name, self.vhost)
        return None


def _unknown(name: str, vhost: str) -> Exception:
    return not_found(f"no publisher reference '{name}' in vhost '{vhost}'")
