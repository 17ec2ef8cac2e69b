"""What the machine has: room on the disk, memory in use, memory in all. Linux; control groups are respected."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from leveret.net.alarms import Gauges

CGROUPS = Path("/sys/fs/cgroup")


def gauges(directory: str) -> Gauges:
    """Measurements of this process, and of the file system that `directory` is on."""

    def free_octets() -> int:
        status = os.statvfs(directory)
        return status.f_bavail * status.f_frsize

    return Gauges(free_octets, memory_octets, _give_back())


def memory_octets() -> int:
    """The process's resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def machine_memory_octets(groups: Path = CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int:
    """The machine's memory, or what the process's control group (version 2 or 1) may use, if that is less."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                limits += _group_limits(groups, path, "memory.max")
            elif "memory" in controllers.split(","):
                limits += _group_limits(groups / "memory", path, "memory.limit_in_bytes")
    return min(limits)


def _group_limits(root: Path, path: str, name: str) -> list[int]:
    """The limits of a group and of those around it. In a container the group's own path may not be visible."""
    found = []
    group = root / path.lstrip("/")
    for folder in [group, *group.parents]:
        with contextlib.suppress(OSError, ValueError):  # no such file; "max"
            found.append(int((folder / name).read_text()))
        if folder == root:
            break
    return found


def _give_back() -> Callable[[], object]:
    """A function that returns freed memory to the system: without it glibc keeps most, and an alarm would never end."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: trim(0)) if trim is not None else (lambda: None)
