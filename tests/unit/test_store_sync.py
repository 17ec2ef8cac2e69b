"""The sync thread: batches in order, each reported once, no success reported after a failure."""

import errno
import random
import threading

import pytest

from leveret.store.disk import DiskFile, MemoryDisk, SyncFailed
from leveret.store.journal import Journal, JournalFailed, JournalFull
from leveret.store.kernel_sync import KernelSync
from leveret.store.reserve import Reserve
from leveret.store.sync import SyncThread, SyncWork


class Reports:
    """Collects a sync thread's reports; `wait` blocks until a batch is reported."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Exception | None]] = []
        self.thread_names: set[str] = set()
        self._changed = threading.Condition()

    def __call__(self, batch_id: int, error: Exception | None) -> None:
        with self._changed:
            self.seen.append((batch_id, error))
            self.thread_names.add(threading.current_thread().name)
            self._changed.notify_all()

    def wait(self, batch_id: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: any(seen == batch_id for seen, _ in self.seen), timeout=60)


def opened(disk: MemoryDisk) -> tuple[Journal, list[bytes]]:
    journal = Journal(disk, "/data", random_bytes=random.Random(3).randbytes)
    return journal, list(journal.replay())


def test_batches_are_durable_when_reported_and_in_order() -> None:
    disk = MemoryDisk()
    reports = Reports()
    thread = SyncThread(opened(disk)[0], reports)
    for n in range(100):
        thread.submit(n, [b"batch", b" %d" % n])
    thread.stop()
    assert reports.seen == [(n, None) for n in range(100)]
    assert reports.thread_names == {"leveret-sync"}
    disk.crash()
    assert opened(disk)[1] == [b"batch %d" % n for n in range(100)]


def test_a_batch_is_synced_without_waiting_for_a_next_one() -> None:
    reports = Reports()
    thread = SyncThread(opened(MemoryDisk())[0], reports)
    thread.submit(7, b"alone")
    reports.wait(7)
    thread.stop()


def test_a_rotation_comes_after_its_payload_and_old_files_go_when_asked() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    reports = Reports()
    thread = SyncThread(journal, reports)
    thread.submit(1, b"old")
    thread.submit(2, b"last of the old file", rotate_snapshot=b"snapshot")
    thread.submit(3, b"new")
    thread.submit(4, b"", rotate_snapshot=b"snapshot 2")
    thread.submit(5, b"")
    reports.wait(5)
    assert opened(disk)[1] == [b"old", b"last of the old file", b"snapshot", b"new", b"snapshot 2"]
    thread.remove_before(2)
    thread.submit(6, b"end")
    reports.wait(6)
    assert opened(disk)[1] == [b"snapshot", b"new", b"snapshot 2", b"end"]
    # a number beyond the last batch removes everything but the current file
    thread.remove_before(99)
    thread.stop()
    assert opened(disk)[1] == [b"snapshot 2", b"end"]
    assert [error for _, error in reports.seen] == [None] * 6


def test_files_stay_while_they_are_looked_at_and_go_afterwards() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    work = SyncWork(journal, Reports())
    looks: list[tuple[bool, list[int], int]] = []
    work.submit(1, b"old", rotate_snapshot=b"snapshot")
    work.submit(2, b"new")
    work.hold(lambda is_sound: looks.append((is_sound, journal.files(), journal.current_size)))
    work.submit(3, b"newer")
    work.remove_before(2)
    while work.is_waiting:
        work.perform()
    assert [(is_sound, files) for is_sound, files, _ in looks] == [(True, [1, 2])]
    assert disk.read(journal.path(2))[: looks[0][2]].endswith(b"new")
    assert journal.files() == [1, 2]
    work.release()
    work.perform()
    assert journal.files() == [2]


def test_who_looks_is_told_when_the_last_batch_waits_for_room() -> None:
    disk = MemoryDisk()
    work = SyncWork(opened(disk)[0], Reports())
    disk.before = FullDisk(0)
    looks: list[bool] = []
    work.submit(1, b"x" * 500_000)
    work.hold(looks.append)
    while work.is_waiting:
        work.perform()
    assert looks == [False]


def test_after_a_failed_sync_every_batch_is_reported_failed() -> None:
    disk = MemoryDisk()
    reports = Reports()
    thread = SyncThread(opened(disk)[0], reports)
    thread.submit(1, b"good")
    reports.wait(1)

    def fail_once(operation: str, path: str) -> None:
        if operation == "sync":
            disk.before = None
            raise OSError(errno.EIO, "Input/output error", path)

    disk.before = fail_once
    for n in range(2, 6):
        thread.submit(n, b"bad")
    thread.stop()
    assert reports.seen[0] == (1, None)
    assert [batch_id for batch_id, _ in reports.seen] == [1, 2, 3, 4, 5]
    assert all(isinstance(error, JournalFailed) and error.errno == errno.EIO for _, error in reports.seen[1:])
    disk.crash()
    assert opened(disk)[1] == [b"good"]


def test_a_payload_that_can_not_be_a_batch_is_reported_not_swallowed() -> None:
    reports = Reports()
    thread = SyncThread(opened(MemoryDisk())[0], reports)
    thread.submit(1, [b"", b""])
    thread.submit(2, b"good")
    thread.stop()
    assert isinstance(reports.seen[0][1], ValueError)
    assert reports.seen[1] == (2, None)


def test_a_file_that_can_not_be_removed_stays_without_harm() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    reports = Reports()
    thread = SyncThread(journal, reports)
    thread.submit(1, b"old", rotate_snapshot=b"snapshot")
    reports.wait(1)

    def refuse(operation: str, path: str) -> None:
        if operation == "names":
            raise OSError(errno.EACCES, "Permission denied", path)

    disk.before = refuse
    thread.remove_before(2)
    thread.submit(2, b"new")
    thread.stop()
    assert reports.seen == [(1, None), (2, None)]
    assert journal.files() == [1, 2]


def test_stop_finishes_what_was_submitted_and_refuses_more() -> None:
    reports = Reports()
    thread = SyncThread(opened(MemoryDisk())[0], reports)
    thread.submit(1, b"x")
    thread.stop()
    thread.stop()
    assert reports.seen == [(1, None)]
    with pytest.raises(RuntimeError, match="stopped"):
        thread.submit(2, b"y")


def test_no_file_goes_when_the_batch_that_makes_it_superfluous_failed() -> None:
    """Otherwise a dead letter of that batch would be lost: removed from its old queue, not written to the new one."""
    disk = MemoryDisk()
    reports = Reports()
    journal = opened(disk)[0]
    thread = SyncThread(journal, reports)
    thread.submit(1, b"a message", b"declarations")
    reports.wait(1)

    def refuse(operation: str, _: str) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, "input/output error")

    disk.before = refuse
    thread.submit(2, b"its hop")
    thread.remove_before(2)
    thread.stop()
    assert isinstance(reports.seen[-1][1], JournalFailed)
    disk.before = None
    disk.crash()
    assert opened(disk)[1] == [b"a message", b"declarations"]


class FullDisk:
    """Refuses to allocate or write after `room` such requests."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __call__(self, operation: str, path: str) -> None:
        if operation in {"write", "allocate"}:
            if self.room == 0:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            self.room -= 1


