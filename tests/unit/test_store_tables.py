"""Names of Parquet files, and which of them are removed with their stream's messages; on a disk in memory."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.store.disk import MemoryDisk
from leveret.store.tables import (
    Extent,
    TableFile,
    date_directory,
    directory_name,
    file_name,
    parsed,
    remove_strays,
    remove_tables,
    stream_directory,
    table_files,
)

OLD, NEW = "00000000000000aa", "00000000000000bb"
DAY = "2026-11-22"


def put(disk: MemoryDisk, directory: str, first: int, last: int, creation: str, date: str = DAY) -> str:
    """Create an empty Parquet file, synced, and return its path."""
    folder = os.path.join(directory, date_directory(date))
    disk.make_directory(folder)
    path = os.path.join(folder, file_name(first, last, creation))
    disk.create(path).close()
    disk.sync_directory(folder)
    return path


@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("/", "%2F"), ("orders", "orders"), ("a b", "a%20b"), ("..", "%2E."), (".", "%2E"), ("_x", "%5Fx"),
        ("é", "%C3%A9"), ("\udcff", "%FF"), ("", ""), ("a.b_c-1", "a.b_c-1"),
    ],
)  # fmt: skip
def test_directories_of_names(name: str, directory: str) -> None:
    assert directory_name(name) == directory


def test_long_names_stay_different_and_fit() -> None:
    long = [directory_name("é" * 127 + end) for end in "ab"]
    assert long[0] != long[1]
    assert all(len(name) <= 255 for name in long)


@given(st.text(max_size=6), st.text(max_size=6))
def test_two_names_never_share_a_directory(one: str, other: str) -> None:
    try:
        both = directory_name(one), directory_name(other)
    except UnicodeEncodeError:
        return  # surrogates do not occur in names from the wire
    assert (both[0] == both[1]) == (one == other)
    assert not both[0].startswith((".", "_"))
    assert "/" not in both[0]


def test_what_a_name_says() -> None:
    disk = MemoryDisk()
    directory = stream_directory("/tables", "/", "orders")
    assert directory == "/tables/%2F/orders"
    later = put(disk, directory, 10, 19, NEW, "2026-11-23")
    path = put(disk, directory, 0, 9, NEW)
    folder = os.path.join(directory, date_directory(DAY))
    for name in ("x.parquet", file_name(9, 0, NEW), file_name(0, 9, NEW) + ".new", "." + file_name(0, 9, NEW)):
        disk.create(os.path.join(folder, name)).close()
    disk.create(os.path.join(directory, "README")).close()
    assert table_files(disk, directory) == [
        TableFile(0, 9, NEW, DAY, path), TableFile(10, 19, NEW, "2026-11-23", later),
    ]  # fmt: skip
    assert parsed(directory, "date=x", file_name(0, 9, NEW)) is None
    assert table_files(disk, "/tables/none") == []


def test_tables_go_with_the_messages_and_not_before() -> None:
    disk = MemoryDisk()
    directory = stream_directory("/tables", "/", "s")
    for first in (0, 10, 20):
        put(disk, directory, first, first + 9, NEW)
    stale = put(disk, directory, 0, 99, OLD)
    assert [file.path for file in remove_tables(disk, directory, Extent(NEW, 19, 100))] == [
        os.path.join(directory, date_directory(DAY), file_name(0, 9, NEW)), stale,
    ]  # fmt: skip
    assert [(file.first, file.creation) for file in table_files(disk, directory)] == [(10, NEW), (20, NEW)]
    assert remove_tables(disk, directory, Extent(NEW, 19, 100)) == []


def test_what_is_newer_than_the_stream_goes() -> None:
    """A backup was restored: later messages no longer exist, and new ones will get their offsets."""
    disk = MemoryDisk()
    directory = stream_directory("/tables", "/", "s")
    put(disk, directory, 0, 9, NEW)
    put(disk, directory, 10, 19, NEW)
    assert [file.first for file in remove_tables(disk, directory, Extent(NEW, 0, 19))] == [10]


def test_a_deleted_stream_leaves_nothing() -> None:
    disk = MemoryDisk()
    kept, gone = stream_directory("/tables", "/", "kept"), stream_directory("/tables", "v", "gone")
    put(disk, kept, 0, 9, NEW)
    path = put(disk, gone, 0, 9, OLD)
    half = put(disk, "/tables/.sealing/x", 0, 9, OLD)
    assert [file.path for file in remove_strays(disk, "/tables", {kept: Extent(NEW, 0, 10)})] == [path]
    assert len(table_files(disk, kept)) == 1
    assert table_files(disk, gone) == []
    assert disk.size(half) == 0  # the file exists


def test_a_crash_while_tables_go_leaves_what_the_next_look_takes() -> None:
    """Stop at each operation in turn: files to keep are kept, and a second call removes the rest."""

    class Crashed(Exception):
        pass

    for stop in range(1, 100):
        disk = MemoryDisk()
        directory = stream_directory("/tables", "/", "s")
        for first in range(0, 50, 10):
            put(disk, directory, first, first + 9, NEW, f"2026-11-{20 + first // 20}")
        before = disk.operations

        def crash(operation: str, path: str, last: int = before + stop, disk: MemoryDisk = disk) -> None:
            if disk.operations == last:
                raise Crashed

        disk.before = crash
        try:
            remove_tables(disk, directory, Extent(NEW, 35, 100))
            assert stop > 3, "nothing was done"
            return
        except Crashed:
            disk.before = None
        disk.crash(keep=range(0, len(disk.pending), 2))
        assert {30, 40} <= {file.first for file in table_files(disk, directory)}
        remove_tables(disk, directory, Extent(NEW, 35, 100))
        assert [file.first for file in table_files(disk, directory)] == [30, 40]
    raise AssertionError("it never came to its end")


def test_what_somebody_else_has_deleted_is_no_error() -> None:
    disk = MemoryDisk()
    directory = stream_directory("/tables", "/", "s")
    path = put(disk, directory, 0, 9, NEW)
    put(disk, directory, 10, 19, NEW)
    listed = table_files(disk, directory)

    class Busy(MemoryDisk):
        """A disk on which another process deletes each file first."""

        def remove(self, path: str) -> None:
            super().remove(path)
            super().remove(path)

    busy = Busy()
    busy.__dict__.update(disk.__dict__)
    assert remove_tables(busy, directory, Extent(NEW, 10, 100)) == []
    assert [file.path for file in table_files(disk, directory)] == [file.path for file in listed if file.path != path]
