"""Where the Parquet files of streams are, what their names say, and which of them belong to no stream any more.

    <tables dir>/<vhost>/<stream>/date=YYYY-MM-DD/<first offset>-<last offset>-<creation>.parquet

The names say everything that must be known of the files, so nothing here reads one. The package `lake` makes them. They
are removed together with the native files whose messages they hold, so a lease that protects those protects these.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from leveret.store.disk import Disk

TABLES_DIRECTORY: Final = "tables"
"""Its name in the data directory, unless the tables directory is configured."""
# longer names are refused by file systems; they are cut, and a digest makes the rest unique
_NAME_OCTETS_MAX: Final = 200
_DATE = re.compile(r"date=(\d{4}-\d{2}-\d{2})")
_FILE = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{16})\.parquet")


class TableFile(NamedTuple):
    """One Parquet file.

    Attributes:
        first, last: Its offsets, inclusive.
        creation: Identifies its stream, 16 hex digits.
        date: The day on which all its messages arrived (UTC, YYYY-MM-DD).
    """

    first: int
    last: int
    creation: str
    date: str
    path: str


class Extent(NamedTuple):
    """The messages that a stream has now. first: the oldest offset; end: the offset after the newest one."""

    creation: str
    first: int
    end: int

    def has(self, file: TableFile) -> bool:
        """Whether the file belongs to this stream, and a part of it still exists in it.

        Then all of it does, since a file never crosses an end of native files. What lies behind `end` was written
        before an older backup was restored.
        """
        return file.creation == self.creation and file.last >= self.first and file.last < self.end


def directory_name(name: str) -> str:
    """The directory of a virtual host or stream: the name percent-encoded.

    A "." or "_" at its beginning is encoded, too: readers of tables ignore such directories as hidden, and ".." is
    another directory.
    """
    from hashlib import sha256
    from urllib.parse import quote

    encoded = quote(name, safe="", errors="surrogateescape")
    if encoded[:1] in {".", "_"}:
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) > _NAME_OCTETS_MAX:
        digest = sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        encoded = f"{encoded[:_NAME_OCTETS_MAX]}~{digest}"
    return encoded


def stream_directory(tables_dir: str, vhost: str, stream: str) -> str:
    """The directory of a stream's Parquet files, which has a sub-directory for each day."""
    return os.path.join(tables_dir, directory_name(vhost), directory_name(stream))


def date_directory(date: str) -> str:
    """The directory of a day, within that of its stream."""
    return f"date={date}"


def file_name(first: int, last: int, creation: str) -> str:
    return f"{first:020d}-{last:020d}-{creation}.parquet"


def parsed(directory: str, date_name: str, name: str) -> TableFile | None:
    """Parse the name of a file; None if it is not a Parquet file of a stream."""
    date, match = _DATE.fullmatch(date_name), _FILE.fullmatch(name)
    if date is None or match is None or int(match[2]) < int(match[1]):
        return None
    return TableFile(int(match[1]), int(match[2]), match[3], date[1], os.path.join(directory, date_name, name))


def table_files(disk: Disk, directory: str) -> list[TableFile]:
    """The Parquet files of the stream in this directory, by their offsets. OSError if the system refuses."""
    found = []
    for date_name in _names(disk, directory):
        if _DATE.fullmatch(date_name):
            for name in _names(disk, os.path.join(directory, date_name)):
                file = parsed(directory, date_name, name)
                if file is not None:
                    found.append(file)
    return sorted(found)


def sealed_end(disk: Disk, directory: str, creation: str) -> int:
    """The offset after the last message that a stream's tables hold, 0 if it has none. OSError if the system refuses.
    """
    for date_name in reversed(_names(disk, directory)):
        names = _names(disk, os.path.join(directory, date_name))
        files = [parsed(directory, date_name, name) for name in names]
        ends = [file.last + 1 for file in files if file is not None and file.creation == creation]
        if ends:  # arrival times never decrease
            return max(ends)
    return 0


def remove_tables(disk: Disk, directory: str, stream: Extent | None) -> list[TableFile]:
    """Delete the files of a stream's directory that hold what is not in the stream; returns them.

    stream: the stream that has this name now, None if none has. A file that was deleted meanwhile is skipped.
    """
    gone = []
    for file in table_files(disk, directory):
        if stream is None or not stream.has(file):
            try:
                disk.remove(file.path)
            except FileNotFoundError:
                continue
            gone.append(file)
    for date_name in sorted({os.path.dirname(file.path) for file in gone}):
        disk.sync_directory(date_name)
    return gone


def stream_directories(disk: Disk, tables_dir: str) -> list[str]:
    """The directories of all streams that have or had tables; names that begin with "." are the sealing process's own.
    """
    vhosts = [os.path.join(tables_dir, name) for name in _names(disk, tables_dir) if not name.startswith(".")]
    return [os.path.join(vhost, name) for vhost in vhosts for name in _names(disk, vhost)]


def remove_strays(disk: Disk, tables_dir: str, streams: Mapping[str, Extent]) -> list[TableFile]:
    """As `remove_tables`, for all streams, including deleted ones. streams: the existing ones, by their directories."""
    directories = stream_directories(disk, tables_dir)
    return [file for each in directories for file in remove_tables(disk, each, streams.get(each))]


def _names(disk: Disk, directory: str) -> list[str]:
    try:
        return disk.list_names(directory)
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            raise
        return []