def performed(work: SyncWork) -> None:
    while work.is_waiting:
        work.perform()


def test_a_batch_without_room_waits_and_what_follows_waits_behind_it() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    reports = Reports()
    work = SyncWork(journal, reports)
    full = disk.before = FullDisk(0)
    work.submit(1, b"first")
    work.submit(2, b"second")
    performed(work)
    assert [batch for batch, _ in reports.seen] == [1]
    assert isinstance(reports.seen[0][1], JournalFull)
    work.retry()
    performed(work)
    assert [batch for batch, _ in reports.seen] == [1, 1]
    full.room = 9
    work.retry()
    performed(work)
    assert reports.seen[2:] == [(1, None), (2, None)]
    disk.crash()
    assert opened(disk)[1] == [b"first", b"second"]


def test_a_rotation_without_room_does_not_write_its_payload_twice() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    reports = Reports()
    work = SyncWork(journal, reports)
    full = disk.before = FullDisk(1)
    work.submit(1, b"payload", b"snapshot")
    performed(work)
    assert isinstance(reports.seen[0][1], JournalFull)
    full.room = 9
    work.retry()
    performed(work)
    assert reports.seen[1:] == [(1, None)]
    disk.crash()
    assert opened(disk)[1] == [b"payload", b"snapshot"]


