"""A spool is killed, or loses power, before and after each operation on its files: no acknowledged message is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from leveret.client import Delivery, Properties
from leveret.spark.queues.errors import SourceError
from leveret.spark.queues.options import QueueOptions, SpoolOptions
from leveret.spark.queues.spool import segment as segments
from leveret.spark.queues.spool.files import SpoolFiles
from leveret.spark.queues.spool.spool import KEPT, Spool
from leveret.wire.properties import encode_header

from .support import received

QUEUE = QueueOptions("q", "amqp://broker:5672/")
BATCHES = 4


class Killed(BaseException):
    """Simulates the end of the process."""


class MortalFiles(SpoolFiles):
    """Raises Killed at a given operation; a power loss undoes changes that were not synced, as a disk may do."""

    def __init__(self, last: int, *, is_power: bool) -> None:
        self._left = last
        self._is_power = is_power
        self._unsynced: set[str] = set()
        self._renamed: list[tuple[str, str]] = []

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            if self._is_power:
                self._forget()
            raise Killed

    def _forget(self) -> None:
        for path in self._unsynced:
            size = os.path.getsize(path) if os.path.exists(path) else 0
            if size:
                os.truncate(path, size // 2)
        for old, new in reversed(self._renamed):
            if os.path.exists(new):
                os.rename(new, old)

    def make_directory(self, path: str) -> None:
        self._count()
        super().make_directory(path)

    def names(self, directory: str) -> list[str]:
        self._count()
        return super().names(directory)

    def write(self, path: str, data: bytes | pa.Buffer) -> None:
        self._count()
        self._unsynced.add(path)
        super().write(path, memoryview(data)[: len(memoryview(data)) // 2].tobytes())
        self._count()
        super().write(path, data)

    def sync(self, path: str) -> None:
        self._count()
        super().sync(path)
        self._unsynced.discard(path)

    def sync_directory(self, path: str) -> None:
        self._count()
        super().sync_directory(path)
        self._renamed.clear()

    def rename(self, old: str, new: str) -> None:
        self._count()
        super().rename(old, new)
        self._renamed.append((old, new))
        if old in self._unsynced:
            self._unsynced.add(new)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)


def delivery(number: int) -> Delivery:
    header = encode_header(Properties(message_id=f"id-{number}"), 1)
    return Delivery(str(number).encode(), header, "", "q", number + 1, False, "c")


class Life:
    """The state that outlives a spool's process: acknowledged messages, and Spark's commits."""

    def __init__(self, directory: Path) -> None:
        self._options = SpoolOptions(str(directory))
        self.acknowledged = 0
        self.committed = 0

    def run(self, files: SpoolFiles) -> None:
        """Continue after the last end: messages that were not acknowledged come (again) from the queue."""
        spool = Spool(QUEUE, self._options, "stream", files)
        try:
            assert spool.first <= self.committed <= spool.end, "Spark can't go on where it was"
            assert self.acknowledged <= spool.end, "acknowledged, and not in the spool"
            self.acknowledged = spool.end
            spool.release(self.committed)
            while self.acknowledged < 3 * BATCHES:
                spool.append(received([delivery(number) for number in range(spool.end, spool.end + 3)]))
                self.acknowledged = spool.end
                # Spark is one batch behind
                self.committed = max(self.committed, spool.end - 3)
                spool.release(self.committed)
        finally:
            spool.close()

    def bodies(self) -> list[bytes]:
        """Return the bodies that Spark would read now."""
        spool = Spool(QUEUE, self._options, "stream")
        try:
            parts = spool.parts(self.committed, spool.end)
            return [
                row["body"]
                for part in parts
                for batch in segments.batches(part.path)
                for row in batch.slice(part.first, part.end - part.first).to_pylist()
            ]
        finally:
            spool.close()


@pytest.mark.parametrize("is_power", [False, True])
def test_nothing_acknowledged_is_lost_wherever_it_ends(tmp_path: Path, is_power: bool) -> None:
    ends = 0
    while True:
        life = Life(tmp_path / str(ends))
        try:
            life.run(MortalFiles(ends, is_power=is_power))
        except Killed:
            ends += 1
        else:
            break
        before = life.acknowledged
        bodies = life.bodies()
        assert bodies[: before - life.committed] == [str(n).encode() for n in range(life.committed, before)]
        life.run(SpoolFiles())
        assert life.bodies() == [str(n).encode() for n in range(life.committed, 3 * BATCHES)]
        kept = sorted(path.name for path in (tmp_path / str(ends - 1)).glob("0*"))
        assert len(kept) == KEPT
        assert not list((tmp_path / str(ends - 1)).glob("*.part"))
    # the identity, then each time: a file written in two halves, synced, renamed, and the directory synced
    assert ends > 6 * BATCHES, f"only {ends} points"


class FullFiles(SpoolFiles):
    """A disk on which one kind of operation fails from the second time on; the first one writes the identity."""

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self._times = 0

    def _fail(self, operation: str) -> None:
        if operation == self._operation:
            self._times += 1
            if self._times > 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(self, path: str, data: bytes | pa.Buffer) -> None:
        super().write(path, b"torn")
        self._fail("write")
        super().write(path, data)

    def sync(self, path: str) -> None:
        self._fail("sync")
        super().sync(path)

    def rename(self, old: str, new: str) -> None:
        self._fail("rename")
        super().rename(old, new)

    def sync_directory(self, path: str) -> None:
        self._fail("sync_directory")
        super().sync_directory(path)


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_directory"])
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(tmp_path: Path, operation: str) -> None:
    options = SpoolOptions(str(tmp_path))
    spool = Spool(QUEUE, options, "stream", FullFiles(operation))
    with pytest.raises(SourceError, match=r"No space left on device; nothing of it was acknowledged.*option spoolDir"):
        spool.append(received([delivery(0)]))
    spool.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "spool.json"]
    spool = Spool(QUEUE, options, "stream")
    spool.append(received([delivery(0)]))
    assert spool.end == 1
    spool.close()


def test_damage_is_told_and_not_passed_over(tmp_path: Path) -> None:
    options = SpoolOptions(str(tmp_path))
    spool = Spool(QUEUE, options, "stream")
    for number in range(3):
        spool.append(received([delivery(number)]))
    part = spool.parts(1, 2)[0]
    os.truncate(part.path, 100)
    with pytest.raises(SourceError, match=r"can't be read.*option spoolDir"):
        list(segments.batches(part.path))
    os.unlink(part.path)
    with pytest.raises(SourceError, match=r"does not exist here: option spoolDir must be a directory that"):
        list(segments.batches(part.path))
    spool.close()
    with pytest.raises(SourceError, match=r"has lost messages 1 to 2.*option spoolDir"):
        Spool(QUEUE, options, "stream")
    (tmp_path / "spool.json").write_text("{")
    with pytest.raises(SourceError, match=r"spool.json is damaged.*option spoolDir"):
        Spool(QUEUE, options, "stream")


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match=r"can't be used: Not a directory \(option spoolDir\)"):
        Spool(QUEUE, SpoolOptions(str(tmp_path / "file" / "spool")), "stream")
