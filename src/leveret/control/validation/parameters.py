"""Runtime parameters: the components that have them, and validation of their values (RabbitMQ, Runtime Parameters)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.broker.storage.definitions import OPERATOR_POLICY, VHOST_LIMITS
from leveret.control.validation import federation_rules, policy_rules, rules
from leveret.control.validation.erlang import term
from leveret.control.validation.rules import Rule, complaints

LIMITS: Final = "limits"  # name of the only parameter of vhost-limits that has an effect
_VHOST_LIMITS: Final = {"max-connections": Rule(rules.integer), "max-queues": Rule(rules.integer)}
_USER_LIMITS: Final = {"max-connections": Rule(rules.integer), "max-channels": Rule(rules.integer)}

def _vhost_limits(name: str, value: object) -> list[str]:
    found = complaints(name, _VHOST_LIMITS, value)
    return found if found or name == LIMITS else [f"name not recognised: {term(name)}"]


# validates a parameter's name and value; returns complaints
Validator = Callable[[str, object], list[str]]
COMPONENTS: Final[dict[str, Validator]] = {
    OPERATOR_POLICY: lambda name, value: complaints(name, policy_rules.policy(is_operator=True), value),
    VHOST_LIMITS: _vhost_limits,
    "federation-upstream": federation_rules.upstream,
    "federation-upstream-set": federation_rules.upstream_set,
}


def refused_policy(name: str, pattern: object, definition: object, priority: object, apply_to: object) -> str:
    """Return the reason for which RabbitMQ refuses a policy, "" if it is valid."""
    value = {"pattern": pattern, "definition": definition, "priority": priority, "apply-to": apply_to}
    return _reason(complaints(name, policy_rules.policy(is_operator=False), value))


def refused_parameter(component: str, name: str, value: object) -> str:
    """Return why RabbitMQ refuses a parameter, operator policies and limits included, "" if it is valid."""
    if component == "policy":
        return "policies may not be set using this method"
    if component not in COMPONENTS:
        return _reason([f"component {component} not found"])
    return _reason(COMPONENTS[component](name, value))


def refused_user_limits(limits: object) -> str:
    """Return the reason for which RabbitMQ refuses the limits of a user, "" if they are valid."""
    return next(iter(complaints("user-limits", _USER_LIMITS, limits)), "")


def _reason(found: list[str]) -> str:
    return "\n".join(["Validation failed\n", *found, ""]) if found else ""
