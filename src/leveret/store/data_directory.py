"""What lies where in a data directory."""

from __future__ import annotations

import os
from typing import NamedTuple

from leveret.store.disk import Disk
from leveret.store.journal import SPARE_FILES_DEFAULT, Journal
from leveret.store.reserve import FILE_NAME, SIZE_OCTETS, Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore


class DataDirectory(NamedTuple):
    """A data directory's parts, in the order in which `leveret.net.server.Server` takes them."""

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
    """The parts of the directory at `path`; what is missing is made. OSError where the system refuses.

    tables_dir: where the streams' tables lie, "" = in the directory itself; reserve_octets: room kept for a full disk.
    """
    return DataDirectory(
        Journal(disk, os.path.join(path, "journal"), spare_files=spare_files),
        SegmentStore(disk, os.path.join(path, "segments")),
        StreamStore(disk, os.path.join(path, "streams"), tables_dir=tables_dir),
        Reserve(disk, os.path.join(path, FILE_NAME), reserve_octets),
    )
