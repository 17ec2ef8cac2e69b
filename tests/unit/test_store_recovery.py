"""Replay of damaged journals: every torn end, every kind of damage."""

import errno
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.store.disk import MemoryDisk
from leveret.store.format import BATCH_HEADER_SIZE, DATA_START
from leveret.store.journal import Journal

DIRECTORY = "/data"
FIRST = "/data/journal-0000000001.lvj"
SECOND = "/data/journal-0000000002.lvj"
THIRD = "/data/journal-0000000003.lvj"


# possible contents behind the batches of a file: nothing, room written ahead, or its former content, batches of
# another generation, cut somewhere
BEHIND = {"nothing": b"", "room": bytes(300), "former life": b""}


def reopen(disk: MemoryDisk) -> tuple[Journal, list[bytes]]:
    """Open and replay without room written ahead, so that files end where their batches end."""
    journal = Journal(disk, DIRECTORY, random_bytes=random.Random(5).randbytes, ahead_size=0)
    return journal, list(journal.replay())


def build(files: list[list[bytes]]) -> tuple[MemoryDisk, Journal]:
    """Write a journal whose files hold these payloads (each file but the first needs one, its snapshot)."""
    disk = MemoryDisk()
    journal, _ = reopen(disk)
    for index, payloads in enumerate(files):
        if index:
            journal.rotate(payloads[0])
        for payload in payloads[bool(index) :]:
            journal.append(payload)
    return disk, journal


def former_life() -> bytes:
    """Return the bytes of a file of another generation; its batches differ from those of the tests in numbers only."""
    disk = MemoryDisk()
    journal = Journal(disk, DIRECTORY, random_bytes=random.Random(77).randbytes, ahead_size=0)
    assert list(journal.replay()) == []
    for _ in range(10):
        journal.append(b"before")
    journal.rotate(b"FIRST")
    for payload in (b"SECOND!", b"THE THIRD AND LAST", b"FOURTH", b"FIFTH", b"SIXTH"):
        journal.append(payload)
    return disk.read(SECOND)


BEHIND["former life"] = former_life()[DATA_START + 3 :]


@pytest.fixture(params=list(BEHIND))
def behind(request: pytest.FixtureRequest) -> bytes:
    return BEHIND[request.param]


def lengthen(disk: MemoryDisk, behind: bytes) -> None:
    """Append these bytes to every journal file."""
    for name in disk.list_names(DIRECTORY):
        path = f"{DIRECTORY}/{name}"
        place(disk, path, disk.read(path) + behind)


def place(disk: MemoryDisk, path: str, content: bytes) -> None:
    file = disk.create(path)
    file.write(0, [content])
    file.sync()
    disk.sync_directory(DIRECTORY)


def flip(disk: MemoryDisk, path: str, offset: int, mask: int = 0x10) -> None:
    file = disk.open(path)
    file.write(offset, [bytes([disk.read(path, offset, 1)[0] ^ mask])])
    file.sync()


def assert_reported_once(disk: MemoryDisk, expected: list[bytes]) -> None:
    """The next start finds the same payloads and reports nothing; so does a start after more was written."""
    journal, found = reopen(disk)
    assert found == expected
    assert journal.report.is_clean, journal.report.lines()
    journal.append(b"after")
    journal.rotate(b"later")
    journal, found = reopen(disk)
    assert found == [*expected, b"after", b"later"]
    assert journal.report.is_clean, journal.report.lines()


def test_the_tail_cut_at_every_byte() -> None:
    payloads = [b"first", b"second!", b"the third and last"]
    disk, journal = build([payloads])
    whole = disk.read(FIRST)
    ends = [DATA_START]
    for payload in payloads:
        ends.append(ends[-1] + BATCH_HEADER_SIZE + len(payload))
    for size in range(DATA_START, len(whole) + 1):
        place(disk, FIRST, whole[:size])
        journal, found = reopen(disk)
        survivors = sum(end <= size for end in ends[1:])
        assert found == payloads[:survivors]
        assert journal.report.bytes_cut == size - ends[survivors]
        assert journal.report.damages == []
        assert bool(journal.report.lines()) == (size != ends[survivors])
        assert journal.current_size == ends[survivors]
        assert not any(disk.read(FIRST)[ends[survivors] :])
        journal.append(b"more")
        assert_reported_once(disk, [*payloads[:survivors], b"more"])
        disk.remove(SECOND)


