"""Sealing: the messages between two offsets of a stream's native files become Parquet files of its table."""

from __future__ import annotations

import fcntl
import os
from typing import Final

import msgspec
import pyarrow as pa

from leveret.lake.bodies import BodyParser
from leveret.lake.native import Part, parts
from leveret.lake.rows import RowMaker
from leveret.lake.table_writer import Sealed, TableWriter
from leveret.store.disk import Disk, RealDisk
from leveret.store.stream_files import StreamDamaged
from leveret.store.tables import stream_directory, table_files
from leveret.wire.body_schema import parse_schema

ASIDE: Final = ".sealing"
"""In the directory of all tables: where files are half made. Readers pass over names that begin with a dot."""
LOCK: Final = "lock"


class Request(msgspec.Struct, frozen=True):
    """Seal the messages from offset `first` on and below `end`, all of them in files and synced.

    id: comes back in the answer; directory: of the native files; vhost, stream, creation: whose they are; schema: its
    x-leveret-schema, "" for none.
    """

    id: int
    directory: str
    vhost: str
    stream: str
    creation: str
    first: int
    end: int
    schema: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What came of a request. made: the files; end: the messages below are sealed, or lost; lost: what could not be
    read, in words; error: why not all was done, "" if it was."""

    id: int
    made: list[Sealed] = []
    end: int = 0
    lost: list[str] = []
    error: str = ""


class TableDisk(RealDisk):
    """Directories of tables are made as the umask says: others than the broker shall read them."""

    def make_directory(self, path: str) -> None:
        path = os.path.abspath(path)
        if not os.path.isdir(path):
            parent = os.path.dirname(path)
            self.make_directory(parent)
            os.mkdir(path)
            self.sync_directory(parent)


class Sealer:
    """Makes the Parquet files under `tables_dir`; one at a time has the right to.

    Waits until a former one has ended, then removes what that left half made. OSError where the system refuses.
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
        """Let another one seal."""
        os.close(self._lock)

    def seal(self, request: Request) -> Answer:
        """Do it; what is sealed already is not done again. SchemaRefused, OSError and ArrowException say why not."""
        target = stream_directory(self._tables_dir, request.vhost, request.stream)
        first = max(request.first, self._sealed_of(target, request.creation))
        parser = BodyParser(parse_schema(request.schema)) if request.schema else None
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
        return Answer(request.id, writer.made, end, [str(each) for each in lost])

    def _sealed_of(self, target: str, creation: str) -> int:
        """The messages below are sealed. The files are listed once, there may be many; nobody else makes some."""
        end = self._sealed.pop((target, creation), None)  # and again if this time something goes wrong
        if end is None:
            found = [each.last + 1 for each in table_files(self._disk, target) if each.creation == creation]
            end = max(found, default=0)
        return end


def _between(maker: RowMaker, part: Part, first: int, end: int) -> pa.RecordBatch:
    rows = maker.rows(part.payload, part.first)
    start, stop = max(0, first - part.first), min(len(rows), end - part.first)
    return rows.slice(start, stop - start)
