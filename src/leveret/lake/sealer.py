"""Sealing: writes the messages between two offsets of a stream's native files to Parquet files of its table."""

from __future__ import annotations

import fcntl
import os
from typing import Final

import msgspec
import pyarrow as pa

from leveret.lake.bodies import TableBodyParser
from leveret.lake.native import ChunkRange, parts
from leveret.lake.rows import RowMaker
from leveret.lake.table_writer import FinishedFile, TableWriter
from leveret.store.disk import Disk, RealDisk
from leveret.store.stream_files import StreamDamaged
from leveret.store.tables import stream_directory, table_files
from leveret.wire.body_schema import parse_schema

ASIDE: Final = ".sealing"
"""Directory of unfinished files, inside that of all tables. Readers ignore names that begin with a dot."""
LOCK: Final = "lock"


class SealRequest(msgspec.Struct, frozen=True):
    """The request to seal the messages from offset `first` on and below `end`.

    Attributes:
        id: Returned in the answer.
        directory: Directory of the native files.
        vhost: Virtual host of the stream.
        stream: Name of the stream.
        creation: Id of the stream's creation.
        first: First offset to seal.
        end: Offset after the last one to seal.
        schema: The stream's x-leveret-schema, "" for none.
    """

    id: int
    directory: str
    vhost: str
    stream: str
    creation: str
    first: int
    end: int
    schema: str = ""


class SealResult(msgspec.Struct, frozen=True):
    """The result of a request.

    Attributes:
        id: Id of the request.
        made: The new files.
        end: All messages below this offset are sealed or lost.
        lost: Descriptions of the parts that could not be read.
        error: Why the request failed, "" if it did not.
    """

    id: int
    made: list[FinishedFile] = []
    end: int = 0
    lost: list[str] = []
    error: str = ""


class TableDisk(RealDisk):
    """Creates directories with the permissions of the umask, since other users read the tables."""

    def make_directory(self, path: str) -> None:
        path = os.path.abspath(path)
        if not os.path.isdir(path):
            parent = os.path.dirname(path)
            self.make_directory(parent)
            os.mkdir(path)
            self.sync_directory(parent)


class Sealer:
    """Writes the Parquet files under `tables_dir`; a lock file allows one sealer at a time.

    The constructor waits until an earlier sealer has ended, then deletes its unfinished files. Raises OSError.
    """

    def __init__(self, tables_dir: str, disk: Disk | None = None) -> None:
        self._disk = disk or TableDisk()
        self._tables_dir = tables_dir
        self._sealed: dict[tuple[str, str], int] = {}
        self._aside = os.path.join(tables_dir, ASIDE)
        self._disk.make_directory(self._aside)
        self._lock = os.open(os.path.join(self._aside, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        for name in self._disk.list_names(self._aside):
            if name != LOCK:
                self._disk.remove(os.path.join(self._aside, name))

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)

    def seal(self, request: SealRequest) -> SealResult:
        """Carry out a request, without messages that are sealed already.

        Raises SchemaRefused, OSError or ArrowException.
        """
        target = stream_directory(self._tables_dir, request.vhost, request.stream)
        first = max(request.first, self._sealed_of(target, request.creation))
        parser = TableBodyParser(parse_schema(request.schema)) if request.schema else None
        maker = RowMaker(parser)
        writer = TableWriter(self._disk, target, request.creation, self._aside, maker.schema)
        lost: list[StreamDamaged] = []
        try:
            segment = -1
            for part in parts(self._disk, request.directory, first, request.end, lost.append):
                if part.segment != segment:
                    writer.finish()
                segment = part.segment
                writer.add(_between(maker, part, first, request.end))
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        finally:
            pa.default_memory_pool().release_unused()
        self._sealed[target, request.creation] = end = max(first, request.end)
        return SealResult(request.id, writer.made, end, [str(each) for each in lost])

    def _sealed_of(self, target: str, creation: str) -> int:
        """Return the offset below which all is sealed. The files, which may be many, are listed once: only the sealer
        adds any."""
        end = self._sealed.pop((target, creation), None)  # removed: after a failure the files are listed again
        if end is None:
            found = [each.last + 1 for each in table_files(self._disk, target) if each.creation == creation]
            end = max(found, default=0)
        return end


def _between(maker: RowMaker, part: ChunkRange, first: int, end: int) -> pa.RecordBatch:
    rows = maker.rows(part.payload, part.first)
    start, stop = max(0, first - part.first), min(len(rows), end - part.first)
    return rows.slice(start, stop - start)
