"""Memory that is freed: kept for what is read and written next, and given back when the system runs short.

What a connection reads and writes in a turn are some hundred KiB. glibc's malloc gives blocks of that size back to the
system at once, which clears their pages, one fault each, when they are asked for again: a fifth to a half of the time
that a message of 1 KiB takes.
"""

from __future__ import annotations

import ctypes
from typing import Final

# malloc.h
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
# larger than all that is read or written in a turn
BLOCK_OCTETS_MAX: Final = 4 << 20
KEPT_OCTETS_MAX: Final = 8 << 20


_LIBRARY: Final = ctypes.CDLL(None)


def keep_freed_memory() -> None:
    """Keep up to KEPT_OCTETS_MAX at the heap's end. Does nothing where malloc has no such options."""
    mallopt = getattr(_LIBRARY, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_OCTETS_MAX)
        mallopt(_M_MMAP_THRESHOLD, BLOCK_OCTETS_MAX)


def trim_memory() -> None:
    """Return all freed memory to the system: without it glibc keeps most, and an alarm would never end."""
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
