"""Disk errors: no batch is reported good after a failed write or sync, whatever comes later."""

import errno
import os
import random
from pathlib import Path

import pytest

from leveret.store.disk import MemoryDisk, RealDisk
from leveret.store.journal import Journal, JournalFailed, JournalFull
from leveret.store.reserve import Reserve

DIRECTORY = "/data"


class Fault:
    """Makes the n-th operation of a kind fail, once."""

    def __init__(self, kind: str, count: int, number: int) -> None:
        self.kind = kind
        self.count = count
        self.number = number

    def __call__(self, operation: str, path: str) -> None:
        if operation == self.kind:
            self.count -= 1
            if self.count == 0:
                raise OSError(self.number, os.strerror(self.number), path)


def opened(disk: MemoryDisk) -> tuple[Journal, list[bytes]]:
    journal = Journal(disk, DIRECTORY, random_bytes=random.Random(3).randbytes)
    return journal, list(journal.replay())


@pytest.mark.parametrize(("kind", "number"), [("write", errno.EIO), ("sync", errno.EIO), ("sync", errno.ENOSPC)])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_after_a_failure_no_append_ever_succeeds(kind: str, count: int, number: int) -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    disk.before = Fault(kind, count, number)
    confirmed = []
    errors = []
    for n in range(10):
        payload = f"message {n}".encode()
        try:
            journal.append(payload)
            confirmed.append(payload)
        except JournalFailed as error:
            errors.append(error)
    assert len(confirmed) == count - 1
    assert len(errors) == 10 - len(confirmed)
    assert {error.errno for error in errors} == {number}
    assert os.strerror(number) in str(errors[0])
    with pytest.raises(JournalFailed):
        journal.rotate(b"snapshot")
    # the failed batch may or may not be on the medium; the confirmed ones are
    disk.before = None
    disk.crash()
    assert opened(disk)[1] == confirmed


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_write_without_room_is_made_again_at_the_same_place(count: int, number: int) -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    disk.before = Fault("write", count, number)
    for n in range(1, 6):
        if n == count:
            size = journal.current_size
            with pytest.raises(JournalFull) as refused:
                journal.append(f"message {n}".encode())
            assert (refused.value.errno, journal.current_size) == (number, size)
        journal.append(f"message {n}".encode())
    disk.before = None
    disk.crash()
    journal, found = opened(disk)
    assert found == [f"message {n}".encode() for n in range(1, 6)]
    assert journal.report.is_clean


def test_a_half_written_batch_is_written_over_and_a_crash_before_that_loses_nothing_confirmed() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    journal.append(b"confirmed")
    disk.before = Fault("write", 1, errno.ENOSPC)
    with pytest.raises(JournalFull):
        journal.append(b"cut off in the middle")
    disk.crash(keep=range(len(disk.pending)), torn=25)
    assert opened(disk)[1] == [b"confirmed"]


@pytest.mark.parametrize(("kind", "count"), [("write", 1), ("names", 1), ("names", 2)])
def test_a_rotation_without_room_is_made_again(kind: str, count: int) -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    journal.append(b"old")
    disk.before = Fault(kind, count, errno.ENOSPC)
    with pytest.raises(JournalFull):
        journal.rotate(b"snapshot")
    journal.append(b"still in the old file")
    journal.rotate(b"snapshot")
    journal.append(b"new")
    disk.before = None
    disk.crash()
    journal, found = opened(disk)
    assert found == [b"old", b"still in the old file", b"snapshot", b"new"]
    assert journal.report.is_clean


@pytest.mark.parametrize("kind", ["names", "write", "sync", "sync_directory"])
def test_a_failed_rotation_into_a_spare_stops_the_journal_and_loses_nothing(kind: str) -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    journal.append(b"old " * 20)
    journal.rotate(b"confirmed")
    journal.remove(1)
    disk.before = Fault(kind, 1, errno.EIO)
    with pytest.raises(JournalFailed):
        journal.rotate(b"snapshot")
    disk.before = None
    disk.crash()
    journal, found = opened(disk)
    assert found == [b"confirmed"]
    assert journal.report.is_clean
    journal.rotate(b"again")
    disk.crash()
    assert opened(disk)[1] == [b"confirmed", b"again"]


@pytest.mark.parametrize("kind", ["names", "sync_directory"])
def test_a_file_that_may_come_back_is_not_overwritten(kind: str) -> None:
    """Its new name as a spare is not synced: after a power cut it is a journal file again, and must be whole."""
    disk = MemoryDisk()
    journal, _ = opened(disk)
    journal.append(b"old")
    journal.rotate(b"second")
    disk.before = Fault(kind, 1, errno.EIO)
    with pytest.raises(OSError):
        journal.remove(1)
    disk.before = None
    file = disk.read("/data/spare-0000000001.lvj")
    journal.append(b"on")
    assert journal.rotate(b"third") == 3
    assert disk.read("/data/spare-0000000001.lvj") == file


