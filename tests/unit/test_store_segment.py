"""Segments: pages are read back as written, and damaged or missing ones are detected."""

import errno
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.store.disk import Disk, DiskFile, MemoryDisk, RealDisk
from leveret.store.format import BATCH_HEADER_SIZE, DATA_START, FileHeader, JournalVersionError
from leveret.store.segment import OPEN_FILES_MAX, SegmentDamaged, SegmentStore

DIRECTORY = "/data"
FIRST = "/data/segment-0000000001.lvs"
PAGES = [b"first page", b"second page!", b"third"]


def opened(disk: Disk, directory: str = DIRECTORY) -> SegmentStore:
    return SegmentStore(disk, directory, random.Random(1).randbytes)


class CountingDisk(RealDisk):
    """Counts opened files and lists those still open."""

    def __init__(self) -> None:
        self.opened = 0
        self.is_open: list[DiskFile] = []

    def open(self, path: str) -> DiskFile:
        file = super().open(path)
        self.opened += 1
        self.is_open.append(file)
        close = file.close

        def closing() -> None:
            self.is_open.remove(file)
            close()

        file.close = closing  # type: ignore[method-assign]
        return file


@given(pages=st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=20))
def test_every_page_comes_back_in_any_order_and_life(pages: list[bytes]) -> None:
    disk = MemoryDisk()
    places = opened(disk).write(7, pages)
    disk.crash()
    store = opened(disk)
    assert store.numbers() == [7]
    for page, (offset, length) in reversed(list(zip(pages, places, strict=True))):
        assert store.read(7, offset, length) == page


def test_the_real_disk_serves_pages_of_any_size(tmp_path: Path) -> None:
    pages = [os.urandom(1 << 20), b"x", *[bytes([n % 256]) * 50 for n in range(1200)]]
    store = opened(RealDisk(), str(tmp_path))
    places = store.write(1, pages)
    assert [store.read(1, *place) for place in places] == pages
    store.close()


def test_a_segment_is_there_whole_or_not_at_all_whenever_the_power_goes() -> None:
    for stop_at in range(1, 50):
        disk = MemoryDisk()

        def crash(operation: str, path: str, disk: MemoryDisk = disk, stop_at: int = stop_at) -> None:
            if disk.operations == stop_at:
                raise KeyboardInterrupt

        store = opened(disk)
        store.write(1, PAGES)
        disk.operations, disk.before = 0, crash
        try:
            places = store.write(2, PAGES)
        except KeyboardInterrupt:
            disk.before = None
            disk.crash(keep=range(0, len(disk.pending), 2))
            again = opened(disk)
            assert again.numbers() in ([1], [1, 2])
            assert not [name for name in disk.list_names(DIRECTORY) if name.endswith(".new")]
            places = again.write(3, PAGES)
            for number in again.numbers():
                assert [again.read(number, *place) for place in places] == PAGES
        else:
            disk.before = None
            disk.crash()
            assert [opened(disk).read(2, *place) for place in places] == PAGES
            assert stop_at == 6
            return
    pytest.fail("writing a segment has more operations than expected")


def test_a_flipped_bit_damages_its_page_and_no_other() -> None:
    disk = MemoryDisk()
    places = opened(disk).write(1, PAGES)
    whole = disk.read(FIRST)
    for at in range(places[1][0] - BATCH_HEADER_SIZE, sum(places[1])):
        file = disk.open(FIRST)
        file.write(at, [bytes([whole[at] ^ 0x10])])
        store = opened(disk)
        with pytest.raises(SegmentDamaged) as caught:
            store.read(1, *places[1])
        assert (caught.value.path, caught.value.offset) == (FIRST, places[1][0])
        assert str(caught.value) == f"{FIRST} at byte {places[1][0]}: a page of 12 bytes with a wrong checksum"
        assert [store.read(1, *places[n]) for n in (0, 2)] == [PAGES[0], PAGES[2]]
        file.write(at, [whole[at : at + 1]])


def test_a_place_that_is_no_page_is_refused() -> None:
    store = opened(MemoryDisk())
    (offset, length), *_ = store.write(1, PAGES)
    for wrong in ((offset, length - 1), (offset, length + 1), (offset + 1, length), (offset + 10_000, length)):
        with pytest.raises(SegmentDamaged):
            store.read(1, *wrong)


