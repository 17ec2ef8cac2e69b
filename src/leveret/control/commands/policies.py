"""Policies and operator policies (RabbitMQ, Policies)."""

from __future__ import annotations

from typing import Any

from leveret.broker.storage.definitions import OPERATOR_POLICY, PARAMETER, POLICY, Definition
from leveret.control.command import Command, Query
from leveret.control.defining import put
from leveret.control.node import BrokerNode
from leveret.control.refusal import bad_request, not_found
from leveret.control.validation.checks import vhost_named
from leveret.control.validation.parameters import refused_parameter, refused_policy


class PolicyCommand(Command):
    """A command that sets a policy of some kind."""

    name: str
    pattern: Any
    definition: Any
    priority: Any = 0
    apply_to: Any = "all"
    vhost: str = "/"

    def value(self) -> Definition:
        return {
            "pattern": self.pattern, "definition": self.definition, "priority": self.priority, "apply-to": self.apply_to
        }  # fmt: skip


class SetPolicy(PolicyCommand):
    """Set a policy: `definition` applies to objects of the type apply_to whose names match `pattern`.

    Of several matching policies, that of the highest priority applies.
    """

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)
        refused = refused_policy(self.name, self.pattern, self.definition, self.priority, self.apply_to)
        if refused:
            raise bad_request(refused)
        put(node, POLICY, {"vhost": self.vhost, "name": self.name, **self.value()})


class ClearPolicy(Command):
    """Remove a policy, and with it its effect."""

    name: str
    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        if not node.broker.definitions.remove(POLICY, self.vhost, self.name):
            raise not_found(f"no policy '{self.name}' in vhost '{self.vhost}'")


class ListPolicies(Query):
    """List the policies of a virtual host, or of all of them."""

    vhost: str | None = None

    def run(self, node: BrokerNode) -> object:
        found = node.broker.definitions.all(POLICY)
        return [policy for policy in found if self.vhost is None or policy["vhost"] == self.vhost]


class SetOperatorPolicy(PolicyCommand):
    """Set an operator policy: limits that cannot be exceeded by policies or declarations."""

    def run(self, node: BrokerNode) -> None:
        vhost_named(node, self.vhost)
        refused = refused_parameter(OPERATOR_POLICY, self.name, self.value())
        if refused:
            raise bad_request(refused)
        key: Definition = {"vhost": self.vhost, "component": OPERATOR_POLICY, "name": self.name}
        put(node, PARAMETER, {**key, "value": self.value()})


class ClearOperatorPolicy(Command):
    """Remove an operator policy, and with it its effect."""

    name: str
    vhost: str = "/"

    def run(self, node: BrokerNode) -> None:
        if not node.broker.definitions.remove(PARAMETER, self.vhost, OPERATOR_POLICY, self.name):
            raise not_found(f"no operator policy '{self.name}' in vhost '{self.vhost}'")


class ListOperatorPolicies(Query):
    """List the operator policies of a virtual host, or of all of them."""

    vhost: str | None = None

    def run(self, node: BrokerNode) -> object:
        found = []
        for parameter in node.broker.definitions.all(PARAMETER):
            value, vhost = parameter["value"], parameter["vhost"]
            if parameter["component"] == OPERATOR_POLICY and isinstance(value, dict) and self.vhost in (None, vhost):
                found.append({"vhost": vhost, "name": parameter["name"], **value})
        return found
