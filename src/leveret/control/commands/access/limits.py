"""Limits of virtual hosts and users (RabbitMQ, Virtual Hosts; Access Control). A negative limit means no limit."""

from __future__ import annotations

from typing import Any

from leveret.broker.storage.definitions import PARAMETER, USER, VHOST_LIMITS, Definition
from leveret.control.command import Command, Query
from leveret.control.defining import put
from leveret.control.node import BrokerNode
from leveret.control.refusal import bad_request
from leveret.control.validation.checks import user_named, vhost_named
from leveret.control.validation.parameters import LIMITS, refused_parameter, refused_user_limits


class SetVhostLimits(Command):
    """Replace all limits of a virtual host: max-connections, max-queues. Limits that are not given are removed."""

    definition: Any
    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)
        _put_vhost_limits(node, self.vhost, self.definition)


class SetVhostLimit(Command):
    """Set one limit of a virtual host; the others stay."""

    name: str
    value: Any
    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)
        _put_vhost_limits(node, self.vhost, {**_vhost_limits(node, self.vhost), self.name: self.value})


class ClearVhostLimits(Command):
    """Remove all limits of a virtual host. No effect if it has none."""

    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)
        node.broker.definitions.remove(PARAMETER, self.vhost, VHOST_LIMITS, LIMITS)


class ClearVhostLimit(Command):
    """Remove one limit of a virtual host. No effect if it is not set."""

    name: str
    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)
        limits = _vhost_limits(node, self.vhost)
        if self.name in limits:
            del limits[self.name]
            _put_vhost_limits(node, self.vhost, limits)


class ListVhostLimits(Query):
    """List the limits of all virtual hosts that have any, or of one."""

    vhost: str | None = None

    def run(self, node: BrokerNode) -> object:
        return [
            {"vhost": parameter["vhost"], "value": parameter["value"]}
            for parameter in node.broker.definitions.all(PARAMETER)
            if parameter["component"] == VHOST_LIMITS and parameter["value"]
            if self.vhost in (None, parameter["vhost"])
        ]


class SetUserLimits(Command):
    """Set limits of a user: max-connections, max-channels. Limits that are not given stay as they are."""

    user: str
    definition: Any

    def run(self, node: BrokerNode) -> None:
        _put_user_limits(node, self.user, self.definition)


class SetUserLimit(Command):
    """Set one limit of a user; the others stay."""

    user: str
    name: str
    value: Any

    def run(self, node: BrokerNode) -> None:
        _put_user_limits(node, self.user, {self.name: self.value})


class ClearUserLimits(Command):
    """Remove one limit of a user, or all."""

    user: str
    limit: str = "all"

    def run(self, node: BrokerNode) -> None:
        limits = user_named(node, self.user).limits
        left = {name: limit for name, limit in limits.items() if self.limit not in (name, "all")}
        _put_user(node, self.user, left)


class ListUserLimits(Query):
    """List the limits of all users that have any, or of one."""

    user: str | None = None

    def run(self, node: BrokerNode) -> object:
        return [
            {"user": user["name"], "value": user["limits"]}
            for user in node.broker.definitions.all(USER)
            if user.get("limits") and self.user in (None, user["name"])
        ]


def _vhost_limits(node: BrokerNode, vhost: str) -> Definition:
    parameter = node.broker.definitions.get(PARAMETER, vhost, VHOST_LIMITS, LIMITS)
    value = parameter["value"] if parameter is not None else None
    return dict(value) if isinstance(value, dict) else {}


def _put_vhost_limits(node: BrokerNode, vhost: str, limits: Any) -> None:
    refused = refused_parameter(VHOST_LIMITS, LIMITS, limits)
    if refused:
        raise bad_request(refused)
    put(node, PARAMETER, {"vhost": vhost, "component": VHOST_LIMITS, "name": LIMITS, "value": limits})


def _put_user_limits(node: BrokerNode, name: str, limits: Any) -> None:
    user = user_named(node, name)
    refused = refused_user_limits(limits)
    if refused:
        raise bad_request(refused)
    _put_user(node, name, {**user.limits, **dict(limits)})


def _put_user(node: BrokerNode, name: str, limits: dict[str, int]) -> None:
    put(node, USER, {**(node.broker.definitions.get(USER, name) or {}), "limits": {**limits}})
