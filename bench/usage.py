"""Processor time and memory of a broker: a process with its descendants, all threads (Linux)."""

import time
from collections.abc import Callable
from pathlib import Path

PROC = Path("/proc")
SETTLE_S = 30
IDLE_SHARE = 0.05
"""Share of a processor; the broker's periodic work takes less."""


def family(pid: int) -> list[int]:
    """Return the ids of the process and all its descendants."""
    parents: dict[int, int] = {}
    for stat in PROC.glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended
        parents[int(stat.parent.name)] = int(fields[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


class Usage:
    """Resource usage of the processes that a broker has now."""

    def __init__(self, pid: int) -> None:
        self._pids = family(pid)

    def processor_s(self) -> float:
        """Return their processor time, to the nanosecond (from schedstat; stat counts units of 10 ms)."""
        total_ns = 0
        for pid in self._pids:
            for task in (PROC / str(pid) / "task").glob("[0-9]*/schedstat"):
                try:
                    total_ns += int(task.read_text().split()[0])
                except OSError:
                    continue  # the thread has ended
        return total_ns / 1e9

    def memory_octets(self) -> int:
        """Return their anonymous resident memory; mapped files do not count."""
        total = 0
        for pid in self._pids:
            for line in (PROC / str(pid) / "status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    total += int(line.split()[1]) * 1024
        return total

    def settle(self) -> None:
        """Wait until they are idle: for example, until everything is written to the disk."""
        for _ in range(SETTLE_S * 4):
            before_s = self.processor_s()
            time.sleep(0.25)
            if self.processor_s() - before_s < IDLE_SHARE * 0.25:
                return

    def cost_us(self, count: int, action: Callable[[], object]) -> float:
        """Return the processor time in µs for each of the `count` things that the action makes the broker do."""
        before_s = self.processor_s()
        action()
        return (self.processor_s() - before_s) * 1e6 / count
