"""Validation of policies (RabbitMQ, Policies; the error texts are those of 3.10.8, word for word).

Keys of arguments stand in their tables, broker/queues/queue_arguments.py and
broker/exchange_types/exchange_arguments.py. Of later versions there are consumer-timeout and the longer words of
apply-to.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.exchange_types.exchange_arguments import EXCHANGE_SETTINGS
from leveret.broker.policies import APPLY_TO
from leveret.broker.policy_keys import PolicyKey, is_text, whole
from leveret.broker.queues.queue_arguments import SETTINGS
from leveret.control.validation import rules
from leveret.control.validation.erlang import pairs, term
from leveret.control.validation.rules import Rule

FEDERATION: Final = ("federation-upstream", "federation-upstream-set", "federation-upstream-pattern")
KEYS: Final = SETTINGS | EXCHANGE_SETTINGS | {
    "federation-upstream": PolicyKey(is_text, "is not a valid federation upstream name"),
    "federation-upstream-set": PolicyKey(is_text, "is not a valid federation upstream set name"),
    "federation-upstream-pattern": PolicyKey(is_text, "is not a valid federation upstream pattern name"),
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
    known = {key for key, setting in KEYS.items() if setting.is_for_operators or not is_operator}
    if not is_operator:
        known.update(_MIRRORING)
    for key, value in sorted(settings.items()):
        if key in KEYS and key in known and not KEYS[key].fits(value):
            return f"{term(value)} {KEYS[key].complaint}"
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
    if not whole(1)(size):
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
