"""Salvages damaged files: reads a file around its bad sectors, and keeps a copy of it in `salvage/`."""

from __future__ import annotations

import contextlib
import errno
import os

from leveret.store.disk import Disk

SALVAGE_DIRECTORY = "salvage"
UNFINISHED_SUFFIX = ".new"
_BLOCK_SIZE = 4096


def write_whole(disk: Disk, path: str, parts: list[bytes]) -> None:
    """Make a file appear under its name with all its bytes, or not at all.

    The caller must call `sync_directory` for the name.
    """
    unfinished = path + UNFINISHED_SUFFIX
    file = disk.create(unfinished)
    try:
        try:
            file.write(0, parts)
            file.sync()
        finally:
            file.close()
        disk.rename(unfinished, path)
    except OSError:
        with contextlib.suppress(OSError):
            disk.remove(unfinished)  # on a full disk it would be in the way of the next attempt
        raise


def read_readable(disk: Disk, path: str) -> tuple[bytes, str]:
    """A file's bytes, with zeros for what the medium does not return; and the system's error text, or "".

    OSError if the file cannot be opened, or for anything but an input/output error.
    """
    try:
        return disk.read(path), ""
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        refusal = error.strerror or str(error)
    # a bad sector fails the whole read; block by block the rest can be read
    blocks = []
    size = disk.size(path)
    for offset in range(0, size, _BLOCK_SIZE):
        length = min(_BLOCK_SIZE, size - offset)
        try:
            blocks.append(disk.read(path, offset, length).ljust(length, b"\0"))
        except OSError:
            blocks.append(bytes(length))
    return b"".join(blocks), refusal


def set_aside(disk: Disk, path: str, data: bytes) -> str:
    """Keep `data`, the bytes of the damaged file `path`, in `salvage/` beside it; returns the copy's path.

    Copies are never overwritten: a second one of the same name gets ".2". OSError if the system refuses.
    """
    salvage = os.path.join(os.path.dirname(path), SALVAGE_DIRECTORY)
    disk.make_directory(salvage)
    taken = disk.list_names(salvage)
    name = base = os.path.basename(path)
    copies = 1
    while name in taken:
        copies += 1
        name = f"{base}.{copies}"
    copy = os.path.join(salvage, name)
    write_whole(disk, copy, [data])
    disk.sync_directory(salvage)
    return copy