def test_a_batch_torn_at_every_byte_over_a_former_life() -> None:
    payloads = [b"first", b"second!", b"the third and last"]
    disk, _ = build([payloads])
    whole, former = disk.read(FIRST), former_life()
    end = len(whole)
    start = end - BATCH_HEADER_SIZE - len(payloads[2])
    for size in range(start, end + 1):
        for before in (former, whole[:start] + bytes(500)):
            place(disk, FIRST, whole[:size] + before[size:])
            journal, found = reopen(disk)
            # the last byte may be the same in both generations
            is_whole = size == end or whole[size:] == before[size:end]
            assert found == payloads[: 2 + is_whole]
            is_seen = not is_whole and size - start >= 4
            assert bool(journal.report.bytes_cut) == is_seen
            if is_seen and size - start >= 8:
                assert journal.report.bytes_cut == end - start
                assert journal.report.cut_offset == start
                assert f"cut {end - start} bytes" in journal.report.lines()[0]
            assert journal.report.damages == []
            assert disk.size(FIRST) == len(before)
            # the next batch is shorter than the torn one and covers it only in part
            journal.append(b"m")
            assert_reported_once(disk, [*found, b"m"])
            disk.remove(SECOND)


def test_a_torn_batch_is_seen_though_its_marker_is_damaged_too() -> None:
    disk, _ = build([[b"first", b"second!"]])
    lengthen(disk, BEHIND["former life"])
    start = DATA_START + BATCH_HEADER_SIZE + len(b"first")
    for offset in range(start, start + 4):
        flip(disk, FIRST, offset)
    journal, found = reopen(disk)
    assert found == [b"first"]
    assert journal.report.bytes_cut == BATCH_HEADER_SIZE + len(b"second!")
    assert_reported_once(disk, [b"first"])


@pytest.mark.parametrize("filler", [bytes(5000), b"\xff" * 5000, BEHIND["former life"]])
def test_what_is_behind_the_batches_is_not_torn_unless_one_begins_there(filler: bytes) -> None:
    disk, journal = build([[b"sound"], [b"new", b"sound, too"]])
    lengthen(disk, filler)
    size = disk.size(SECOND)
    again, found = reopen(disk)
    assert found == [b"sound", b"new", b"sound, too"]
    assert again.report.is_clean
    assert again.current_size == journal.current_size
    assert disk.size(SECOND) == size, "allocated room is kept"
    again.append(b"over it")
    assert disk.size(SECOND) == size
    assert_reported_once(disk, [*found, b"over it"])


def test_a_flipped_bit_anywhere_in_the_middle_costs_one_batch(behind: bytes) -> None:
    payloads = [b"first", b"second!", b"third"]
    disk, _ = build([payloads])
    whole = disk.read(FIRST)
    start = DATA_START + BATCH_HEADER_SIZE + len(payloads[0])
    end = start + BATCH_HEADER_SIZE + len(payloads[1])
    for offset in range(start, end):
        for bit in range(8):
            disk, _ = build([payloads])
            lengthen(disk, behind)
            flip(disk, FIRST, offset, 1 << bit)
            damaged = disk.read(FIRST)
            journal, found = reopen(disk)
            assert found == [b"first", b"third"]
            (damage,) = journal.report.damages
            assert (damage.file, damage.offset, damage.length) == (FIRST, start, end - start)
            assert f"{FIRST} at byte {start}" in journal.report.lines()[0]
            assert journal.report.bytes_cut == 0
            assert disk.read(damage.salvaged_to) == damaged
            assert damaged != whole
    assert_reported_once(disk, [b"first", b"third"])


