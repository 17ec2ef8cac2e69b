"""The layout of a data directory."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from typing import Final, NamedTuple

from leveret.store.disk import Disk
from leveret.store.journal import SPARE_FILES_DEFAULT, Journal
from leveret.store.lock import LOCK_FILE_NAME
from leveret.store.reserve import FILE_NAME, SIZE_OCTETS, Reserve
from leveret.store.salvage import UNFINISHED_SUFFIX
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore

JOURNAL: Final = "journal"
SEGMENTS: Final = "segments"
STREAMS: Final = "streams"
# names that the store uses in its directories; other names are ignored
_FILES: Final = re.compile(
    r"((journal|spare)-\d{10}\.lvj|segment-\d{10}\.lvs|\d{20}\.lvs)", re.ASCII
)
_STREAM: Final = re.compile(r"\d+", re.ASCII)
_KINDS: Final = (
    (stat.S_ISDIR, "a directory"), (stat.S_ISREG, "a file"), (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip


class DirectoryUnusable(OSError):
    """Something in a data directory is not what the store needs there."""


def check_place(path: str) -> None:
    """DirectoryUnusable if this cannot be a data directory, or cannot be locked. It may be missing."""
    if os.path.lexists(path):
        _check(path, stat.S_ISDIR, "a directory", os.R_OK | os.W_OK | os.X_OK)
        _check_file(os.path.join(path, LOCK_FILE_NAME))


def check_directory(path: str) -> None:
    """Check that everything with a name of the store's can be used. DirectoryUnusable, with advice, if not.

    Opening such a thing would fail, or, with a named pipe, wait forever; skipping it would lose its messages.
    """
    _check_file(os.path.join(path, FILE_NAME))
    streams = os.path.join(path, STREAMS)
    numbered = [os.path.join(streams, name) for name in _names(streams) if _STREAM.fullmatch(name)]
    for directory in (os.path.join(path, JOURNAL), os.path.join(path, SEGMENTS), *numbered):
        for name in _names(directory):
            if _FILES.fullmatch(name) or name.endswith(UNFINISHED_SUFFIX):
                _check_file(os.path.join(directory, name))


def _names(directory: str) -> list[str]:
    """The names in a directory; empty if it does not exist."""
    if not os.path.lexists(directory):
        return []
    _check(directory, stat.S_ISDIR, "a directory", os.R_OK | os.W_OK | os.X_OK)
    return os.listdir(directory)


def _check_file(path: str) -> None:
    if os.path.lexists(path):
        _check(path, stat.S_ISREG, "a file", os.R_OK | os.W_OK)


def _check(path: str, is_right: Callable[[int], bool], wanted: str, access: int) -> None:
    cure = "Restore the original, or move this out of the data directory; its messages will then be missing"
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        target = os.readlink(path)
        reason = f"{path} is a link to {target}, which does not exist. Mount or restore the target, or remove the link"
        raise DirectoryUnusable(reason) from None
    except OSError as error:  # a link to itself
        raise DirectoryUnusable(f"{path} can't be inspected: {error.strerror}. {cure}") from None
    if not is_right(mode):
        kind = next((said for is_kind, said in _KINDS if is_kind(mode)), "something else")
        raise DirectoryUnusable(f"{path} is {kind}, but must be {wanted}. {cure}")
    if not os.access(path, access):
        user = f"the user that the broker runs as (id {os.geteuid()})"
        raise DirectoryUnusable(f"{path} can't be read and written by {user}. Change its owner or mode (chown, chmod)")


class DataDirectory(NamedTuple):
    """The parts of a data directory, in the order in which `leveret.net.server.Server` takes them."""

    journal: Journal
    segments: SegmentStore
    streams: StreamStore
    reserve: Reserve


def open_directory(
    disk: Disk,
    path: str,
    spare_files: int = SPARE_FILES_DEFAULT,
    tables_dir: str = "",
    reserve_octets: int = SIZE_OCTETS,
) -> DataDirectory:
    """The parts of the directory at `path`; what is missing is created. OSError if the system refuses.

    tables_dir: directory of the streams' tables, "" = in the data directory. reserve_octets: room kept for a full disk.
    """
    return DataDirectory(
        Journal(disk, os.path.join(path, JOURNAL), spare_files=spare_files),
        SegmentStore(disk, os.path.join(path, SEGMENTS)),
        StreamStore(disk, os.path.join(path, STREAMS), tables_dir=tables_dir),
        Reserve(disk, os.path.join(path, FILE_NAME), reserve_octets),
    )
