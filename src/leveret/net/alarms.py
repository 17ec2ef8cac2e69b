"""Alarms: while the disk or the memory runs short, or publishers wait for the disk, the broker takes no messages.

RabbitMQ's alarms of the same names (3.10.8, measured): texts, defaults, and that consumers go on. Ours end only when
the resource is better than its limit by a twentieth (50 MB at most), lest they come and go with every message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

logger = logging.getLogger("leveret")

DISK_FREE_LIMIT_OCTETS = 50_000_000
MEMORY_SHARE = 0.4
_MARGIN_OCTETS_MAX = 50_000_000
# what is late: "sync" holds up nobody who publishes without confirms
HOLDING = ("journal", "pages")
LATE = {
    "journal": "the journal has been too far behind for 5 s; publishers are blocked until it has caught up",
    "pages": "messages could not be moved from memory to disk for 5 s; publishers are blocked until they have been",
    "sync": "a batch of the journal has not reached the disk after 5 s; confirms and replies wait for it",
}


class Limits(NamedTuple):
    """disk_free_octets: less free room than this is an alarm; memory_octets: so is more memory in use than this."""

    disk_free_octets: int
    memory_octets: int


class Gauges(NamedTuple):
    """How to measure: room for the data directory, memory in use; and how to give freed memory back to the system."""

    free_octets: Callable[[], int]
    memory_octets: Callable[[], int]
    trim_memory: Callable[[], object]


class Alarms:
    """Which alarms are on, by `limits`. Has no clock: `check` is called every second, and when the journal is full."""

    def __init__(self, limits: Limits, gauges: Gauges) -> None:
        self.limits = limits
        self._gauges = gauges
        self._is_on = {"disk": False, "memory": False}
        self._waits_for = ""

    @property
    def reason(self) -> str:
        """What connection.blocked says: "low on disk", "low on memory", "low on disk & memory", "waiting for the disk";
        empty if nobody is blocked."""
        names = [name for name, is_on in self._is_on.items() if is_on]
        if names:
            return f"low on {' & '.join(names)}"
        return "waiting for the disk" if self._waits_for in HOLDING else ""

    @property
    def is_waiting_for_disk(self) -> bool:
        """Publishers, or their confirms, have waited for the disk for too long."""
        return self._waits_for != ""

    @property
    def is_low_on_disk(self) -> bool:
        """The disk alarm is on."""
        return self._is_on["disk"]

    @property
    def is_low_on_memory(self) -> bool:
        """The memory alarm is on."""
        return self._is_on["memory"]

    def free_octets(self) -> int:
        """Room on the disk, now."""
        return self._gauges.free_octets()

    def used_octets(self) -> int:
        """Memory in use, now."""
        return self._gauges.memory_octets()

    def trim_memory(self) -> None:
        """Give freed memory back to the system."""
        self._gauges.trim_memory()

    def check(self, is_journal_full: bool, waits_for: str = "") -> str:
        """Measure; returns `reason`. is_journal_full: the journal lacks room, whatever the measurement says.
        waits_for: what of the disk is late, a key of LATE, "" = nothing (net/pressure.py)."""
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
