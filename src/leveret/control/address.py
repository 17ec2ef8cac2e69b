"""Where the control socket is, and who is at its other end. The broker needs no more of its calls until one comes."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

SOCKET_NAME: Final = "control.sock"
LINE_OCTETS_MAX: Final = 64 << 20
"""Of a call; an answer may have any length."""
ADDRESS_OCTETS_MAX: Final = 107  # of a Unix socket, on Linux
PEER: Final = struct.Struct("3i")  # pid, uid, gid: ucred in unix(7)


class Sender(NamedTuple):
    """The process at the other end, as the kernel knows it: user "unix:NAME", address "pid:NUMBER"."""

    user: str = ""
    address: str = ""


NOBODY: Final = Sender()


@contextlib.contextmanager
def socket_address(data_dir: str) -> Iterator[str]:
    """A path of the control socket that is short enough to bind or connect to, good inside of the with block.

    OSError if there is no such directory.
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
