"""The control socket's address and callers; all of this package that the broker imports before the first call."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

SOCKET_NAME: Final = "control.sock"
LINE_OCTETS_MAX: Final = 64 << 20
"""Maximum length of a call; answers have no limit."""
ADDRESS_OCTETS_MAX: Final = 107  # longest path that Linux accepts for a Unix socket
PEER: Final = struct.Struct("3i")  # pid, uid, gid: struct ucred, see unix(7)


class LocalProcess(NamedTuple):
    """The calling process as the kernel reports it: user "unix:NAME", address "pid:NUMBER"."""

    user: str = ""
    address: str = ""


NOBODY: Final = LocalProcess()


@contextlib.contextmanager
def socket_address(data_dir: str) -> Iterator[str]:
    """Yield a path of the control socket that is short enough to bind or connect to, valid inside the with block.

    Raises OSError if the data directory does not exist.
    """
    path = os.path.join(data_dir, SOCKET_NAME)
    if len(os.fsencode(path)) <= ADDRESS_OCTETS_MAX:
        yield path
        return
    directory = os.open(data_dir, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET_NAME}"
    finally:
        os.close(directory)
