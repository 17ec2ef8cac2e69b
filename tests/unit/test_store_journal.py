"""The journal in normal use: appended batches come back, over rotations, removals and restarts."""

import os
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.store.disk import Disk, MemoryDisk, RealDisk
from leveret.store.format import BATCH_HEADER_SIZE, DATA_START, FileHeader, JournalVersionError
from leveret.store.journal import Journal

PAYLOADS = st.lists(st.binary(min_size=1, max_size=300), max_size=20)


def reopen(disk: Disk, directory: str = "/data", seed: int = 1) -> tuple[Journal, list[bytes]]:
    journal = Journal(disk, directory, random_bytes=random.Random(seed).randbytes)
    return journal, list(journal.replay())


def fill(disk: Disk, payloads: Sequence[bytes], directory: str = "/data") -> Journal:
    journal, _ = reopen(disk, directory)
    for payload in payloads:
        journal.append(payload)
    return journal


@given(lives=st.lists(PAYLOADS, max_size=4))
def test_every_life_reads_what_all_lives_before_wrote(lives: list[list[bytes]]) -> None:
    disk = MemoryDisk()
    expected: list[bytes] = []
    for life, payloads in enumerate(lives):
        journal, found = reopen(disk, seed=life)
        assert found == expected
        assert journal.report.is_clean
        for payload in payloads:
            journal.append(payload)
        journal.close()
        expected += payloads
    assert reopen(disk)[1] == expected


@given(steps=st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=50)), max_size=30))
def test_order_holds_over_rotations(steps: list[tuple[bool, bytes]]) -> None:
    disk = MemoryDisk()
    journal, _ = reopen(disk)
    for is_rotation, payload in steps:
        if is_rotation:
            assert journal.rotate(payload) == journal.current
        else:
            journal.append(payload)
    rotations = sum(is_rotation for is_rotation, _ in steps)
    assert journal.files() == list(range(1, rotations + 2))
    again, found = reopen(disk)
    assert found == [payload for _, payload in steps]
    assert again.files() == journal.files()
    assert (again.current, again.current_size) == (journal.current, journal.current_size)
    assert again.report.is_clean


def test_parts_of_a_batch_are_joined(tmp_path: os.PathLike[str]) -> None:
    journal = fill(RealDisk(), [], str(tmp_path))
    # more parts than the kernel takes in one call
    parts = [bytes([n % 256]) * (n % 7) for n in range(3000)]
    journal.append(parts)
    journal.append(b"next")
    assert reopen(RealDisk(), str(tmp_path))[1] == [b"".join(parts), b"next"]


def test_size_counts_headers_and_tells_when_the_file_is_full() -> None:
    disk = MemoryDisk()
    journal = Journal(disk, "/data", file_size=DATA_START + 2 * BATCH_HEADER_SIZE + 20, ahead_size=0)
    assert list(journal.replay()) == []
    assert journal.current_size == DATA_START
    journal.append(b"x" * 10)
    assert not journal.is_full
    journal.append(b"x" * 10)
    assert journal.is_full
    assert journal.current_size == disk.size(journal.path(1))
    journal.rotate(b"snapshot")
    assert not journal.is_full
    assert journal.current_size == disk.size(journal.path(2)) == DATA_START + BATCH_HEADER_SIZE + 8


def test_an_empty_snapshot_writes_no_batch() -> None:
    disk = MemoryDisk()
    journal = fill(disk, [b"one"])
    journal.rotate(b"")
    journal.append(b"two")
    assert reopen(disk)[1] == [b"one", b"two"]


def test_only_the_oldest_file_can_be_removed_and_never_the_current() -> None:
    disk = MemoryDisk()
    journal = fill(disk, [b"one"])
    journal.rotate(b"two")
    journal.rotate(b"three")
    with pytest.raises(ValueError, match="not the oldest"):
        journal.remove(2)
    journal.remove(1)
    journal.remove(2)
    with pytest.raises(ValueError, match="still written to"):
        journal.remove(3)
    again, found = reopen(disk)
    assert found == [b"three"]
    assert again.files() == [3]
    assert again.report.is_clean


