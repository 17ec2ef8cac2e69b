"""Foreign files in a data directory are ignored, or reported in one line that says what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.store.data_directory import DirectoryUnusable, check_directory, check_place, open_directory
from leveret.store.disk import RealDisk
from leveret.store.lock import DirectoryLock
from leveret.store.salvage import UNFINISHED_SUFFIX
from leveret.store.stream_files import Chunk

OURS = (
    "journal/journal-0000000001.lvj", "journal/journal-0000000002.lvj" + UNFINISHED_SUFFIX,
    "journal/spare-0000000001.lvj",
    "segments/segment-0000000007.lvs", "segments/segment-0000000008.lvs" + UNFINISHED_SUFFIX,
    "streams/1/00000000000000000000.lvs", "streams/1/00000000000000000009.lvs", "reserve", "lock",
)  # fmt: skip
FOLDERS = ("journal", "segments", "streams", "streams/1", "")
NOT_OURS = (
    "note", "journal/note", "journal/journal-1.lvj", "segments/note", "streams/note", "streams/1/note",
    "streams/1/1.lvs", "streams/٣", "tables", "tables/%2F", "tables/note", "tables/%2F/s/date=2026-01-01", "salvage",
)  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data directory with something in each of its parts."""
    path = tmp_path / "data"
    boot(path)
    return path


def boot(path: Path) -> None:
    """Do what a start does with a directory's files."""
    check_place(str(path))
    with DirectoryLock(str(path)):
        check_directory(str(path))
        parts = open_directory(RealDisk(), str(path), reserve_octets=4096)
        list(parts.journal.replay())
        parts.journal.append(b"batch")
        parts.journal.close()
        if not parts.segments.numbers():
            parts.segments.write(7, [b"page"])
        numbers = parts.streams.numbers()
        for number in numbers or [1]:
            files = parts.streams.open(number, 0)
            if not numbers:
                files.append([Chunk(0, 1, 1, 1, b"message")], 1 << 20)
        parts.streams.trim_all_tables({})
        parts.reserve.fill()


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rename(path.parent / f"moved {path.name}")
    else:
        path.unlink(missing_ok=True)


def folder(path: Path) -> None:
    path.mkdir()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def dangling(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def loop(path: Path) -> None:
    path.symlink_to(path)


def file(path: Path) -> None:
    path.write_text("")


Made = Callable[[Path], None]


@pytest.mark.parametrize("make", [folder, fifo, dangling, loop])
@pytest.mark.parametrize("name", OURS)
def test_a_file_of_the_stores_that_is_none(directory: Path, name: str, make: Made) -> None:
    refused(directory, name, make)


@pytest.mark.parametrize("make", [file, fifo, dangling, loop])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_the_stores_that_is_none(directory: Path, name: str, make: Made) -> None:
    refused(directory, name, make)


def refused(directory: Path, name: str, make: Made) -> None:
    path = directory / name
    clear(path)
    make(path)
    with pytest.raises(DirectoryUnusable) as unusable:
        boot(directory)
    text = str(unusable.value)
    assert str(path) in text
    assert re.search(r"\. (Restore the original|Mount or restore the target), or ", text)
    assert "\n" not in text


@pytest.mark.parametrize("name", ["reserve", "journal", "streams/1", "streams/1/00000000000000000000.lvs", ""])
def test_what_the_broker_may_not_use(directory: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory / name
    may = os.access
    monkeypatch.setattr(os, "access", lambda each, mode: Path(each) != path and may(each, mode))
    with pytest.raises(DirectoryUnusable, match=r"can't be read and written by .*\. Change its owner or mode \(chown"):
        boot(directory)


@pytest.mark.parametrize("make", [folder, fifo, dangling, loop, file])
@pytest.mark.parametrize("name", NOT_OURS)
def test_what_is_none_of_the_stores_business_is_passed_over(directory: Path, name: str, make: Made) -> None:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)
    boot(directory)
    assert os.path.lexists(path)


@pytest.mark.parametrize("folder", ["", "journal", "segments", "streams", "streams/1"])
def test_names_that_are_no_utf_8(directory: Path, folder: str) -> None:
    path = os.path.join(os.fsencode(directory / folder), b"\xff\xfe-0000000001.lvj")
    with open(path, "wb"):
        pass
    boot(directory)
    assert os.path.lexists(path)


def test_links_to_what_is_right_are_followed(directory: Path) -> None:
    for name in ("journal/journal-0000000001.lvj", "streams/1/00000000000000000000.lvs", "segments"):
        path, moved = directory / name, directory / f"moved {os.path.basename(name)}"
        path.rename(moved)
        path.symlink_to(moved)
    boot(directory)


def test_nothing_there_yet(tmp_path: Path) -> None:
    check_place(str(tmp_path / "new"))
    check_directory(str(tmp_path / "new"))
