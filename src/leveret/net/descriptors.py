"""Enlarges the table of open files while the process has one thread.

Linux enlarges a process's table of open files when it is full: at 64, 256, 512 and so on. If threads share the table
the kernel waits there until every processor has done something else (synchronize_rcu): 5 to 16 ms were measured, in the
accept of a connection, with all other connections waiting.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
from typing import Final

# how many files are kept for journal, segments, streams, listeners, the control socket and its clients
KEPT_FILES: Final = 200
# eight bytes of kernel memory each
ROOM: Final = 1 << 14


def room_for_sockets() -> int:
    """How many sockets this process may have while it can still open KEPT_FILES other files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return max(soft - KEPT_FILES, soft // 2)


def take_room() -> None:
    """Enlarge the table for as many files as this process may open, ROOM at most."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ROOM if soft == resource.RLIM_INFINITY else min(soft, ROOM)
    with contextlib.suppress(OSError, ValueError):  # if this fails, the table is enlarged when it is full
        one = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.close(fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, most - 1))
        finally:
            os.close(one)
