"""Processor time and memory of a broker: a process with its descendants, all threads (Linux)."""

import time
from collections.abc import Callable
from pathlib import Path

PROC = Path("/proc")
SETTLE_S = 30
IDLE_SHARE = 0.05
"""Of a processor; what happens once in a second, whatever happens else, is less."""


def family(pid: int) -> list[int]:
    """The process and all that descend from it."""
    parents: dict[int, int] = {}
    for stat in PROC.glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(stat.parent.name)] = int(fields[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


class Usage:
    """What the processes that a broker has now use."""

    def __init__(self, pid: int) -> None:
        self._pids = family(pid)

    def processor_s(self) -> float:
        """Time on a processor since they began, to the nanosecond (schedstat; stat knows 10 ms only)."""
        total_ns = 0
        for pid in self._pids:
            for task in (PROC / str(pid) / "task").glob("[0-9]*/schedstat"):
                try:
                    total_ns += int(task.read_text().split()[0])
                except OSError:
                    continue  # the thread has ended
        return total_ns / 1e9

    def memory_octets(self) -> int:
        """Resident memory, anonymous: what is mapped from files is not counted."""
        total = 0
        for pid in self._pids:
            for line in (PROC / str(pid) / "status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    total += int(line.split()[1]) * 1024
        return total

    def settle(self) -> None:
        """Wait until they have nothing to do: what is left to be written to the disk, for example."""
        for _ in range(SETTLE_S * 4):
            before_s = self.processor_s()
            time.sleep(0.25)
            if self.processor_s() - before_s < IDLE_SHARE * 0.25:
                return

    def cost_us(self, count: int, action: Callable[[], object]) -> float:
        """Processor time in µs for each of the `count` things that the action has the broker do."""
        before_s = self.processor_s()
        action()
        return (self.processor_s() - before_s) * 1e6 / count