def test_a_spare_that_was_not_finished_is_still_one() -> None:
    """If the disk is full while a spare is overwritten, the spare and its size are still accounted for."""
    disk = MemoryDisk()
    journal, _ = opened(disk)
    journal.rotate(b"second")
    journal.remove(1)

    def refuse(operation: str, path: str) -> None:
        if "spare" in path and operation in ("write", "names"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    disk.before = refuse
    with pytest.raises(JournalFull):
        journal.rotate(b"third")
    disk.before = None
    journal.rotate(b"third")
    assert [name for name in disk.list_names(DIRECTORY) if "spare" in name] == []
    disk.crash()
    assert opened(disk)[1] == [b"second", b"third"]


def test_spares_are_given_up_when_the_disk_is_full() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    for text in (b"second", b"third"):
        journal.rotate(text)
        journal.remove(journal.files()[0])
    assert len(disk.list_names(DIRECTORY)) == 2, "one was used again"

    def refuse(operation: str, path: str) -> None:
        if operation == "write" and any("spare" in name for name in disk.list_names(DIRECTORY)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    disk.before = refuse
    with pytest.raises(JournalFull):
        journal.append(b"more")
    assert disk.list_names(DIRECTORY) == ["journal-0000000003.lvj"]
    journal.append(b"more")
    disk.before = None
    disk.crash()
    assert opened(disk)[1] == [b"third", b"more"]


def test_after_a_failure_no_file_is_removed() -> None:
    """The batch that made the oldest file superfluous may be the one that did not reach the medium."""
    disk = MemoryDisk()
    journal, _ = opened(disk)
    journal.append(b"a message")
    journal.rotate(b"snapshot")
    disk.before = Fault("sync", 1, errno.EIO)
    with pytest.raises(JournalFailed):
        journal.append(b"it moved to here")
    with pytest.raises(JournalFailed):
        journal.remove(1)
    disk.before = None
    disk.crash()
    assert opened(disk)[1] == [b"a message", b"snapshot"]


@pytest.mark.parametrize("kind", ["names", "write", "sync", "sync_directory"])
def test_a_failed_rotation_stops_the_journal_and_loses_nothing(kind: str) -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    journal.append(b"confirmed")
    disk.before = Fault(kind, 1, errno.EIO)
    with pytest.raises(JournalFailed):
        journal.rotate(b"snapshot")
    with pytest.raises(JournalFailed):
        journal.append(b"never")
    disk.before = None
    journal, found = opened(disk)
    assert found in ([b"confirmed"], [b"confirmed", b"snapshot"])
    journal.append(b"again")
    disk.crash()
    assert opened(disk)[1] == [*found, b"again"]


def test_the_batch_of_a_failed_sync_is_written_again_before_it_counts() -> None:
    """After a failed sync the kernel treats the pages as clean: only writing them again brings them to the medium."""
    disk = MemoryDisk()
    journal, _ = opened(disk)
    disk.before = Fault("sync", 1, errno.EIO)
    with pytest.raises(JournalFailed):
        journal.append(b"in the page cache only")
    disk.before = None
    # as the kernel does: the write is in the cache (read sees it), but no longer due to be written
    disk.pending.clear()
    journal, found = opened(disk)
    assert found == [b"in the page cache only"]
    journal.append(b"built on it")
    disk.crash()
    assert opened(disk)[1] == [b"in the page cache only", b"built on it"]


def test_short_writes_are_completed(tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def one_byte_less(descriptor: int, parts: list[bytes], offset: int) -> int:
        data = b"".join(parts)
        return os.pwrite(descriptor, data[: len(data) // 2], offset)

    journal = Journal(RealDisk(), str(tmp_path))
    assert list(journal.replay()) == []
    monkeypatch.setattr(os, "pwritev", one_byte_less)
    for n in range(5):
        journal.append([b"part", b"%d" % n, b"x" * 100])
    monkeypatch.undo()
    again = Journal(RealDisk(), str(tmp_path))
    assert list(again.replay()) == [b"part%d" % n + b"x" * 100 for n in range(5)]
    assert again.report.is_clean


def test_more_parts_than_the_system_takes_at_once(tmp_path: Path) -> None:
    parts = [b"%d," % number for number in range(2500)]
    file = RealDisk().create(str(tmp_path / "file"))
    file.write(10, parts)
    file.close()
    assert (tmp_path / "file").read_bytes() == bytes(10) + b"".join(parts)


@pytest.mark.parametrize("number", [0, errno.EOPNOTSUPP, errno.EINVAL])
def test_room_is_taken_whatever_the_file_system_can_do(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, offset: int, size: int) -> None:
        raise OSError(number, os.strerror(number))

    if number:
        monkeypatch.setattr(os, "posix_fallocate", refuse)
    reserve = Reserve(RealDisk(), str(tmp_path / "reserve"), 1 << 20)
    assert reserve.fill()
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 1 << 20
    assert reserve.release()
    assert list(tmp_path.iterdir()) == []
    assert not reserve.release()


def test_a_real_full_disk_stops_the_journal() -> None:
    """/dev/full answers every write with ENOSPC."""
    disk = RealDisk()
    file = disk.open("/dev/full")
    with pytest.raises(OSError) as caught:
        file.write(0, [b"x"])
    file.close()
    assert caught.value.errno == errno.ENOSPC
