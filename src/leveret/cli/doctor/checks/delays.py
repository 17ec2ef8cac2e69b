"""Checks of delayed messages: damaged level queues, excessive delays, and missing destinations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from leveret.cli.doctor.check import Check, Hit, Severity
from leveret.cli.doctor.checks.naming import level_of, object_hit, span
from leveret.cli.doctor.observation import Observation, count, setting
from leveret.cli.terminal import counted
from leveret.delay import LAYOUTS, Layout
from leveret.delay.tools.finding import State
from leveret.delay.tools.verification import examined

LONG_MS_MAX: Final = (1 << 32) - 1
"""The longest delay in 32 bits, 49.7 days; also the longest x-delay of RabbitMQ's delayed exchange plugin."""
NAMED_LEVELS: Final = 3
"""So many level queues with one prefix count as a layout; fewer may have such names by chance."""


class ObservedTopology:
    """The facts that layout verification needs, taken from an observation."""

    def __init__(self, seen: Observation, vhost: str) -> None:
        self._seen = seen
        self._vhost = vhost

    def bindings(self) -> set[tuple[str, str, str, str]]:
        return {
            (row["source"], row["destination_type"], row["destination"], row["routing_key"])
            for row in self._seen.rows("bindings")
            if row["vhost"] == self._vhost
        }

    def policies(self, prefix: str) -> dict[str, dict[str, Any]]:
        return {
            row["name"]: row["effective_policy_definition"]
            for row in self._seen.rows("queues")
            if row["vhost"] == self._vhost and row["name"].startswith(prefix) and row.get("effective_policy_definition")
        }

    def feature_flags(self) -> set[str]:
        return {str(row["name"]) for row in self._seen.rows("feature_flags") if row.get("state") == "enabled"}


def damaged(seen: Observation) -> Iterator[Hit]:
    for vhost, name, layout in _layouts(seen):
        queues = {row["name"]: row for row in seen.rows("queues") if row["vhost"] == vhost}
        exchanges = {row["name"] for row in seen.rows("exchanges") if row["vhost"] == vhost}
        words = {"VHOST": vhost, "LAYOUT": name}
        for finding in examined(layout, exchanges, queues, ObservedTopology(seen, vhost)):
            if finding.state.is_failure:
                severity = Severity.ERROR if finding.state is State.MISSING else Severity.WARNING
                yield Hit(
                    f"{finding.what} of layout {name!r} in {vhost!r}",
                    f"{finding.state.value}: {finding.detail}",
                    words,
                    severity,
                )


def too_long(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        for key in ("message-ttl", "expires"):
            wait_ms = setting(queue, key)
            if isinstance(wait_ms, int) and wait_ms > LONG_MS_MAX and level_of(queue["name"]) is None:
                yield object_hit("queue", queue, f"{key} is {wait_ms:,} ms ({span(wait_ms)})")
    for row in seen.rows("delayed"):
        wait_ms = count(row, "last_due_ms") - count(row, "next_due_ms")
        if row.get("type") == "exchange" and wait_ms > LONG_MS_MAX:
            yield Hit(
                f"delayed exchange {row.get('layout')!r} in {row['vhost']!r}",
                f"messages for {row['destination']!r} are due in more than {span(wait_ms)}",
            )


def parked(seen: Observation) -> Iterator[Hit]:
    for row in seen.rows("delayed"):
        if waiting := count(row, "parked"):
            yield Hit(
                f"destination {row['destination']!r} in {row['vhost']!r}",
                f"{counted(waiting, 'message')} of layout {row['layout']!r} due, but no queue is bound",
                {"VHOST": row["vhost"], "DESTINATION": row["destination"]},
            )


def _layouts(seen: Observation) -> list[tuple[str, str, Layout]]:
    """Return virtual host, name and layout of each layout that exists, completely or in part."""
    levels: dict[tuple[str, str], set[int]] = {}
    for row in [*seen.rows("queues"), *seen.rows("exchanges")]:
        if level := level_of(row["name"]):
            levels.setdefault((row["vhost"], level[0]), set()).add(level[1])
    standing = []
    for (vhost, prefix), numbers in sorted(levels.items()):
        if len(numbers) < NAMED_LEVELS:
            continue
        known = [(name, layout) for name, layout in LAYOUTS.items() if layout.prefix == prefix]
        name, layout = _fitting(seen, vhost, known) if known else ("nservicebus", LAYOUTS["nservicebus"])
        if not known:
            layout = dataclasses.replace(layout, prefix=prefix, levels=max(numbers) + 1)
            name = f"nservicebus,prefix={prefix},levels={layout.levels}"
        standing.append((vhost, name, layout))
    return standing


def _fitting(seen: Observation, vhost: str, known: list[tuple[str, Layout]]) -> tuple[str, Layout]:
    """Return the layout, of several with the same names, whose queue type exists."""
    for name, layout in known:
        rows = (seen.queues.get((vhost, layout.level_name(level))) for level in range(layout.levels))
        first = next((row for row in rows if row is not None), None)
        if first is not None and layout.queue_type in ("", first.get("type")):
            return name, layout
    return known[0]


W, H, E = Severity.WARNING, Severity.HINT, Severity.ERROR
CHECKS: Final = (
    Check(
        "delay-layout-damaged", E, "Delay levels that are incomplete or modified",
        "Delayed messages that pass a damaged level arrive early, late, at the wrong destination or never.",
        "See the details with `leveret delay verify --layout LAYOUT --api URL`; `leveret delay create --layout "
        "LAYOUT` adds missing parts",
        damaged, ("queues", "exchanges", "bindings"),
    ),
    Check(
        "delay-over-limit", W, "Delays of more than 49.7 days",
        "The milliseconds exceed 32 bits: older brokers and clients reject or wrap them, and RabbitMQ's delayed "
        "exchange delivers such messages immediately or never.",
        "Use delay levels (`leveret delay create`), which support up to 8.5 years on any broker",
        too_long, ("queues",),
    ),
    Check(
        "delayed-parked", E, "Delayed messages that are due but have no destination",
        "Their destination is no longer bound; leveret keeps them, while RabbitMQ drops them silently.",
        "Declare and bind the destination again, or cancel them: `ctl cancel_delayed -p VHOST --destination "
        "DESTINATION`",
        parked, ("delayed",),
    ),
)  # fmt: skip
