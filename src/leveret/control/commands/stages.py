"""Queries and their stages: messages published for a batch that is not released yet (docs/guides/stages.md)."""

from __future__ import annotations

from typing import Any

from leveret.broker.staging.stage import Stage
from leveret.broker.vhost import VHost
from leveret.control.command import Command, Query
from leveret.control.commands.objects import vhost_of
from leveret.control.listing import Listing
from leveret.control.node import BrokerNode
from leveret.control.refusal import Refused, not_found
from leveret.control.sliced import Steps
from leveret.control.views.stage import query_names, query_view, stage_view
from leveret.control.views.view import View


class ListQueries(Listing):
    """List queries that publish by stages or report their progress."""

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        found: list[tuple[VHost, str]] = []
        for vhost in self.hosts(node):
            found += [(vhost, name) for name in query_names(vhost)]
            yield
        return found

    def name_of(self, item: tuple[VHost, str]) -> str:
        return item[1]

    def view(self, node: BrokerNode, item: tuple[VHost, str]) -> View | None:
        return query_view(node, *item)


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
        found = query_view(node, vhost_of(node, self.vhost), self.name)
        if found is None:
            raise _no_query(self.name, self.vhost)
        return found


class ForgetQuery(Command):
    """Forget the last batch of a query that will not publish again.

    Its staged messages are dropped; released ones are still delivered. The name of a closed query may be used again.
    """

    name: str
    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        queries = vhost_of(node, self.vhost).queries
        is_known = queries.reports.pop(self.name, None) is not None
        if self.name in queries.by_name:
            queries.forget(queries.by_name[self.name])
        elif not queries.forget_closed(self.name) and not is_known:
            raise _no_query(self.name, self.vhost)


def _no_query(name: str, vhost: str) -> Refused:
    return not_found(f"no query '{name}' in vhost '{vhost}'")