def test_a_missing_file_a_lost_header_and_a_bad_sector_are_damage() -> None:
    disk = MemoryDisk()
    places = opened(disk).write(1, PAGES)
    with pytest.raises(SegmentDamaged, match=r"segment-0000000002.lvs at byte .*: No such file"):
        opened(disk).read(2, *places[0])
    # a segment of another number under this one's name
    opened(disk).write(3, PAGES)
    disk.rename("/data/segment-0000000003.lvs", FIRST)
    with pytest.raises(SegmentDamaged, match="neither copy of the file header"):
        opened(disk).read(1, *places[0])

    class BadSector(MemoryDisk):
        def open(self, path: str) -> DiskFile:
            raise OSError(errno.EIO, "Input/output error", path)

    disk.__class__ = BadSector
    with pytest.raises(SegmentDamaged, match="Input/output error"):
        opened(disk).read(1, *places[0])


def test_a_segment_of_a_newer_format_is_not_called_damaged() -> None:
    disk = MemoryDisk()
    places = opened(disk).write(1, PAGES)
    disk.open(FIRST).write(0, [FileHeader(1, 1, 1 << 40, version=2).pack()])
    with pytest.raises(JournalVersionError, match="format 2"):
        opened(disk).read(1, *places[0])


def test_a_removed_segment_is_gone_and_its_number_can_be_written_anew() -> None:
    store = opened(MemoryDisk())
    places = store.write(1, PAGES)
    assert store.read(1, *places[0]) == PAGES[0]
    store.remove(1)
    assert store.numbers() == []
    with pytest.raises(SegmentDamaged, match="No such file"):
        store.read(1, *places[0])
    places = store.write(1, [b"another"])
    assert store.read(1, *places[0]) == b"another"
    places = store.write(1, [b"and another"])
    assert store.read(1, *places[0]) == b"and another"


def test_few_files_stay_open_and_those_in_use_are_not_opened_again(tmp_path: Path) -> None:
    disk = CountingDisk()
    store = opened(disk, str(tmp_path))
    count = OPEN_FILES_MAX + 5
    places = [store.write(number, [b"page %d" % number])[0] for number in range(count)]
    for number in range(count):
        assert store.read(0, *places[0]) == b"page 0"
        assert store.read(number, *places[number]) == b"page %d" % number
    assert disk.opened == count
    assert len(disk.is_open) == OPEN_FILES_MAX
    store.close()
    assert disk.is_open == []


def test_a_damaged_segment_is_set_aside_once() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    store.write(1, PAGES)
    damaged = disk.read(FIRST)[:-3]
    disk.open(FIRST).truncate(len(damaged))
    copy = store.set_aside(1)
    assert copy == store.set_aside(1) == "/data/salvage/segment-0000000001.lvs"
    assert disk.read(copy) == damaged
    assert disk.list_names("/data/salvage") == ["segment-0000000001.lvs"]
    assert opened(disk).set_aside(1) == copy + ".2"


def test_an_empty_page_is_refused_before_anything_is_written() -> None:
    disk = MemoryDisk()
    store = opened(disk)
    with pytest.raises(ValueError, match="a page has content"):
        store.write(1, [b"page", b""])
    assert disk.list_names(DIRECTORY) == []


def test_a_failed_write_leaves_no_segment() -> None:
    for kind in ("write", "sync", "names"):
        disk = MemoryDisk()
        store = opened(disk)

        def refuse(operation: str, path: str, kind: str = kind) -> None:
            if operation == kind:
                raise OSError(errno.ENOSPC, "No space left on device", path)

        disk.before = refuse
        with pytest.raises(OSError, match="No space left"):
            store.write(1, PAGES)
        disk.before = None
        assert opened(disk).numbers() == []
        assert opened(disk).read(2, *store.write(2, PAGES)[0]) == PAGES[0]
    assert disk.size(FIRST.replace("1.", "2.")) == DATA_START + sum(BATCH_HEADER_SIZE + len(page) for page in PAGES)


def test_a_large_page_is_read_in_pieces() -> None:
    disk = MemoryDisk()
    segments = opened(disk)
    [_, (offset, length)] = segments.write(1, [b"before", [b"head", b"content", b"rest"]])

    def cut(start: bytes) -> list[int]:
        assert start == b"head"
        return [4, 11]

    assert segments.read(1, offset, length) == b"headcontentrest"
    assert segments.read_pieces(1, offset, length, 4, cut) == [b"head", b"content", b"rest"]
    assert segments.read_pieces(1, offset, length, 4, lambda _: [4, 100]) == [b"head", b"contentrest"]
    file = disk.open(segments.path(1))
    file.write(offset + 6, [b"!"])
    with pytest.raises(SegmentDamaged):
        segments.read_pieces(1, offset, length, 4, cut)
