"""Facts about the machine, and about the broker's process if it runs here."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import Final

LISTENING: Final = "0A"  # state of a socket in /proc/net/tcp


def described() -> str:
    """Describe the machine: processors, system, Python and load."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    python = f"Python {platform.python_version()}"
    return (
        f"{os.cpu_count()} x {model}, {platform.system()} {platform.release()}, {python}, load {os.getloadavg()[0]:.1f}"
    )


def broker_pid(host: str, port: int) -> int | None:
    """Return the pid of the process that listens on this port, or None if it is remote or not accessible."""
    try:
        if not any(info[4][0] in ("127.0.0.1", "::1") for info in socket.getaddrinfo(host, port)):
            return None
        inodes = {f"socket:[{inode}]" for inode in _listening(port)}
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and _has(process, inodes):
                return int(process.name)
    except OSError:
        pass
    return None


def cpu_s(pid: int | None) -> float:
    """Return the CPU time of a process in seconds; 0.0 if unknown."""
    try:
        threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
    except OSError:
        return 0.0


def _listening(port: int) -> set[str]:
    found = set()
    for name in ("tcp", "tcp6"):
        table = Path(f"/proc/net/{name}")
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            fields = line.split()
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def _has(process: Path, links: set[str]) -> bool:
    try:
        return any(os.readlink(entry) in links for entry in (process / "fd").iterdir())
    except OSError:
        return False  # another user's process, or it has ended
