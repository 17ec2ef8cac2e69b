"""State and properties of the broker."""

from __future__ import annotations

import hashlib
import platform
import ssl
from typing import Final

from leveret.control.command import Query
from leveret.control.listing import only
from leveret.control.node import BrokerNode
from leveret.control.refusal import not_found
from leveret.control.sliced import Sliced
from leveret.control.views.connection import is_open
from leveret.control.views.node import memory_view, node_view
from leveret.control.views.overview import contexts, overview
from leveret.control.views.view import View
from leveret.session.login import MECHANISMS

PURPOSES: Final = {
    "amqp": "AMQP 0-9-1", "amqp/ssl": "AMQP 0-9-1 over TLS", "http": "HTTP API", "https": "HTTP API over TLS",
}  # fmt: skip
FEATURE_FLAGS: Final[list[View]] = [
    {"name": name, "desc": text, "doc_url": "", "state": "enabled", "stability": "stable", "provided_by": "leveret"}
    for name, text in (
        ("drop_unroutable_metric", "Messages that reach no queue are counted"),
        ("empty_basic_get_metric", "basic.get on an empty queue is counted"),
        ("implicit_default_bindings", "Each queue is bound to the default exchange"),
        ("quorum_queue", "Queues of type quorum"),
        # in RabbitMQ, this flag enables at-least-once dead lettering
        ("stream_queue", "Queues of type stream; dead letters at least once"),
        ("user_limits", "Limits for each user"),
        ("virtual_host_metadata", "Virtual hosts have a description and tags"),
    )
]


class Ping(Query):
    """Answer, to show that the broker is reachable."""

    def run(self, node: BrokerNode) -> object:
        return {"node": node.name, "pong": True}


class Version(Query):
    """Return leveret's version, and that of the RabbitMQ that it presents to clients."""

    def run(self, node: BrokerNode) -> object:
        settings = node.broker.settings
        return {"version": settings.version, "product": settings.product, "leveret_version": node.version}


class Overview(Query):
    """Return the overview of RabbitMQ's HTTP API."""

    vhosts: tuple[str, ...] | None = None  # what is counted, None = all
    user: str | None = None  # if None, with all virtual hosts, the answer includes what only monitors may see

    def run(self, node: BrokerNode) -> object:
        names = self.vhosts
        chosen = [vhost for vhost in node.broker.vhosts.values() if names is None or vhost.name in names]
        return Sliced(overview(node, chosen, self.vhosts is None and self.user is None))


class ListNodes(Query):
    """List all nodes, which is this one."""

    def run(self, node: BrokerNode) -> object:
        return [node_view(node) | {"contexts": contexts(node)}]


class GetNode(Query):
    """Return this node, by its name."""

    name: str
    columns: tuple[str, ...] = ()

    def run(self, node: BrokerNode) -> object:
        if self.name != node.name:
            raise not_found(f"no node '{self.name}'")
        view = node_view(node) | {"contexts": contexts(node)}
        return only(view, [column.split(".") for column in self.columns]) if self.columns else view


class MemoryBreakdown(Query):
    """Return the memory use by purpose."""

    def run(self, node: BrokerNode) -> object:
        return {"memory": memory_view(node)}


class GetClusterName(Query):
    """Return the cluster's name."""

    def run(self, node: BrokerNode) -> object:
        return {"name": node.broker.cluster_name.value}


class ClusterStatus(Query):
    """Return the state of the cluster, which is this node."""

    def run(self, node: BrokerNode) -> object:
        nodes = [node.name]
        settings = node.broker.settings
        return {
            "cluster_name": node.broker.cluster_name.value,
            "disk_nodes": nodes,
            "ram_nodes": [],
            "running_nodes": nodes,
            "versions": {
                node.name: {
                    "rabbitmq_name": settings.product,
                    "rabbitmq_version": settings.version,
                    "leveret_version": node.version,
                }
            },
            "alarms": resource_limits(node),
            "partitions": {},
            "maintenance_status": {node.name: maintenance_status(node)},
            "listeners": {node.name: interfaces(node)},
            "feature_flags": FEATURE_FLAGS,
        }


def maintenance_status(node: BrokerNode) -> str:
    """Return the maintenance status in rabbitmqctl's words."""
    return "marked for maintenance" if node.host.shutdown.is_under_maintenance else "not under maintenance"


