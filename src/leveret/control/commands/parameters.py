"""Runtime and global parameters (RabbitMQ, Runtime Parameters)."""

from __future__ import annotations

from typing import Any

from leveret.broker.storage.definitions import GLOBAL_PARAMETER, PARAMETER
from leveret.control.command import Command, Query
from leveret.control.defining import put
from leveret.control.node import BrokerNode
from leveret.control.refusal import bad_request, not_found
from leveret.control.validation.checks import vhost_named
from leveret.control.validation.parameters import refused_parameter


class SetParameter(Command):
    """Set a parameter of a component, such as federation-upstream."""

    component: str
    name: str
    value: Any
    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)
        refused = refused_parameter(self.component, self.name, self.value)
        if refused:
            raise bad_request(refused)
        key = {"vhost": self.vhost, "component": self.component, "name": self.name}
        put(node, PARAMETER, {**key, "value": self.value})


class ClearParameter(Command):
    """Remove a parameter."""

    component: str
    name: str
    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        if not node.broker.definitions.remove(PARAMETER, self.vhost, self.component, self.name):
            text = f"no parameter '{self.name}' of component '{self.component}' in vhost '{self.vhost}'"
            raise not_found(text)


class ListParameters(Query):
    """List all parameters, or those of a virtual host or component, including limits and operator policies."""

    vhost: str | None = None
    component: str | None = None

    def run(self, node: BrokerNode) -> object:
        return [
            parameter
            for parameter in node.broker.definitions.all(PARAMETER)
            if self.vhost in (None, parameter["vhost"]) and self.component in (None, parameter["component"])
        ]


class SetGlobalParameter(Command):
    """Set a parameter of the whole broker, with any value; its meaning is up to the applications that read it."""

    name: str
    value: Any

    def run(self, node: BrokerNode) -> None:
        put(node, GLOBAL_PARAMETER, {"name": self.name, "value": self.value})


class ClearGlobalParameter(Command):
    """Remove a global parameter."""

    name: str

    def run(self, node: BrokerNode) -> None:
        if not node.broker.definitions.remove(GLOBAL_PARAMETER, self.name):
            raise not_found(f"no global parameter '{self.name}'")


class ListGlobalParameters(Query):
    """List all global parameters."""

    def run(self, node: BrokerNode) -> object:
        return node.broker.definitions.all(GLOBAL_PARAMETER)