def test_no_file_goes_while_the_batch_that_makes_it_superfluous_waits_for_room() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    work = SyncWork(journal, Reports())
    work.submit(1, b"a message", b"declarations")
    performed(work)
    full = disk.before = FullDisk(0)
    work.submit(2, b"its hop")
    work.remove_before(2)
    performed(work)
    assert journal.files() == [1, 2]
    full.room = 9
    work.retry()
    performed(work)
    assert journal.files() == [2]
    disk.crash()
    assert opened(disk)[1] == [b"declarations", b"its hop"]


def test_the_reserve_is_given_up_once_and_filled_again_when_there_is_room() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    reserve = Reserve(disk, "/data/reserve", 4096)
    assert not reserve.is_whole
    assert reserve.fill()
    assert disk.size("/data/reserve") == 4096
    assert Reserve(disk, "/data/reserve", 4096).is_whole
    reports = Reports()
    work = SyncWork(journal, reports, reserve)

    def full_but_for_the_reserve(operation: str, path: str) -> None:
        if operation == "allocate" or (operation == "write" and "reserve" in disk.list_names("/data")):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    disk.before = full_but_for_the_reserve
    work.submit(1, b"written into the reserve's room")
    performed(work)
    assert reports.seen == [(1, None)]
    assert not reserve.is_whole
    assert "reserve" not in disk.list_names("/data")
    work.retry()
    performed(work)
    assert not reserve.is_whole
    assert "reserve" not in disk.list_names("/data")
    disk.before = None
    work.retry()
    performed(work)
    assert reserve.is_whole


def test_a_batch_that_waits_for_room_is_given_up_at_the_stop() -> None:
    disk = MemoryDisk()
    reports = Reports()
    thread = SyncThread(opened(disk)[0], reports)
    disk.before = FullDisk(0)
    thread.submit(1, b"never written")
    thread.stop()
    assert isinstance(reports.seen[0][1], JournalFull)
    disk.crash()
    assert opened(disk)[1] == []


def test_spare_files_are_given_up_before_the_reserve_and_none_is_kept_on_a_nearly_full_disk() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    reserve = Reserve(disk, "/data/reserve", 4096)
    reserve.fill()
    reports = Reports()
    work = SyncWork(journal, reports, reserve)
    for n in range(1, 4):
        work.submit(n, b"old", rotate_snapshot=b"snapshot")
    work.remove_before(3)
    performed(work)
    assert sum(name.startswith("spare-") for name in disk.list_names("/data")) == 2

    def full_but_for_the_spares(operation: str, path: str) -> None:
        if operation == "write" and any(name.startswith("spare-") for name in disk.list_names("/data")):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    disk.before = full_but_for_the_spares
    work.submit(4, b"written in the room of the spares")
    performed(work)
    assert reports.seen[-1] == (4, None)
    assert reserve.is_whole
    work.saves_room = True
    work.remove_before(4)
    performed(work)
    assert [name for name in disk.list_names("/data") if name.endswith(".lvj")] == ["journal-0000000004.lvj"]
    # files kept while the disk was low are removed at the next call
    work.saves_room = False
    work.submit(5, b"more", rotate_snapshot=b"snapshot")
    work.remove_before(5)
    performed(work)
    assert any(name.startswith("spare-") for name in disk.list_names("/data"))
    work.saves_room = True
    work.retry()
    performed(work)
    assert [name for name in disk.list_names("/data") if name.endswith(".lvj")] == ["journal-0000000005.lvj"]


class Kernel(KernelSync):
    """Syncs when the test calls `end`."""

    def __init__(self, refused: OSError | None = None) -> None:
        self.refused = refused
        self.failure: SyncFailed | None = None
        self.is_closed = False
        self._file: DiskFile | None = None

    def begin(self, file: DiskFile) -> None:
        if self.refused is not None:
            raise self.refused
        self._file = file

    def end(self) -> None:
        if self.failure is not None:
            raise self.failure
        assert self._file is not None
        self._file.sync()

    def close(self) -> None:
        self.is_closed = True


class Done(list[tuple[int, Exception | None]]):
    """The reports in order."""

    def __call__(self, batch_id: int, error: Exception | None) -> None:
        self.append((batch_id, error))