def test_file_numbers_are_never_used_twice() -> None:
    disk = MemoryDisk()
    journal = fill(disk, [])
    journal.rotate(b"a")
    journal.remove(1)
    again, _ = reopen(disk)
    assert again.rotate(b"b") == 3


def test_an_empty_batch_is_refused() -> None:
    journal = fill(MemoryDisk(), [])
    for nothing in (b"", [], [b"", b""]):
        with pytest.raises(ValueError, match="payload"):
            journal.append(nothing)


def test_appending_needs_a_finished_replay_and_an_open_journal() -> None:
    journal = Journal(MemoryDisk(), "/data")
    for operation in (lambda: journal.append(b"x"), lambda: journal.rotate(b"x")):
        with pytest.raises(RuntimeError, match="after replay"):
            operation()
    assert list(journal.replay()) == []
    journal.close()
    with pytest.raises(RuntimeError, match="before close"):
        journal.append(b"x")


def test_a_journal_of_a_newer_version_is_refused_and_left_alone() -> None:
    disk = MemoryDisk()
    journal = fill(disk, [b"precious"])
    newer = FileHeader(1, 1, 1 << 40, version=2).pack()
    disk.open(journal.path(1)).write(0, [newer])
    before = disk.read(journal.path(1))
    with pytest.raises(JournalVersionError, match="format 2, but this version of leveret supports formats up to 1"):
        reopen(disk)
    assert disk.read(journal.path(1)) == before


def test_nothing_is_repaired_in_a_journal_of_which_a_later_file_is_of_a_newer_version() -> None:
    disk = MemoryDisk()
    journal = fill(disk, [b"precious", b"too"])
    journal.rotate(b"newer")
    disk.open(journal.path(2)).write(0, [FileHeader(2, 3, 1 << 40, version=2).pack()])
    disk.open(journal.path(1)).write(DATA_START, [b"damage"])
    before = disk.read(journal.path(1))
    with pytest.raises(JournalVersionError):
        reopen(disk)
    assert disk.read(journal.path(1)) == before
    assert disk.list_names("/data") == ["journal-0000000001.lvj", "journal-0000000002.lvj"]


def test_a_message_that_looks_like_a_batch_is_not_taken_for_one() -> None:
    """A message may contain the bytes of a whole journal; if the file is torn behind them, none are replayed."""
    disk = MemoryDisk()
    foreign = MemoryDisk()
    journal = Journal(foreign, "/data", random_bytes=random.Random(99).randbytes)
    assert list(journal.replay()) == []
    for _ in range(5):
        journal.append(b"forged")
    journal = fill(disk, [b"sound"])
    journal.append(foreign.read("/data/journal-0000000001.lvj"))
    disk.open(journal.path(1)).truncate(journal.current_size - 1)
    again, found = reopen(disk)
    assert found == [b"sound"]
    assert again.report.damages == []


def recycling(disk: MemoryDisk, spare_files: int = 2, seed: int = 1) -> Journal:
    """Open a journal without room written ahead: only reused files are larger than their batches."""
    draw = random.Random(seed).randbytes
    journal = Journal(disk, "/data", random_bytes=draw, spare_files=spare_files, ahead_size=0)
    assert list(journal.replay()) is not None
    return journal


def test_a_removed_file_is_the_next_new_one_and_does_not_revive_its_former_life() -> None:
    disk = MemoryDisk()
    journal = recycling(disk)
    old = [b"old-%d" % n * 10 for n in range(10)]
    for payload in old:
        journal.append(payload)
    size = disk.size(journal.path(1))
    former = disk.read(journal.path(1))
    journal.rotate(b"a")
    journal.remove(1)
    assert disk.list_names("/data") == ["journal-0000000002.lvj", "spare-0000000001.lvj"]
    journal.rotate(b"new-1")
    journal.append(b"new-2")
    assert disk.list_names("/data") == ["journal-0000000002.lvj", "journal-0000000003.lvj"]
    assert disk.size(journal.path(3)) == size
    assert disk.read(journal.path(3), journal.current_size) == former[journal.current_size :]
    again, found = reopen(disk)
    assert found == [b"a", b"new-1", b"new-2"]
    assert again.report.is_clean


