"""The node as RabbitMQ's HTTP API shows it. Fields that only make sense for Erlang are left out, see
docs/reference/lists-counters-rates.md."""

from __future__ import annotations

import os
import platform
import resource
import threading
from typing import Final

from leveret.broker.exchange_types.table import KINDS
from leveret.control.node import BrokerNode
from leveret.control.views.rates import churn_rates, rates, with_rates
from leveret.control.views.view import View
from leveret.federation.names import PURPOSE, UPSTREAM_KIND
from leveret.session.login import MECHANISMS

# RabbitMQ's plugins whose features are built in
PLUGINS: Final = (
    "rabbitmq_consistent_hash_exchange", "rabbitmq_delayed_message_exchange", "rabbitmq_federation",
    "rabbitmq_federation_management", "rabbitmq_management", "rabbitmq_message_deduplication",
    "rabbitmq_recent_history_exchange", "rabbitmq_sharding",
)  # fmt: skip
FDS_LOOKED_AT_MAX: Final = 512
GAUGES: Final = ("mem_used", "disk_free", "fd_used", "sockets_used", "proc_used", "context_switches")


def exchange_types() -> list[View]:
    """Return the exchange types that can be declared. That of links is marked, so that tools hide it."""
    plain = [{"name": kind, "description": f"AMQP {kind} exchange", "enabled": True} for kind in sorted(KINDS)]
    helper = {"description": "Federation upstream helper exchange", "internal_purpose": PURPOSE}
    return [view | helper if view["name"] == UPSTREAM_KIND else view for view in plain]


def listener_views(node: BrokerNode) -> list[View]:
    """Return the broker's listeners."""
    return [
        {
            "node": node.name,
            "protocol": listener.protocol,
            "ip_address": listener.address,
            "port": listener.port,
            "socket_opts": {"backlog": 1024, "nodelay": True},
        }
        for listener in node.host.listeners
    ]


def node_view(node: BrokerNode) -> View:
    """Return an item of list_nodes."""
    host = node.host
    alarms = host.alarms
    fd_total = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    sockets = len(host.peers()) + len(host.listeners)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    view: View = {
        "name": node.name,
        "type": "disc",
        "running": True,
        "os_pid": str(os.getpid()),
        "uptime": (host.now_us() - host.started_us) // 1000,
        "run_queue": 0,
        "processors": os.cpu_count() or 1,
        "mem_limit": alarms.limits.memory_octets,
        "mem_alarm": alarms.is_low_on_memory,
        "mem_calculation_strategy": "rss",
        "disk_free_limit": alarms.limits.disk_free_octets,
        "disk_free_alarm": alarms.is_low_on_disk,
        "disk_wait_alarm": alarms.is_waiting_for_disk,
        "fd_total": fd_total,
        "sockets_total": fd_total,
        "proc_total": resource.getrlimit(resource.RLIMIT_NPROC)[0],
        "partitions": [],
        "cluster_links": [],
        "rates_mode": "basic",
        "net_ticktime": 60,
        "exchange_types": exchange_types(),
        "auth_mechanisms": [{"name": name, "description": f"SASL {name}", "enabled": True} for name in MECHANISMS],
        "applications": _applications(node),
        "contexts": [],
        "enabled_plugins": list(PLUGINS),
        "log_files": ["<stderr>"],
        "db_dir": node.data_dir,
        "config_files": [],
    }
    gauges = (
        alarms.used_octets(),
        alarms.free_octets(),
        open_files(sockets),
        sockets,
        threading.active_count(),
        usage.ru_nvcsw + usage.ru_nivcsw,
    )
    view |= with_rates(GAUGES, gauges, rates(node, host.now_us(), gauges))
    view |= churn_rates(node.broker.churn, host.now_us())
    return view


def memory_view(node: BrokerNode) -> View:
    """Return the memory use as far as it is known: messages, and the rest."""
    used = node.host.alarms.used_octets()
    queues = int(node.broker.log.ready_octets + node.broker.log.tail_octets)
    other = max(used - queues, 0)
    return {"queue_procs": queues, "other_proc": other, "strategy": "rss", "total": {"rss": used, "allocated": used}}


def _applications(node: BrokerNode) -> list[View]:
    python = platform.python_version()
    return [
        {"name": "leveret", "description": f"leveret, {node.core} core", "version": node.version},
        {"name": "rabbit", "description": "RabbitMQ, as clients see it", "version": node.broker.settings.version},
        {"name": "python", "description": platform.python_implementation(), "version": python},
    ]


def open_files(sockets: int) -> int:
    """Return the number of open files, by the kernel, by listing the directory, or estimated."""
    count = os.stat("/proc/self/fd").st_size
    if count == 0:
        count = len(os.listdir("/proc/self/fd")) if sockets < FDS_LOOKED_AT_MAX else sockets
    return count
