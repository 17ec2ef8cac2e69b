"""Queries and their stages: messages published for a batch that is not released yet (docs/guides/stages.md)."""

from __future__ import annotations

from typing import Any

from leveret.broker.staging.query import Producer as StagedQuery
from leveret.broker.staging.stage import Stage
from leveret.control.command import Command, Query
from leveret.control.commands.objects import vhost_of
from leveret.control.listing import Listing
from leveret.control.node import BrokerNode
from leveret.control.refusal import not_found
from leveret.control.sliced import Steps
from leveret.control.views.stage import query_view, stage_view
from leveret.control.views.view import View


class ListQueries(Listing):
    """List queries that publish by stages."""

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        found: list[tuple[str, StagedQuery]] = []
        for vhost in self.hosts(node):
            found += [(vhost.name, query) for _, query in sorted(vhost.queries.by_name.items())]
            yield
        return found

    def name_of(self, item: tuple[str, StagedQuery]) -> str:
        return item[1].name

    def view(self, node: BrokerNode, item: tuple[str, StagedQuery]) -> View | None:
        return None if item[1].is_forgotten else query_view(node, *item)


class ListStages(Listing):
    """List stages, including released ones whose messages still move; the name is that of the query."""

    query: str | None = None  # only stages of this query

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        found: list[Stage] = []
        for vhost in self.hosts(node):
            found += [stage for stage in vhost.queries.stages() if self.query in (None, stage.query)]
            yield
        return sorted(found, key=lambda stage: (stage.vhost.name, stage.query, stage.batch, stage.attempt))

    def name_of(self, item: Stage) -> str:
        return item.query

    def view(self, node: BrokerNode, item: Stage) -> View | None:
        return None if item.is_deleted else stage_view(node, item)


class GetQuery(Query):
    """Return one query, by its name."""

    vhost: str
    name: str

    def run(self, node: BrokerNode) -> object:
        return query_view(node, self.vhost, query_named(node, self.vhost, self.name))


class ForgetQuery(Command):
    """Forget the last batch of a query that will not publish again.

    Its staged messages are dropped; released ones are still delivered. The name of a closed query may be used again.
    """

    name: str
    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        if not vhost_of(node, self.vhost).queries.forget_closed(self.name):
            query = query_named(node, self.vhost, self.name)
            node.broker.vhosts[self.vhost].queries.forget(query)


def query_named(node: BrokerNode, vhost: str, name: str) -> StagedQuery:
    """Return the query of this name. Raises Refused if it does not exist."""
    query = vhost_of(node, vhost).queries.by_name.get(name)
    if query is None:
        raise not_found(f"no query '{name}' in vhost '{vhost}'")
    return query