def test_damage_at_the_end_of_an_older_file_is_no_torn_tail(behind: bytes) -> None:
    disk, _ = build([[b"one", b"two"], [b"three"], [b"four"]])
    end = disk.size(FIRST)
    lengthen(disk, behind)
    flip(disk, FIRST, end - 1)
    journal, found = reopen(disk)
    assert found == [b"one", b"three", b"four"]
    (damage,) = journal.report.damages
    size = BATCH_HEADER_SIZE + len(b"two")
    assert (damage.file, damage.offset, damage.length) == (FIRST, end - size, size)
    assert_reported_once(disk, [b"one", b"three", b"four"])


def test_an_older_file_that_lost_its_last_batches_is_noticed_by_the_numbers(behind: bytes) -> None:
    disk, _ = build([[b"one", b"two", b"more"], [b"three", b"four"]])
    end = DATA_START + BATCH_HEADER_SIZE + len(b"one")
    place(disk, FIRST, disk.read(FIRST)[:end])
    lengthen(disk, behind)
    journal, found = reopen(disk)
    assert found == [b"one", b"three", b"four"]
    assert f"{FIRST} at byte {end}: the batches before number 4 are missing" in journal.report.lines()[0]
    assert len(journal.report.damages) == 1
    assert_reported_once(disk, [b"one", b"three", b"four"])


def test_a_missing_file_is_reported_and_the_others_served(behind: bytes) -> None:
    disk, _ = build([[b"one"], [b"two"], [b"three"]])
    lengthen(disk, behind)
    disk.remove(SECOND)
    journal, found = reopen(disk)
    assert found == [b"one", b"three"]
    assert "before number 3 are missing" in journal.report.lines()[0]
    assert_reported_once(disk, [b"one", b"three"])


def test_one_bad_header_copy_is_survived_without_a_word() -> None:
    for copy in (0, 4096):
        disk, _ = build([[b"one"], [b"two"]])
        disk.open(FIRST).write(copy, [bytes(4096)])
        journal, found = reopen(disk)
        assert found == [b"one", b"two"]
        assert journal.report.damages == []


@pytest.mark.parametrize(("path", "left"), [(FIRST, [b"two", b"three"]), (SECOND, [b"one"]), (THIRD, [])])
def test_a_file_without_a_header_is_set_aside_whole(path: str, left: list[bytes], behind: bytes) -> None:
    disk, _ = build([[b"one"], [b"two"], [b"three"]])
    lengthen(disk, behind)
    content = bytes(DATA_START) + disk.read(path)[DATA_START:]
    place(disk, path, content)
    journal, found = reopen(disk)
    assert found == [p for p, file in ((b"one", FIRST), (b"two", SECOND), (b"three", THIRD)) if file != path]
    (damage,) = journal.report.damages
    assert (damage.file, damage.offset, damage.length) == (path, 0, len(content))
    assert disk.read(damage.salvaged_to) == content
    assert_reported_once(disk, found)
    assert set(left) <= {b"one", b"two", b"three"}


def test_a_swapped_file_does_not_count_as_another() -> None:
    disk, _ = build([[b"one"], [b"two"]])
    place(disk, FIRST, disk.read(SECOND))
    journal, found = reopen(disk)
    assert found == [b"two"]
    assert journal.report.damages[0].file == FIRST


def test_copies_in_the_salvage_folder_are_never_overwritten() -> None:
    disk, _ = build([[b"one", b"two", b"three"]])
    start = DATA_START + BATCH_HEADER_SIZE
    flip(disk, FIRST, start)
    _, found = reopen(disk)
    assert found == [b"two", b"three"]
    # a tombstone replaces batch one; the damage now is in batch two
    flip(disk, FIRST, start + BATCH_HEADER_SIZE)
    _, found = reopen(disk)
    assert found == [b"three"]
    assert disk.list_names("/data/salvage") == ["journal-0000000001.lvj", "journal-0000000001.lvj.2"]
    assert_reported_once(disk, [b"three"])


