"""Names of objects in findings, and names that belong to the broker itself."""

from __future__ import annotations

import re
from typing import Final

from leveret.cli.doctor.check import Hit, Severity
from leveret.cli.doctor.observation import Row

BROKERS: Final = ("amq.", "federation: ", "aliveness-test")
# names of delay levels, with prefix and number: NServiceBus's and Celery's
LEVEL_NAME: Final = re.compile(
    r"(?P<prefix>.+)\.delay-level-(?P<level>\d\d)|(?P<celery>.+_delayed)_(?P<number>\d{1,2})"
)


def object_hit(
    kind: str, row: Row, evidence: str, severity: Severity | None = None, weight: float = 0.0, **names: str
) -> Hit:
    """Return a hit on a queue, exchange or policy of a virtual host; `names` are further words of the remedy."""
    words = {"NAME": row["name"], "VHOST": row["vhost"], **names}
    return Hit(f"{kind} {row['name']!r} in {row['vhost']!r}", evidence, words, severity, weight)


def is_brokers_own(name: str) -> bool:
    """Whether the broker or a plugin created the object."""
    return name == "" or name.startswith(BROKERS)


def level_of(name: str) -> tuple[str, int] | None:
    """Return prefix and number if this is the name of a delay level."""
    found = LEVEL_NAME.fullmatch(name)
    if found is None:
        return None
    return (found["prefix"], int(found["level"])) if found["prefix"] else (found["celery"], int(found["number"]))


def span(ms: float) -> str:
    """Format milliseconds for people."""
    seconds = ms / 1000
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.1f} s"


def octets(size: float) -> str:
    """Format a size in bytes for people."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size:,.0f} bytes"
