"""Checks of policies that have no effect or an undefined one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from leveret.broker.access.pattern import Pattern
from leveret.cli.doctor.check import Check, Hit, Severity
from leveret.cli.doctor.checks.naming import object_hit
from leveret.cli.doctor.observation import Observation, Row
from leveret.cli.terminal import counted

# apply-to -> parts of the observation, with the queue type (None: any)
APPLY_TO: Final[dict[str, tuple[tuple[str, str | None], ...]]] = {
    "all": (("queues", None), ("exchanges", None)),
    "queues": (("queues", None),),
    "exchanges": (("exchanges", None),),
    "classic_queues": (("queues", "classic"),),
    "quorum_queues": (("queues", "quorum"),),
    "streams": (("queues", "stream"),),
}


def matches_nothing(seen: Observation) -> Iterator[Hit]:
    for kind, policy in _policies(seen):
        if not _matched(seen, policy):
            yield object_hit(
                kind,
                policy,
                f"pattern {policy['pattern']!r} matches none of the {policy['apply-to']} in the virtual host",
                CLEAR=_clear(kind),
            )


def shadowed(seen: Observation) -> Iterator[Hit]:
    for kind, policy in _policies(seen):
        if kind == "operator policy":
            continue  # only leveret tells which operator policy is in effect
        matched = _matched(seen, policy)
        in_effect = Counter(str(row.get("policy")) for row in matched if row.get("policy"))
        if matched and not in_effect[policy["name"]] and in_effect:
            other, times = in_effect.most_common(1)[0]
            yield object_hit(
                kind,
                policy,
                f"it matches {counted(len(matched), 'object')} but applies to none of them: {times:,} have {other!r}, "
                "which has a higher priority",
                CLEAR=_clear(kind),
            )


def ambiguous(seen: Observation) -> Iterator[Hit]:
    rows = seen.rows("policies")
    for index, policy in enumerate(rows):
        for other in rows[index + 1 :]:
            if (other["vhost"], other["priority"]) != (policy["vhost"], policy["priority"]):
                continue
            theirs = {(row["vhost"], row["name"]) for row in _matched(seen, other)}
            both = [row for row in _matched(seen, policy) if (row["vhost"], row["name"]) in theirs]
            if both:
                yield object_hit(
                    "policy",
                    policy,
                    f"this policy and {other['name']!r} both have priority {policy['priority']} and match "
                    f"{counted(len(both), 'object')}, such as {both[0]['name']!r}",
                )


def _policies(seen: Observation) -> Iterator[tuple[str, Row]]:
    yield from (("policy", row) for row in seen.rows("policies"))
    yield from (("operator policy", row) for row in seen.rows("operator_policies"))


def _clear(kind: str) -> str:
    return f"clear_{kind.replace(' ', '_')}"


def _matched(seen: Observation, policy: Row) -> list[Row]:
    pattern = _pattern(str(policy["pattern"]))
    return [
        row
        for part, kind in APPLY_TO.get(str(policy.get("apply-to")), ())
        for row in seen.rows(part)
        if row["vhost"] == policy["vhost"]
        and row["name"]
        and kind in (None, row.get("type"))
        and pattern.matches(row["name"])
    ]


@lru_cache(1024)
def _pattern(text: str) -> Pattern:
    return Pattern(text)


W, H, E = Severity.WARNING, Severity.HINT, Severity.ERROR
CHECKS: Final = (
    Check(
        "policy-matches-nothing", W, "Policies that match nothing",
        "An intended limit, federation or dead letter exchange is not in effect. Often the pattern is misspelt, or "
        "the policy applies to the wrong kind of object.",
        "Compare its pattern with `ctl list_queues -p VHOST name`, or delete the policy: `ctl CLEAR -p VHOST NAME`",
        matches_nothing, ("policies", "operator_policies", "queues", "exchanges"),
    ),
    Check(
        "policy-shadowed", W, "Policies that are overridden everywhere",
        "Only the matching policy with the highest priority applies to an object; policies are not merged.",
        "Move its keys into the other policy, raise its priority, or delete it: `ctl CLEAR -p VHOST NAME`",
        shadowed, ("policies", "queues", "exchanges"),
    ),
    Check(
        "policy-ambiguous", W, "Policies of equal priority for the same objects",
        "It is undefined which of them applies, and that can change at any time.",
        "Give them different priorities: `ctl set_policy -p VHOST --priority 1 NAME ...`",
        ambiguous, ("policies", "queues", "exchanges"),
    ),
)  # fmt: skip
