"""Alarms: while disk or memory is short, or publishers wait for the disk too long, the broker accepts no messages.

They follow RabbitMQ's alarms of the same names (3.10.8, measured) in texts and defaults, and in that consumers go on.
leveret's alarms end only when the resource is better than its limit by a twentieth (50 MB at most), so that they do not
toggle with every message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

logger = logging.getLogger("leveret")

DISK_FREE_LIMIT_OCTETS = 50_000_000
MEMORY_SHARE = 0.4
_MARGIN_OCTETS_MAX = 50_000_000
# the delays that hold up all publishers; "sync" does not hold up those that use no confirms
HOLDING = ("journal", "pages")
LATE = {
    "journal": "the journal has been too far behind for 5 s; publishers are blocked until it has caught up",
    "pages": "messages could not be moved from memory to disk for 5 s; publishers are blocked until they have been",
    "sync": "a batch of the journal has not reached the disk after 5 s; confirms and replies wait for it",
}


class ResourceLimits(NamedTuple):
    """Limits of the resources: an alarm is on with less free disk space, or with more memory in use."""

    disk_free_octets: int
    memory_octets: int


class Gauges(NamedTuple):
    """Functions that measure free space for the data directory and memory in use, and one that trims freed memory."""

    free_octets: Callable[[], int]
    memory_octets: Callable[[], int]
    trim_memory: Callable[[], object]


class Alarms:
    """Which alarms are on, according to `limits`. Call `check` every second, and when the journal is full."""

    def __init__(self, limits: ResourceLimits, gauges: Gauges) -> None:
        self.limits = limits
        self._gauges = gauges
        self._is_on = {"disk": False, "memory": False}
        self._waits_for = ""

    @property
    def reason(self) -> str:
        """The reason for connection.blocked, empty if nobody is blocked.

        One of "low on disk", "low on memory", "low on disk & memory", "waiting for the disk".
        """
        names = [name for name, is_on in self._is_on.items() if is_on]
        if names:
            return f"low on {' & '.join(names)}"
        return "waiting for the disk" if self._waits_for in HOLDING else ""

    @property
    def is_waiting_for_disk(self) -> bool:
        """Whether publishers, or their confirms, have waited for the disk for too long."""
        return self._waits_for != ""

    @property
    def is_low_on_disk(self) -> bool:
        """Whether the disk alarm is on."""
        return self._is_on["disk"]

    @property
    def is_low_on_memory(self) -> bool:
        """Whether the memory alarm is on."""
        return self._is_on["memory"]

    def free_octets(self) -> int:
        """Free space on the disk, measured now."""
        return self._gauges.free_octets()

    def used_octets(self) -> int:
        """Memory in use, measured now."""
        return self._gauges.memory_octets()

    def trim_memory(self) -> None:
        """Return freed memory to the system."""
        self._gauges.trim_memory()

    def check(self, is_journal_full: bool, waits_for: str = "") -> str:
        """Measure, and return `reason`.

        is_journal_full: the journal lacks room, whatever the measurement says. waits_for: which work of the disk is
        late, a key of LATE, "" = none (net/pressure.py).
        """
        self._wait("" if is_journal_full else waits_for)
        free, limit = self._gauges.free_octets(), self.limits.disk_free_octets
        needed = limit + _margin(limit) if self._is_on["disk"] else limit
        figures = f"{_mb(free)} free, the limit is {_mb(limit)}"
        if is_journal_full:
            figures += ", and the journal has no room to grow"
        self._set("disk", free < needed or is_journal_full, figures)

        used, limit = self._gauges.memory_octets(), self.limits.memory_octets
        if self._is_on["memory"]:
            self._gauges.trim_memory()
            used, allowed = self._gauges.memory_octets(), limit - _margin(limit)
        else:
            allowed = limit
        self._set("memory", used > allowed, f"{_mb(used)} in use, the high watermark is {_mb(limit)}")
        return self.reason

    def _wait(self, what: str) -> None:
        was, self._waits_for = self._waits_for, what
        if what and not was:
            logger.warning("waiting for the disk: %s", LATE[what])
        elif was and not what:
            logger.warning("no longer waiting for the disk")

    def _set(self, name: str, is_on: bool, figures: str) -> None:
        if is_on == self._is_on[name]:
            return
        self._is_on[name] = is_on
        if is_on:
            logger.warning("low on %s: %s; publishers are blocked", name, figures)
        else:
            logger.warning("no longer low on %s: %s", name, figures)


def _margin(limit: int) -> int:
    return min(limit // 20, _MARGIN_OCTETS_MAX)


def _mb(octets: int) -> str:
    return f"{octets / 1e6:,.1f} MB"