def test_the_kernel_may_sync_a_batch_while_the_thread_is_idle() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    done, kernel = Done(), Kernel()
    work = SyncWork(journal, done, kernel=kernel)
    assert work.begin(1, b"one")
    begun = [work.has_begun]
    assert not done, "not yet"
    assert disk.pending, "written, not synced"
    assert not work.begin(2, b"two"), "one at a time"
    work.end()
    begun.append(work.has_begun)
    assert begun == [True, False]
    work.end()
    assert done == [(1, None)]
    work.submit(2, b"two")
    assert not work.begin(3, b"three"), "what was submitted before comes first"
    work.perform()
    assert work.begin(3, b"three")
    work.end()
    assert [batch for batch, _ in done] == [1, 2, 3]
    disk.crash()
    assert opened(disk)[1] == [b"one", b"two", b"three"]


def test_what_has_begun_and_not_ended_is_not_in_the_journal() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    work = SyncWork(journal, Done(), kernel=Kernel())
    work.submit(1, b"one")
    work.perform()
    assert work.begin(2, b"two")
    before = journal.current_size
    work.end()
    assert journal.current_size > before


def test_a_batch_that_the_kernel_syncs_is_ended_by_stop() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    done, kernel = Done(), Kernel()
    thread = SyncThread(journal, done, kernel=kernel)
    assert thread.begin(1, b"one")
    thread.stop()
    assert done == [(1, None)]
    assert kernel.is_closed
    assert not thread.begin(2, b"two")


def test_after_a_failed_sync_by_the_kernel_nothing_is_written() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    done, kernel = Done(), Kernel()
    work = SyncWork(journal, done, kernel=kernel)
    kernel.failure = SyncFailed(errno.EIO, "input/output error")
    assert work.begin(1, b"one")
    work.end()
    kernel.failure = None
    assert not work.begin(2, b"two")
    work.submit(2, b"two")
    work.perform()
    assert [batch for batch, _ in done] == [1, 2]
    assert all(isinstance(error, JournalFailed) and error.errno == errno.EIO for _, error in done)


def test_what_the_kernel_refuses_the_thread_does() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    done = Done()
    kernel = Kernel(OSError(errno.EINVAL, "no such syncs in this file system"))
    work = SyncWork(journal, done, kernel=kernel)
    assert not work.begin(1, b"one")
    kernel.refused = None
    work.submit(1, b"one")
    work.perform()
    assert done == [(1, None)]
    disk.crash()
    assert opened(disk)[1] == [b"one"], "once"
    assert not work.begin(2, b"two"), "and it is not asked again"


def test_a_file_that_only_its_disk_can_sync_is_the_threads() -> None:
    journal, _ = opened(MemoryDisk())
    done, kernel = Done(), KernelSync()
    work = SyncWork(journal, done, kernel=kernel)
    assert not work.begin(1, b"one")
    work.submit(1, b"one")
    work.perform()
    assert done == [(1, None)]
    kernel.close()


def test_without_room_the_thread_waits() -> None:
    def refuse(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(errno.ENOSPC, "no room")

    disk = MemoryDisk()
    journal, _ = opened(disk)
    done = Done()
    work = SyncWork(journal, done, kernel=Kernel())
    disk.before = refuse
    assert not work.begin(1, b"one")
    work.submit(1, b"one")
    work.perform()
    assert isinstance(done[-1][1], JournalFull)
    disk.before = None
    work.retry()
    work.perform()
    assert done[-1] == (1, None)
    assert work.begin(2, b"two"), "it was not the kernel that refused"
    work.end()


def test_the_kernel_does_nothing_while_the_thread_is_at_it() -> None:
    started, go_on = threading.Event(), threading.Event()

    def wait(operation: str, path: str) -> None:
        if operation == "sync":
            started.set()
            assert go_on.wait(60)

    disk = MemoryDisk()
    journal, _ = opened(disk)
    disk.before = wait
    done, kernel = Done(), Kernel()
    thread = SyncThread(journal, done, kernel=kernel)
    thread.submit(1, b"one")
    assert started.wait(60)
    assert not thread.begin(2, b"two")
    go_on.set()
    thread.stop()
    assert done == [(1, None)]
