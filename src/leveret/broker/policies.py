"""Policies: settings for all queues and exchanges whose names match a pattern (RabbitMQ, Policies; Runtime Parameters).

One policy and one operator policy apply to an object: of each kind the one with the highest priority that matches. A
policy that sets a key which the queue's type does not support does not match it. Of policies with the same priority
RabbitMQ takes any; here it is the first by name.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.access.pattern import Pattern
from leveret.broker.exchange_types.exchange_arguments import EXCHANGE, EXCHANGE_SETTINGS
from leveret.broker.policy_keys import SMALLER
from leveret.broker.queues.queue_arguments import SETTINGS, settings_not_of
from leveret.broker.queues.queue_types import CLASSIC, QUORUM, STREAM
from leveret.wire.table import Value

# "apply-to" -> queue types and exchanges; the longer names are those of RabbitMQ 3.12
APPLY_TO: Final[dict[str, tuple[str, ...]]] = {
    "all": (CLASSIC, QUORUM, STREAM, EXCHANGE),
    "queues": (CLASSIC, QUORUM, STREAM),
    "classic_queues": (CLASSIC,),
    "quorum_queues": (QUORUM,),
    "streams": (STREAM,),
    "exchanges": (EXCHANGE,),
}
# keys of mirrored queues, with which a policy matches neither quorum queues nor streams
_OF_MIRRORS: Final = ("ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-shutdown", "ha-promote-on-failure")
# keys with which a policy does not match an object of this kind
_UNKNOWN: Final[dict[str, set[str]]] = {
    CLASSIC: settings_not_of(CLASSIC),
    QUORUM: settings_not_of(QUORUM) | set(_OF_MIRRORS),
    STREAM: settings_not_of(STREAM) | set(_OF_MIRRORS),
    EXCHANGE: set(),
}
# Policies have no maximum in RabbitMQ. Nothing reaches this one: it is 35 years in microseconds.
_NUMBER_MAX: Final = 1 << 50


class Policy:
    """A policy with a checked value: its pattern, definition, priority and apply-to."""

    def __init__(self, name: str, value: dict[str, Value]) -> None:
        self.name = name
        settings, priority = value.get("definition"), value.get("priority")
        self.settings: dict[str, Value] = settings if isinstance(settings, dict) else {}
        self.priority: float = float(priority) if isinstance(priority, int | float) else 0.0
        self._pattern = Pattern(str(value.get("pattern", "")) or ".*")
        self._kinds = [
            kind
            for kind in APPLY_TO[str(value.get("apply-to", "all"))]
            if not any(key in self.settings for key in _UNKNOWN[kind])
        ]

    def matches(self, kind: str, name: str) -> bool:
        """Whether it applies to an object of this kind and name; the pattern may match anywhere in the name."""
        return kind in self._kinds and self._pattern.matches(name)


class Effect:
    """The combined settings of a policy and an operator policy, with their names ("" = none).

    Of a number that both set the smaller one applies; an operator policy sets nothing else.
    """

    def __init__(self, policy: Policy | None, operator_policy: Policy | None) -> None:
        self.policy = policy.name if policy is not None else ""
        self.operator_policy = operator_policy.name if operator_policy is not None else ""
        self.settings: dict[str, Value] = dict(policy.settings) if policy is not None else {}
        if operator_policy is not None:
            for key, value in operator_policy.settings.items():
                self.settings[key] = _smaller(self.settings.get(key), value)

    def on(self, arguments: dict[str, Value], kind: str) -> dict[str, Value]:
        """Return the effective arguments of an exchange, or a queue of this kind, declared with `arguments`."""
        if not self.settings:
            return arguments
        effective = dict(arguments)
        settings = EXCHANGE_SETTINGS if kind == EXCHANGE else SETTINGS
        for key, value in self.settings.items():
            setting = settings.get(key)
            if setting is None or not setting.rule:
                continue
            said = value
            if isinstance(value, int) and not isinstance(value, bool):
                said = min(value, _NUMBER_MAX)
            name = setting.argument
            if name not in arguments or kind in setting.by_policy:
                effective[name] = said
            elif setting.rule == SMALLER:
                effective[name] = _smaller(arguments[name], said)
        return effective


NO_EFFECT: Final = Effect(None, None)


class Policies:
    """The policies of one virtual host."""

    def __init__(self) -> None:
        self.is_changed = False  # they have not been applied to existing objects yet (enforcement.py)
        self._policies: list[Policy] = []
        self._operator_policies: list[Policy] = []
        # the same object for the same policies, so that an unchanged effect is detected by its identity
        self._effects: dict[tuple[Policy | None, Policy | None], Effect] = {(None, None): NO_EFFECT}

    def set(self, name: str, value: dict[str, Value] | None, is_operator: bool) -> None:
        """Replace the policy of this name; None removes it."""
        others = self._operator_policies if is_operator else self._policies
        gone = [policy for policy in others if policy.name == name]
        kept = [policy for policy in others if policy.name != name]
        if value is not None:
            kept.append(Policy(name, value))
        kept.sort(key=_rank)
        if is_operator:
            self._operator_policies = kept
        else:
            self._policies = kept
        self._effects = {pair: effect for pair, effect in self._effects.items() if not _has_any(pair, gone)}
        self.is_changed = True

    def effect(self, kind: str, name: str) -> Effect:
        """Return the effect on an exchange, or a queue of this kind, with this name."""
        pair = (_first(self._policies, kind, name), _first(self._operator_policies, kind, name))
        found = self._effects.get(pair)
        if found is None:
            found = self._effects[pair] = Effect(pair[0], pair[1])
        return found


def _rank(policy: Policy) -> tuple[float, str]:
    return -policy.priority, policy.name


def _has_any(pair: tuple[Policy | None, Policy | None], gone: list[Policy]) -> bool:
    return any(policy is pair[0] or policy is pair[1] for policy in gone)


def _first(policies: list[Policy], kind: str, name: str) -> Policy | None:
    for policy in policies:
        if policy.matches(kind, name):
            return policy
    return None


def _smaller(one: Value, other: Value) -> Value:
    """Return the smaller number. A negative one is no limit (x-delivery-limit), and other types do not count."""
    if not isinstance(one, int) or one < 0:
        return other
    if not isinstance(other, int) or other < 0:
        return one
    return min(one, other)
