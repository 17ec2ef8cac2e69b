"""What the machine has: free disk space, memory in use, total memory. For Linux; control groups are respected."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from leveret.net.alarms import Gauges
from leveret.net.malloc import trim_memory

CGROUPS = "/sys/fs/cgroup"
StrPath = str | os.PathLike[str]


def gauges(directory: str) -> Gauges:
    """Measurements of this process, and of the file system that `directory` is on."""

    def free_octets() -> int:
        status = os.statvfs(directory)
        return status.f_bavail * status.f_frsize

    return Gauges(free_octets, memory_octets, trim_memory)


def memory_octets() -> int:
    """The process's resident memory, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def machine_memory_octets(groups: StrPath = CGROUPS, own: StrPath = "/proc/self/cgroup") -> int:
    """The machine's memory, or the limit of the process's control group (version 2 or 1), if that is less."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError), open(own) as file:
        for line in file.read().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                limits += _group_limits(groups, path, "memory.max")
            elif "memory" in controllers.split(","):
                limits += _group_limits(os.path.join(groups, "memory"), path, "memory.limit_in_bytes")
    return min(limits)


def _group_limits(root: StrPath, path: str, name: str) -> Iterator[int]:
    """The limits of a group and of its parents. In a container the group's own path may not be visible."""
    group = path.strip("/")
    while True:
        with contextlib.suppress(OSError, ValueError), open(os.path.join(root, group, name)) as file:
            yield int(file.read())  # there may be no such file, or it contains "max"
        if not group:
            return
        group = os.path.dirname(group)
