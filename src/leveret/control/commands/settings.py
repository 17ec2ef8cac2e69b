"""Settings that operators change while the broker runs. All but the cluster's name are lost at the next start."""

from __future__ import annotations

import logging
from typing import Final

from leveret.broker.storage.definitions import GLOBAL_PARAMETER
from leveret.control.command import Command
from leveret.control.commands.status import FEATURE_FLAGS
from leveret.control.node import BrokerNode
from leveret.control.refusal import bad_request, not_found
from leveret.net.quantity import octets
from leveret.net.resources import machine_memory_octets

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "none": logging.CRITICAL + 1,
}


class SetDiskFreeLimit(Command):
    """Block publishers if less disk space is free than `limit`: octets, "50MB", or a fraction of the memory ("0.1")."""

    limit: int | str

    def run(self, node: BrokerNode) -> None:
        node.host.limit(node.host.alarms.limits._replace(disk_free_octets=_octets(self.limit)))


class SetVmMemoryHighWatermark(Command):
    """Block publishers if more memory is in use than `limit`: octets, "50MB", or a fraction of the memory ("0.1")."""

    limit: int | str

    def run(self, node: BrokerNode) -> None:
        node.host.limit(node.host.alarms.limits._replace(memory_octets=_octets(self.limit)))


class SetLogLevel(Command):
    """Set the log level; audit lines are always logged."""

    level: str

    def run(self, node: BrokerNode) -> None:
        if self.level not in LEVELS:
            raise bad_request(f"level {self.level} is not supported. Try one of {', '.join(LEVELS)}")
        logging.getLogger().setLevel(LEVELS[self.level])


class SetClusterName(Command):
    """Set the name sent to clients in connection.start: the global parameter "cluster_name", as in RabbitMQ."""

    name: str

    def run(self, node: BrokerNode) -> None:
        if not self.name:
            raise bad_request("cluster name should not be empty")
        node.broker.definitions.put(GLOBAL_PARAMETER, {"name": "cluster_name", "value": self.name})


def _octets(limit: int | str) -> int:
    try:
        return octets(limit, machine_memory_octets())
    except ValueError as error:
        raise bad_request(str(error)) from None


class EnableFeatureFlag(Command):
    """Accept feature flags, all of which are enabled already. Refused for an unknown name; "all" is every flag."""

    name: str

    def run(self, node: BrokerNode) -> None:
        if self.name not in {"all", *(flag["name"] for flag in FEATURE_FLAGS)}:
            raise not_found(f"This feature flag is not supported by node {node.name}")
