"""Settings of malloc: freed memory is kept for the next reads and writes, and returned when the system runs short.

What a connection reads and writes in a turn are some hundred KiB. glibc's malloc returns blocks of that size to the
system at once; when they are asked for again their pages are cleared, with one fault each. That takes a fifth to a half
of the time of a message of 1 KiB.
"""

from __future__ import annotations

import ctypes
from typing import Final

# malloc.h
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
# larger than anything that is read or written in a turn
BLOCK_OCTETS_MAX: Final = 4 << 20
KEPT_OCTETS_MAX: Final = 8 << 20


_LIBRARY: Final = ctypes.CDLL(None)


def keep_freed_memory() -> None:
    """Keep up to KEPT_OCTETS_MAX of freed memory at the end of the heap. Does nothing if malloc has no such options."""
    mallopt = getattr(_LIBRARY, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_OCTETS_MAX)
        mallopt(_M_MMAP_THRESHOLD, BLOCK_OCTETS_MAX)


def trim_memory() -> None:
    """Return all freed memory to the system. Without this glibc keeps most of it, and an alarm would never end."""
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