def alarms_of(node: BrokerNode) -> list[str]:
    """Return the alarms in effect: "disk", "memory", and "disk_wait" (publishers wait too long for the disk)."""
    alarms = node.host.alarms
    are_on = {
        "disk": alarms.is_low_on_disk, "memory": alarms.is_low_on_memory, "disk_wait": alarms.is_waiting_for_disk,
    }  # fmt: skip
    return [name for name, is_on in are_on.items() if is_on]


class Status(Query):
    """Return a summary of the node, as rabbitmqctl status does."""

    def run(self, node: BrokerNode) -> object:
        view, broker = node_view(node), node.broker
        return {
            "product_name": broker.settings.product,
            "rabbitmq_version": broker.settings.version,
            "leveret_version": node.version,
            "core": node.core,
            "pid": int(view["os_pid"]),
            "os": platform.system(),
            "python_version": platform.python_version(),
            "crypto_lib_version": ssl.OPENSSL_VERSION,
            "is_under_maintenance": node.host.shutdown.is_under_maintenance,
            "uptime": view["uptime"] // 1000,
            "wall_clock_ahead_s": int(broker.timeline.offset_us) / 1e6,
            "run_queue": view["run_queue"],
            "net_ticktime": view["net_ticktime"],
            "processes": {"limit": view["proc_total"], "used": view["proc_used"]},
            "file_descriptors": {
                "total_limit": view["fd_total"],
                "total_used": view["fd_used"],
                "sockets_limit": view["sockets_total"],
                "sockets_used": view["sockets_used"],
            },
            "disk_free": view["disk_free"],
            "disk_free_limit": view["disk_free_limit"],
            "memory": memory_view(node),
            "vm_memory_calculation_strategy": "rss",
            "vm_memory_high_watermark_limit": view["mem_limit"],
            "vm_memory_high_watermark_setting": {"absolute": view["mem_limit"]},
            "alarms": resource_limits(node),
            "active_plugins": view["enabled_plugins"],
            "config_files": view["config_files"],
            "data_directory": node.data_dir,
            "log_files": view["log_files"],
            "listeners": interfaces(node),
            "totals": {
                "connection_count": sum(is_open(peer) for peer in node.host.peers()),
                "queue_count": sum(len(vhost.queues) for vhost in broker.vhosts.values()),
                "virtual_host_count": len(broker.vhosts),
            },
        }


class Environment(Query):
    """Return the broker's settings, with RabbitMQ's names where RabbitMQ has them."""

    def run(self, node: BrokerNode) -> object:
        settings, limits = node.broker.settings, node.host.alarms.limits
        return {
            "rabbit": {
                "channel_max": settings.channel_max,
                "frame_max": settings.frame_max,
                "heartbeat": settings.heartbeat_s,
                "max_message_size": settings.max_message_octets,
                "consumer_timeout": settings.consumer_timeout_ms or "infinity",
                "cluster_name": node.broker.cluster_name.value,
                "product_name": settings.product,
                "product_version": settings.version,
                "disk_free_limit": limits.disk_free_octets,
                "vm_memory_high_watermark": {"absolute": limits.memory_octets},
                "auth_mechanisms": list(MECHANISMS),
                "tcp_listeners": [[listener.address, listener.port] for listener in node.host.listeners],
            },
            "leveret": {"data_dir": node.data_dir, "version": node.version, "core": node.core},
        }


class ListHashes(Query):
    """List the hash functions of this Python."""

    def run(self, node: BrokerNode) -> object:
        return sorted(hashlib.algorithms_available)


class ListCiphers(Query):
    """List the cipher suites that TLS may negotiate."""

    def run(self, node: BrokerNode) -> object:
        return [cipher["name"] for cipher in ssl.create_default_context().get_ciphers()]


class ListFeatureFlags(Query):
    """List RabbitMQ's feature flags for the features that leveret has; all are enabled."""

    def run(self, node: BrokerNode) -> object:
        return FEATURE_FLAGS


class ListUnresponsiveQueues(Query):
    """List unresponsive queues. There are none, as queues are not processes of their own."""

    vhost: str | None = None

    def run(self, node: BrokerNode) -> object:
        return []


def interfaces(node: BrokerNode) -> list[View]:
    """Return the listeners in rabbitmqctl's words."""
    return [
        {
            "node": node.name,
            "protocol": listener.protocol,
            "interface": listener.address,
            "port": listener.port,
            "purpose": PURPOSES.get(listener.protocol, listener.protocol),
        }
        for listener in node.host.listeners
    ]


def resource_limits(node: BrokerNode) -> list[View]:
    """Return the alarms in effect as resource limits."""
    return [{"node": node.name, "resource": name, "type": "resource_limit"} for name in alarms_of(node)]