def test_no_more_spares_are_kept_than_asked_for_and_none_that_are_too_large() -> None:
    disk = MemoryDisk()
    journal = recycling(disk, spare_files=2)
    journal.file_size = 100
    for n in range(5):
        journal.rotate(b"%d" % n)
    while len(journal.files()) > 1:
        journal.remove(journal.files()[0])
    spares = [name for name in disk.list_names("/data") if name.startswith("spare")]
    assert spares == ["spare-0000000001.lvj", "spare-0000000002.lvj"]
    journal = recycling(disk, spare_files=1)
    assert disk.list_names("/data") == ["journal-0000000006.lvj", "spare-0000000001.lvj"]
    disk = MemoryDisk()
    journal = Journal(disk, "/data", file_size=DATA_START, ahead_size=0)
    assert list(journal.replay()) == []
    journal.append(bytes(DATA_START + 1))
    journal.rotate(b"small")
    journal.rotate(b"end")
    journal.remove(1)
    journal.remove(2)
    assert disk.list_names("/data") == ["journal-0000000003.lvj", "spare-0000000002.lvj"]


def test_a_spare_that_someone_deleted_is_not_missed() -> None:
    disk = MemoryDisk()
    journal = recycling(disk)
    journal.rotate(b"a")
    journal.remove(1)
    disk.remove("/data/spare-0000000001.lvj")
    journal.rotate(b"b")
    assert reopen(disk)[1] == [b"a", b"b"]


def test_spares_of_a_former_run_are_used_and_never_read() -> None:
    disk = MemoryDisk()
    journal = recycling(disk)
    journal.append(b"gone")
    journal.rotate(b"kept")
    journal.remove(1)
    # a spare may have any content: here, what a crash left of the next file
    disk.open("/data/spare-0000000001.lvj").write(0, [FileHeader(3, 99, 1 << 40).pack()])
    journal = recycling(disk, seed=2)
    assert journal.report.is_clean
    assert journal.rotate(b"new") == 3
    assert disk.list_names("/data") == ["journal-0000000002.lvj", "journal-0000000003.lvj"]
    assert reopen(disk)[1] == [b"kept", b"new"]


def test_room_is_written_ahead_once_for_many_batches() -> None:
    disk = MemoryDisk()
    journal = Journal(disk, "/data", ahead_size=1000)
    assert list(journal.replay()) == []
    assert disk.size(journal.path(1)) == DATA_START, "a journal that nothing is written to stays small"
    sizes = set()
    for _ in range(60):
        journal.append(b"x" * 80)
        sizes.add(disk.size(journal.path(1)))
    assert sizes == {DATA_START + n * 1100 for n in range(1, 7)}
    assert reopen(disk)[0].current_size == DATA_START + 60 * 100


def test_an_orderly_end_leaves_nothing_for_the_next_start_to_read_in_vain() -> None:
    disk = MemoryDisk()
    journal = fill(disk, [b"one"])
    assert disk.size(journal.path(1)) > journal.current_size
    journal.rotate(b"two")
    journal.append(b"three")
    room = disk.size(journal.path(1))
    journal.close()
    assert disk.size(journal.path(2)) == journal.current_size
    assert disk.size(journal.path(1)) == room, "an older file will be a spare: its room is worth keeping"
    assert reopen(disk)[1] == [b"one", b"two", b"three"]


@settings(max_examples=30)
@given(payloads=PAYLOADS)
def test_real_and_memory_disk_hold_equal_bytes(payloads: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = str(tmp_path_factory.mktemp("journal"))
    disk = MemoryDisk()
    for each in (fill(disk, payloads, directory), fill(RealDisk(), payloads, directory)):
        each.rotate(b"snapshot")
        each.close()
    for number in (1, 2):
        name = os.path.join(directory, f"journal-{number:010d}.lvj")
        assert disk.read(name) == RealDisk().read(name)
    assert disk.list_names(directory) == RealDisk().list_names(directory)


def test_files_and_directories_are_private(tmp_path: os.PathLike[str]) -> None:
    directory = os.path.join(tmp_path, "a", "b")
    journal = fill(RealDisk(), [b"secret"], directory)
    assert os.stat(directory).st_mode & 0o777 == 0o700
    assert os.stat(journal.path(1)).st_mode & 0o777 == 0o600
