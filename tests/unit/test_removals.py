"""Deleting large objects in steps, after their name is free."""

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from leveret.net.disk.backup import Backups
from leveret.net.disk.removals import PIECE_OCTETS, Removals
from leveret.store.backup import BackupMark
from leveret.store.disk import MemoryDisk
from leveret.store.segment import SegmentStore

PAGE = bytes(1 << 20)


class Rig:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.broken = ""
        self.disk = MemoryDisk(self.before)
        self.segments = SegmentStore(self.disk, "/pages")
        self.thread = ThreadPoolExecutor(1)
        for number in (1, 2):
            self.segments.write(number, [PAGE] * 10)
        self.seen.clear()

    def before(self, operation: str, path: str) -> None:
        self.seen.append((operation, Path(path).name))
        if operation == self.broken:
            raise OSError(errno.EIO, "broken")

    async def remove(self, *numbers: int) -> None:
        removals = Removals(asyncio.get_running_loop(), self.segments, self.thread, 0)
        for number in numbers:
            removals.remove(number)
        while removals._is_going_on:  # noqa: ASYNC110 - turns of the loop are what is waited for
            await asyncio.sleep(0)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.thread.shutdown()


def test_a_segment_goes_by_pieces_behind_its_name(rig: Rig) -> None:
    size = rig.disk.size(rig.segments.path(1))
    asyncio.run(rig.remove(1, 2))
    assert rig.segments.numbers() == []
    sizes = [each.size for each in rig.disk.pending if each.kind == "truncate"]
    assert sizes == 2 * [size - PIECE_OCTETS, size - 2 * PIECE_OCTETS]
    one, two = (f"segment-{number:010d}.lvs" for number in (1, 2))
    assert rig.seen == [
        ("names", one), ("truncate", one), ("truncate", one), ("names", two), ("truncate", two), ("truncate", two)
    ]  # fmt: skip


@pytest.mark.parametrize("operation", ["names", "truncate"])
def test_what_cannot_be_deleted_is_in_nobodys_way(rig: Rig, operation: str) -> None:
    rig.broken = operation
    asyncio.run(rig.remove(1, 2))
    assert [name for kind, name in rig.seen if kind == operation] == [f"segment-000000000{n}.lvs" for n in (1, 2)]


def test_at_a_stop_all_the_rest_goes_at_once(rig: Rig) -> None:
    async def stopped() -> None:
        removals = Removals(asyncio.get_running_loop(), rig.segments, rig.thread, 3600)
        removals.remove(1)
        removals.remove(2)
        rig.thread.shutdown()
        removals.stop()
        removals.remove(3)  # too late: the next start removes it

    asyncio.run(stopped())
    assert rig.segments.numbers() == []
    assert [name for kind, name in rig.seen if kind == "names"] == [
        "segment-0000000001.lvs",
        "segment-0000000002.lvs",
    ]


def test_others_have_the_thread_between_two_pieces(rig: Rig) -> None:
    async def written() -> None:
        removing = asyncio.create_task(rig.remove(1, 2))
        while ("truncate", "segment-0000000001.lvs") not in rig.seen:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(rig.thread, rig.segments.write, 3, [PAGE])
        await removing

    asyncio.run(written())
    last_of_two = max(index for index, seen in enumerate(rig.seen) if seen[1] == "segment-0000000002.lvs")
    of_three = [index for index, seen in enumerate(rig.seen) if seen[1].startswith("segment-0000000003")]
    assert of_three[0] < last_of_two
    assert rig.segments.numbers() == [3]


def test_a_backup_leaves_out_what_is_to_go(rig: Rig) -> None:
    rig.segments.write(3, [PAGE])

    class Work:
        def hold(self, look: Callable[[bool], None]) -> None:
            look(True)

        def release(self) -> None: ...

    class Files:
        current_size = 0

        def files(self) -> list[int]:
            return []

        def hold(self) -> list[tuple[str, int]]:
            return []

        def release(self) -> None: ...

    async def copied() -> list[str]:
        removals = Removals(asyncio.get_running_loop(), rig.segments, rig.thread, 3600)
        backups = Backups(cast(Any, Files()), rig.segments, cast(Any, Files()), cast(Any, Work()), removals)
        marks: list[BackupMark] = []
        backups._copy = lambda mark, directory, facts: marks.append(mark.result()) or []  # type: ignore[method-assign]
        busy = threading.Event()
        rig.thread.submit(busy.wait)
        removals.remove(1)
        removals.remove(2)
        await backups.take("/copy", {})
        busy.set()
        backups.stop()
        return marks[0].segments

    assert [Path(path).name for path in asyncio.run(copied())] == ["segment-0000000003.lvs"]
