"""What the broker is and how it does."""

from __future__ import annotations

from leveret.control.command import Query
from leveret.control.listing import only
from leveret.control.node import Node
from leveret.control.refusal import not_found
from leveret.control.sliced import Sliced
from leveret.control.views.node import listener_views, memory_view, node_view
from leveret.control.views.overview import contexts, overview


class Ping(Query):
    """Whether somebody is there."""

    def run(self, node: Node) -> object:
        return {"node": node.name, "pong": True}


class Version(Query):
    """leveret's version, and that of the RabbitMQ that clients take it for."""

    def run(self, node: Node) -> object:
        settings = node.broker.settings
        return {"version": settings.version, "product": settings.product, "leveret_version": node.version}


class Overview(Query):
    """vhosts: what is counted, None = all; then also what only monitors may see."""

    vhosts: tuple[str, ...] | None = None
    user: str | None = None

    def run(self, node: Node) -> object:
        names = self.vhosts
        chosen = [vhost for vhost in node.broker.vhosts.values() if names is None or vhost.name in names]
        return Sliced(overview(node, chosen, self.vhosts is None and self.user is None))


class ListNodes(Query):
    """All nodes: this one."""

    def run(self, node: Node) -> object:
        return [node_view(node) | {"contexts": contexts(node)}]


class GetNode(Query):
    """This node, by its name."""

    name: str
    columns: tuple[str, ...] = ()

    def run(self, node: Node) -> object:
        if self.name != node.name:
            raise not_found(f"no node '{self.name}'")
        view = node_view(node) | {"contexts": contexts(node)}
        return only(view, [column.split(".") for column in self.columns]) if self.columns else view


class MemoryBreakdown(Query):
    """What the memory is used for."""

    def run(self, node: Node) -> object:
        return {"memory": memory_view(node)}


class GetClusterName(Query):
    """The cluster's name."""

    def run(self, node: Node) -> object:
        return {"name": node.broker.settings.cluster_name}


class ClusterStatus(Query):
    """The cluster: this node."""

    def run(self, node: Node) -> object:
        nodes = [node.name]
        settings = node.broker.settings
        return {
            "cluster_name": settings.cluster_name,
            "disk_nodes": nodes,
            "ram_nodes": [],
            "running_nodes": nodes,
            "versions": {node.name: {"rabbitmq_version": settings.version, "leveret_version": node.version}},
            "alarms": alarms_of(node),
            "partitions": {},
            "maintenance_status": {node.name: "not under maintenance"},
            "listeners": {node.name: listener_views(node)},
        }


def alarms_of(node: Node) -> list[str]:
    """The resources that run short: "disk", "memory"."""
    alarms = node.host.alarms
    return [name for name, is_on in (("disk", alarms.is_low_on_disk), ("memory", alarms.is_low_on_memory)) if is_on]
