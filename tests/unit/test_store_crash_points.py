"""A crash at every operation of a short history, with every possible subset of the unsynced operations."""

import random
from collections.abc import Iterator

import pytest

from leveret.store.disk import MemoryDisk
from leveret.store.journal import Journal

DIRECTORY = "/data"


class Crash(BaseException):
    """Stops the code under test; a BaseException, so that nothing handles it."""


class Witness:
    """A history of appends, rotations and removals, and the payloads confirmed at each moment.

    `recycled`: the journal files that were spares. Few batches get room written ahead, so that files grow, too.
    """

    def __init__(self, disk: MemoryDisk, life: int) -> None:
        self.life = life
        self.confirmed: list[bytes] = []
        self.attempted: list[bytes] = []
        self.removed: set[bytes] = set()
        self.recycled: set[str] = set()
        self.journal = Journal(disk, DIRECTORY, random_bytes=random.Random(life).randbytes, ahead_size=64)
        self._disk = disk

    def start(self) -> list[bytes]:
        found = list(self.journal.replay())
        self.confirmed = list(found)
        self.attempted = list(found)
        return found

    def append(self, text: str) -> None:
        payload = f"{self.life}-{text}".encode()
        self.attempted.append(payload)
        self.journal.append(payload)
        self.confirmed.append(payload)

    def rotate(self, text: str) -> None:
        payload = f"{self.life}-{text}".encode()
        self.attempted.append(payload)
        spares = self.spares()
        self.journal.rotate(payload)
        if self.spares() < spares:
            self.recycled.add(self.journal.path(self.journal.current))
        self.confirmed.append(payload)

    def spares(self) -> set[str]:
        return {name for name in self._disk.list_names(DIRECTORY) if name.startswith("spare-")}

    def run(self) -> None:
        self.append("one")
        self.append("two " * 20)
        self.rotate("snapshot")
        self.append("three")
        # the files before the snapshot may be removed now: from here on their payloads may be there or not
        self.removed = set(self.confirmed[: self.confirmed.index(f"{self.life}-snapshot".encode())])
        while self.journal.files()[0] != self.journal.current:
            self.journal.remove(self.journal.files()[0])
        self.append("four")
        self.rotate("again")
        self.append("five")
        self.append("six")
        self.journal.close()


def remainders(disk: MemoryDisk) -> Iterator[tuple[tuple[int, ...], int | None]]:
    """Yield the pending operations that a crash keeps: every subset, the last write whole or torn at several bytes."""
    count = len(disk.pending)
    assert count <= 5, "the journal leaves more unsynced than it should"
    for bits in range(1 << count):
        kept = tuple(index for index in range(count) if bits >> index & 1)
        yield kept, None
        writes = [disk.pending[index] for index in kept if disk.pending[index].kind == "write"]
        if writes:
            for torn in {0, 1, 19, 20, 21, writes[-1].size // 2, writes[-1].size - 1}:
                yield kept, torn


def stopped_at(stop: int, seed_life: int = 0, at: list[str] | None = None) -> tuple[MemoryDisk, Witness] | None:
    """Stop a history at its `stop`-th operation; None if it has fewer. Append the operation's path to `at`."""
    disk = MemoryDisk()

    def before(operation: str, path: str) -> None:
        if disk.operations == stop:
            if at is not None:
                at.append(path)
            raise Crash

    disk.before = before
    witness = Witness(disk, seed_life)
    try:
        witness.start()
        witness.run()
    except Crash:
        disk.before = None
        return disk, witness
    return None


def check(found: list[bytes], witness: Witness) -> None:
    assert len(set(found)) == len(found), "a batch came back twice"
    remaining = iter(witness.attempted)
    assert all(payload in remaining for payload in found), "invented, or out of order"
    lost = set(witness.confirmed) - witness.removed - set(found)
    assert not lost, f"confirmed and lost: {lost}"


def operations() -> int:
    count = 1
    while stopped_at(count) is not None:
        count += 1
    return count - 1


def test_a_power_cut_at_every_operation_loses_nothing_confirmed() -> None:
    crashes = crashes_in_spares = crashes_in_recycled = 0
    for stop in range(1, operations() + 1):
        at: list[str] = []
        probe = stopped_at(stop, at=at)
        assert probe is not None
        crashes_in_spares += "/spare-" in at[0]
        crashes_in_recycled += at[0] in probe[1].recycled
        for kept, torn in list(remainders(probe[0])):
            again = stopped_at(stop)
            assert again is not None
            disk, witness = again
            disk.crash(kept, torn)
            second = Witness(disk, 1)
            found = second.start()
            check(found, witness)
            assert second.journal.report.damages == []
            # the journal continues, and survives another power cut in which everything unsynced is lost
            second.run()
            assert second.recycled
            disk.crash()
            third = Witness(disk, 2)
            check(third.start(), second)
            assert third.journal.report.is_clean
            crashes += 1
    assert crashes > 200
    # the history reuses a file: power cuts while its new header is written, and while it is appended to
    assert crashes_in_spares >= 3
    assert crashes_in_recycled >= 4


def test_a_killed_process_leaves_nothing_that_a_later_power_cut_could_take() -> None:
    """kill -9 keeps the page cache: the next epoch reads unsynced data and builds on it."""
    for stop in range(1, operations() + 1):
        history = stopped_at(stop)
        assert history is not None
        disk, witness = history
        second = Witness(disk, 1)
        found = second.start()
        check(found, witness)
        disk.crash()
        third = Witness(disk, 2)
        check(third.start(), second)
        assert third.journal.report.is_clean


def test_the_same_history_gives_the_same_bytes() -> None:
    contents = []
    for _ in range(2):
        disk = MemoryDisk()
        witness = Witness(disk, 7)
        witness.start()
        witness.run()
        contents.append([disk.read(f"{DIRECTORY}/{name}") for name in disk.list_names(DIRECTORY)])
    assert contents[0] == contents[1]


@pytest.mark.parametrize("cheat", ["sync", "sync_directory"])
def test_these_tests_notice_a_missing_sync(cheat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above prove something only if they fail for a journal that does not sync."""
    if cheat == "sync":
        monkeypatch.setattr("leveret.store.disk._MemoryFile.sync", lambda self: None)
    else:
        monkeypatch.setattr(MemoryDisk, "sync_directory", lambda self, path: None)
    disk = MemoryDisk()
    witness = Witness(disk, 0)
    witness.start()
    witness.append("one")
    disk.crash()
    with pytest.raises(AssertionError, match="confirmed and lost"):
        check(Witness(disk, 1).start(), witness)
