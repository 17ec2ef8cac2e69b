"""Facts that must be read from sealed files: their hash, and the arrival times of their first and last messages.

They are read once, on a separate thread, and cached in a small database, as a stream may have many large files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from leveret.store.disk import RealDisk
from leveret.store.stream_files import Segment, StreamDamaged, StreamFiles

logger = logging.getLogger("leveret.admin")

FILE_NAME: Final = "examined.db"
"""Name of the database in the data directory; it may be deleted at any time."""
READ_OCTETS: Final = 1 << 20
_SCHEMA: Final = """create table if not exists examined
    (path text primary key, size integer, stamp text, sha256 text, first_us integer, last_us integer)"""


@dataclass(frozen=True, slots=True)
class Examined:
    """The facts of one file."""

    sha256: str  # in hex
    first_us: int | None  # arrival of the oldest message, wall clock, µs; None if unknown
    last_us: int | None  # arrival of the newest message


@dataclass(frozen=True, slots=True)
class ExaminedFile:
    """A file that will not change any more."""

    path: str
    size: int  # in bytes
    stamp: str  # distinguishes it from other files with the same path


def sealed_file(path: str) -> ExaminedFile:
    """Return the file at this path. Raises FileNotFoundError if it does not exist."""
    status = os.stat(path)
    return ExaminedFile(path, status.st_size, f"{status.st_ino}-{status.st_mtime_ns}")


class Examiner:
    """Reads and caches facts of files.

    `database` is a path; if it cannot be used, facts are read again in each run of the process.
    """

    def __init__(self, database: str = ":memory:") -> None:
        self._thread = ThreadPoolExecutor(1, "leveret-examiner")
        self._lock = threading.Lock()
        self._coming: dict[ExaminedFile, Future[Examined | None]] = {}
        self._database = database
        self._connection: sqlite3.Connection | None = None

    def known(self, file: ExaminedFile) -> Examined | None:
        """Return the cached facts; None if there are none."""
        query = "select sha256, first_us, last_us from examined where path = ? and size = ? and stamp = ?"
        with self._lock:
            found = self._open().execute(query, (file.path, file.size, file.stamp)).fetchone()
        return None if found is None else Examined(*found)

    def find_out(self, file: ExaminedFile) -> Future[Examined | None]:
        """Read a file, if that has not begun yet. The result is None if it has gone or cannot be read."""
        with self._lock:
            if file not in self._coming:
                self._coming[file] = self._thread.submit(self._found_out, file)
            return self._coming[file]

    def forget(self, directory: str, files: Iterable[ExaminedFile]) -> None:
        """Forget the files in this directory, at any depth, except these."""
        there, start = {file.path for file in files}, directory.rstrip("/") + "/"
        query = "select path from examined where substr(path, 1, ?) = ?"
        try:
            with self._lock:
                connection = self._open()
                gone = [row for row in connection.execute(query, (len(start), start)).fetchall() if row[0] not in there]
                connection.executemany("delete from examined where path = ?", gone)
                connection.commit()
        except sqlite3.Error as error:
            logger.warning("%s can't be written: %s", self._database, error)

    def _found_out(self, file: ExaminedFile) -> Examined | None:
        try:
            found = examine(file)
            query = "insert or replace into examined values (?, ?, ?, ?, ?, ?)"
            values = (file.path, file.size, file.stamp, found.sha256, found.first_us, found.last_us)
            with self._lock:
                self._open().execute(query, values)
                self._open().commit()
            return found
        except FileNotFoundError:
            return None  # deleted by retention meanwhile
        except (OSError, StreamDamaged, sqlite3.Error) as error:
            logger.warning("%s can't be examined: %s", file.path, error)
            return None
        finally:
            with self._lock:
                self._coming.pop(file, None)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _connected(self._database) or _connected(":memory:")
            assert self._connection is not None
        return self._connection


def _connected(database: str) -> sqlite3.Connection | None:
    """Open the database; None if it can't be used. As it is written without syncs, a damaged one is recreated."""
    for _ in range(2):
        try:
            return _prepared(database)
        except sqlite3.Error as error:
            logger.warning("%s can't be used: %s", database, error)
        with contextlib.suppress(OSError):
            os.remove(database)
    return None


def _prepared(database: str) -> sqlite3.Connection:
    connection = sqlite3.connect(database, check_same_thread=False)
    connection.execute("pragma synchronous = off")
    connection.execute(_SCHEMA)
    gone = [row for row in connection.execute("select path from examined").fetchall() if not os.path.exists(row[0])]
    connection.executemany("delete from examined where path = ?", gone)
    connection.commit()
    return connection


def examine(file: ExaminedFile) -> Examined:
    """Read a native or a Parquet file. Raises OSError or StreamDamaged if it cannot be read."""
    digest = sha256()
    with open(file.path, "rb", buffering=0) as source:
        left = file.size
        while left > 0 and (data := source.read(min(READ_OCTETS, left))):
            digest.update(data)
            left -= len(data)
    times = native_times(file.path, file.size) if file.path.endswith(".lvs") else _table_times(file.path)
    return Examined(digest.hexdigest(), *times)


def native_times(path: str, size: int) -> tuple[int, int] | tuple[None, None]:
    """Return the times of the first `size` bytes of a native file, from the headers of its chunks."""
    first = int(os.path.basename(path).removesuffix(".lvs"))
    segment = Segment(first, first, size)
    StreamFiles(RealDisk(), os.path.dirname(path)).look_into(segment)
    places = segment.places
    return (places[0].first_us, places[-1].last_us) if places else (None, None)


def _table_times(path: str) -> tuple[int, int] | tuple[None, None]:
    """Return the times in the statistics of a Parquet file's footer."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        return None, None
    try:
        metadata = pq.read_metadata(path)
    except ValueError:
        return None, None  # it is damaged; the hash shows that, too
    column = metadata.schema.to_arrow_schema().get_field_index("timestamp")
    groups = [metadata.row_group(index).column(column).statistics for index in range(metadata.num_row_groups)]
    if column < 0 or not groups or any(group is None or not group.has_min_max for group in groups):
        return None, None
    return min(group.min_raw for group in groups), max(group.max_raw for group in groups)
