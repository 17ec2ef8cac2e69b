"""Queries and their stages: what is published for a batch and not released (docs/guides/stages.md)."""

from __future__ import annotations

from typing import Any

from leveret.broker.query import Query as StagedQuery
from leveret.broker.stage import Stage
from leveret.control.command import Command, Query
from leveret.control.commands.objects import vhost_of
from leveret.control.listing import Listing
from leveret.control.node import Node
from leveret.control.refusal import not_found
from leveret.control.sliced import Steps
from leveret.control.views.stage import query_view, stage_view
from leveret.control.views.view import View


class ListQueries(Listing):
    """Queries that publish by stages."""

    def found(self, node: Node) -> Steps[list[Any]]:
        found: list[tuple[str, StagedQuery]] = []
        for vhost in self.hosts(node):
            found += [(vhost.name, query) for _, query in sorted(vhost.queries.by_name.items())]
            yield
        return found

    def name_of(self, item: tuple[str, StagedQuery]) -> str:
        return item[1].name

    def view(self, node: Node, item: tuple[str, StagedQuery]) -> View | None:
        return None if item[1].is_forgotten else query_view(node, *item)


class ListStages(Listing):
    """Stages, those that are released and still move included; the name is the query's. query: only those of this."""

    query: str | None = None

    def found(self, node: Node) -> Steps[list[Any]]:
        found: list[Stage] = []
        for vhost in self.hosts(node):
            found += [stage for stage in vhost.queries.stages() if self.query in (None, stage.query)]
            yield
        return sorted(found, key=lambda stage: (stage.vhost.name, stage.query, stage.batch, stage.attempt))

    def name_of(self, item: Stage) -> str:
        return item.query

    def view(self, node: Node, item: Stage) -> View | None:
        return None if item.is_deleted else stage_view(node, item)


class GetQuery(Query):
    """One query, by its name."""

    vhost: str
    name: str

    def run(self, node: Node) -> object:
        return query_view(node, self.vhost, query_named(node, self.vhost, self.name))


class ForgetQuery(Command):
    """The broker need not know any more which batch of a query was the last: none will come (again). What the query has
    staged is dropped; what was released goes its way. Of one that was closed the name may be used again."""

    name: str
    vhost: str = "/"

    def run(self, node: Node) -> object:
        if not vhost_of(node, self.vhost).queries.forget_closed(self.name):
            query = query_named(node, self.vhost, self.name)
            node.broker.vhosts[self.vhost].queries.forget(query)
        return None


def query_named(node: Node, vhost: str, name: str) -> StagedQuery:
    """Refused if there is none of this name."""
    query = vhost_of(node, vhost).queries.by_name.get(name)
    if query is None:
        raise not_found(f"no query '{name}' in vhost '{vhost}'")
    return query
