"""Validation of policies (RabbitMQ, Policies; the error texts are those of 3.10.8, word for word).

From later versions come consumer-timeout and the additional values of apply-to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.broker.policies import APPLY_TO
from leveret.broker.streams.age import age_us
from leveret.broker.streams.limits import SEGMENT_OCTETS_MAX
from leveret.control import rules
from leveret.control.erlang import pairs, term
from leveret.control.rules import Rule

FEDERATION: Final = ("federation-upstream", "federation-upstream-set", "federation-upstream-pattern")
# the keys that an operator policy may set
OPERATOR_KEYS: Final = (
    "expires", "message-ttl", "max-length", "max-length-bytes", "max-in-memory-length", "max-in-memory-bytes",
    "delivery-limit",
)  # fmt: skip


def _integer(smallest: int, largest: int | None = None) -> Callable[[object], bool]:
    def is_fine(value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
            return False
        return largest is None or value <= largest

    return is_fine


def _word(*words: str) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and value in words


def _text(value: object) -> bool:
    return isinstance(value, str)


def _age(value: object) -> bool:
    return isinstance(value, str) and age_us(value) > 0


# key -> the check of its value, and RabbitMQ's words for a value that fails it
KEYS: Final[dict[str, tuple[Callable[[object], bool], str]]] = {
    "alternate-exchange": (_text, "is not a valid alternate exchange name"),
    "dead-letter-exchange": (_text, "is not a valid dead letter exchange name"),
    "dead-letter-routing-key": (_text, "is not a valid dead letter routing key"),
    "dead-letter-strategy": (_word("at-most-once", "at-least-once"), "is not a valid dead letter strategy"),
    "message-ttl": (_integer(0), "is not a valid message TTL"),
    "expires": (_integer(1), "is not a valid queue expiry"),
    "max-length": (_integer(0), "is not a valid maximum length"),
    "max-length-bytes": (_integer(0), "is not a valid maximum length in bytes"),
    "max-in-memory-length": (_integer(0), "is not a valid maximum memory in bytes"),
    "max-in-memory-bytes": (_integer(0), "is not a valid maximum memory in bytes"),
    "overflow": (_word("drop-head", "reject-publish", "reject-publish-dlx"), "is not a valid overflow value"),
    "delivery-limit": (_integer(0), "is not a valid delivery limit"),
    "consumer-timeout": (_integer(0), "is not a valid consumer timeout"),
    "queue-mode": (_word("default", "lazy"), "is not a valid queue-mode value"),
    "queue-version": (_integer(1, 2), "is not a valid queue-version value"),
    "queue-leader-locator": (
        _word("client-local", "balanced", "random", "least-leaders"),
        "is not a valid queue leader locator value",
    ),
    "queue-master-locator": (
        _word("client-local", "min-masters", "random"),
        "invalid queue-master-locator value",
    ),
    "max-age": (_age, "is not a valid max age"),
    "initial-cluster-size": (_integer(0), "is not a valid cluster size"),
    "stream-max-segment-size-bytes": (_integer(0, SEGMENT_OCTETS_MAX), "is not a valid segment size"),
    "federation-upstream": (_text, "is not a valid federation upstream name"),
    "federation-upstream-set": (_text, "is not a valid federation upstream set name"),
    "federation-upstream-pattern": (_text, "is not a valid federation upstream pattern name"),
}
_MIRRORING: Final = (
    "ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown", "ha-promote-on-failure",
)  # fmt: skip


def definition(settings: object, is_operator: bool) -> str:
    """Return what is wrong with the definition of a policy or an operator policy, "" if it is valid."""
    if settings in ({}, []):
        return "no policy provided"
    if not isinstance(settings, dict):
        return f"definition must be a dictionary: {term(settings)}"
    known = OPERATOR_KEYS if is_operator else (*KEYS, *_MIRRORING)
    for key, value in sorted(settings.items()):
        if key in KEYS and key in known and not KEYS[key][0](value):
            return f"{term(value)} {KEYS[key][1]}"
    unknown = {key: value for key, value in settings.items() if key not in known}
    if is_operator:
        complaint = ""
    else:
        complaint = _federation(settings) or _mirroring(settings)
    return complaint or (f"{pairs(unknown)} are not recognised policy settings" if unknown else "")


def _federation(settings: dict[str, object]) -> str:
    if sum(key in settings for key in FEDERATION) > 1:
        return f"cannot specify {FEDERATION[0]}, {FEDERATION[1]} or {FEDERATION[2]} together"
    pattern = settings.get("federation-upstream-pattern")
    complaint = rules.regex_complaint(pattern) if isinstance(pattern, str) else ""
    return f"could not compile pattern {pattern} to a regular expression. Error: {complaint}" if complaint else ""


def _mirroring(settings: dict[str, object]) -> str:
    """Validate the ha-* keys, although they have no effect on a single node."""
    if not any(key in settings for key in _MIRRORING):
        return ""
    if "ha-mode" not in settings:
        return "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
    mode, params = settings["ha-mode"], settings.get("ha-params")
    shown = term(params) if "ha-params" in settings else "none"
    if mode not in ("all", "exactly", "nodes"):
        return f"{term(mode)} is not a valid ha-mode value"
    if mode == "all" and "ha-params" in settings:
        return 'ha-mode="all" does not take parameters'
    if mode == "exactly" and (isinstance(params, bool) or not isinstance(params, int)):
        return f'ha-mode="exactly" takes an integer, {shown} given'
    if mode == "nodes" and not isinstance(params, list):
        return f'ha-mode="nodes" takes a list, {shown} given'
    sync_mode, size = settings.get("ha-sync-mode", "manual"), settings.get("ha-sync-batch-size", 1)
    if sync_mode not in ("manual", "automatic"):
        return f'ha-sync-mode must be "manual" or "automatic", got {term(sync_mode)}'
    if not _integer(1)(size):
        return f"ha-sync-batch-size takes an integer greater than 0, {term(size)} given"
    for key in ("ha-promote-on-shutdown", "ha-promote-on-failure"):
        if settings.get(key, "always") not in ("always", "when-synced"):
            return f'{key} must be "always" or "when-synced", got {term(settings[key])}'
    return ""


def _apply_to(name: str, value: object) -> str:
    if isinstance(value, str) and value in APPLY_TO:
        return ""
    shown = value if isinstance(value, str) else term(value)
    return f"apply-to '{shown}' unrecognised; should be 'queues', 'exchanges' or 'all'"


def policy(is_operator: bool) -> dict[str, Rule]:
    """Return the rules for the fields of a policy or an operator policy."""
    return {
        "priority": Rule(rules.number, mandatory=True),
        "pattern": Rule(rules.regex, mandatory=True),
        "apply-to": Rule(_apply_to),
        "definition": Rule(lambda name, value: definition(value, is_operator), mandatory=True),
    }