def test_the_journal_opens_even_when_nothing_can_be_repaired() -> None:
    disk, _ = build([[b"one", b"two", b"three"]])
    flip(disk, FIRST, DATA_START + BATCH_HEADER_SIZE)

    def no_new_files(operation: str, path: str) -> None:
        if operation == "names":
            raise OSError(errno.ENOSPC, "No space left on device")

    disk.before = no_new_files
    journal, found = reopen(disk)
    assert found == [b"two", b"three"]
    assert "could not be repaired: No space left" in "\n".join(journal.report.lines())
    journal.append(b"four")
    disk.before = None
    journal, found = reopen(disk)
    assert found == [b"two", b"three", b"four"]
    assert_reported_once(disk, found)


def test_an_unreadable_sector_costs_only_what_it_held() -> None:
    payloads = [bytes([65 + n]) * 3000 for n in range(10)]
    disk, _ = build([payloads])

    class BadSector(MemoryDisk):
        def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
            bad = DATA_START + 3 * 4096
            if path == FIRST and offset <= bad < offset + (length or 1 << 30):
                raise OSError(errno.EIO, "Input/output error", path)
            return super().read(path, offset, length)

    disk.__class__ = BadSector
    journal, found = reopen(disk)
    # the bad 4,096 bytes at 12,288 of the data touch batches 5 and 6 (3,020 bytes each, counted from 1)
    assert found == payloads[:4] + payloads[6:]
    assert "reading the readable parts" in "\n".join(journal.report.lines())
    disk.__class__ = MemoryDisk
    assert_reported_once(disk, found)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_random_damage_never_stops_the_start_nor_invents_anything(data: st.DataObject) -> None:
    payload = st.binary(min_size=1, max_size=40)
    files = data.draw(st.lists(st.lists(payload, min_size=1, max_size=6), min_size=1, max_size=4))
    disk, _ = build(files)
    lengthen(disk, data.draw(st.sampled_from(list(BEHIND.values()))))
    written = [payload for file in files for payload in file]
    paths = [f"/data/journal-{number:010d}.lvj" for number in range(1, len(files) + 1)]
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from(paths))
        content = bytearray(disk.read(path))
        if not content:
            continue
        start = data.draw(st.integers(0, len(content)) | st.integers(min(DATA_START, len(content)), len(content)))
        kind = data.draw(st.sampled_from(["overwrite", "cut", "delete"]))
        if kind == "overwrite":
            noise = data.draw(st.binary(min_size=1, max_size=60))
            content[start : start + len(noise)] = noise
        elif kind == "cut":
            del content[start:]
        else:
            del content[start : start + data.draw(st.integers(1, 60))]
        place(disk, path, bytes(content))
    journal, found = reopen(disk)
    remaining = iter(written)
    assert all(payload in remaining for payload in found), "invented, or out of order"
    if len(found) < len(written) and not journal.report.lines():
        # no report is right in one case only: nothing is left of the last batches of the last file
        assert found == written[: len(found)]
        assert len(found) >= len(written) - len(files[-1])
    assert_reported_once(disk, found)


def test_a_crash_anywhere_during_a_repair_loses_nothing_more() -> None:
    for stop_at in range(1, 200):
        disk, _ = build([[b"one", b"two", b"three"], [b"four"]])
        flip(disk, FIRST, DATA_START + BATCH_HEADER_SIZE)
        disk.operations = 0

        def crash(operation: str, path: str, disk: MemoryDisk = disk, stop_at: int = stop_at) -> None:
            if disk.operations == stop_at:
                raise KeyboardInterrupt

        disk.before = crash
        try:
            reopen(disk)
        except KeyboardInterrupt:
            disk.before = None
            disk.crash(keep=range(0, len(disk.pending), 2))
            assert_reported_damage_or_repaired(disk)
        else:
            return
    pytest.fail("the repair has more operations than expected")


def assert_reported_damage_or_repaired(disk: MemoryDisk) -> None:
    journal, found = reopen(disk)
    assert found == [b"two", b"three", b"four"]
    assert "/data/salvage" in str(journal.report.damages) or disk.list_names("/data/salvage")
