"""The native files of a stream: append, index, read, recovery after crashes and damage, removal."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from leveret.store import stream_files
from leveret.store.disk import MemoryDisk, RealDisk
from leveret.store.format import BATCH_HEADER_SIZE, DATA_START
from leveret.store.stream_files import Chunk, StreamDamaged, StreamFiles
from leveret.store.streams import StreamStore

HEAD = BATCH_HEADER_SIZE + 30
DIRECTORY = "/streams/7"
COUNT = 10
SMALL = DATA_START + 500


def opened(disk: MemoryDisk, journalled_from: int = 0) -> StreamFiles:
    files = StreamFiles(disk, DIRECTORY, random.Random(disk.crashes).randbytes)
    files.recover(journalled_from)
    return files


def chunk(first: int, octets: int = 100, count: int = COUNT, digest: bytes = b"") -> Chunk:
    payload = (b"%d," % first * octets)[:octets]
    return Chunk(first, count, first * 1000, (first + count - 1) * 1000, payload, digest)


def chunks(first: int, number: int, octets: int = 100) -> list[Chunk]:
    return [chunk(first + index * COUNT, octets) for index in range(number)]


def append(files: StreamFiles, new: Sequence[Chunk], segment_octets: int = 1 << 30) -> None:
    files.appended(files.append(new, segment_octets))


def stored(files: StreamFiles) -> list[tuple[int, int, bytes]]:
    """Return (first, end, payload) of every chunk, found by walking over the offsets as a reader does."""
    found = []
    offset = files.first
    while (segment := files.segment_of(offset)) is not None:
        place = files.place_of(segment, offset)
        if place is None:
            offset = segment.end
            continue
        payload = files.read(segment, place)
        assert payload is not None
        found.append((place.first, place.end, payload))
        offset = place.end
    return found


def expected(new: Sequence[Chunk]) -> list[tuple[int, int, bytes]]:
    return [(part.first, part.first + part.count, whole(part)) for part in new]


def whole(part: Chunk) -> bytes:
    return part.payload if isinstance(part.payload, bytes) else b"".join(part.payload)


def names(disk: MemoryDisk) -> list[str]:
    return disk.list_names(DIRECTORY)


def damage(disk: MemoryDisk, name: str, at: int) -> None:
    inode = disk._find(f"{DIRECTORY}/{name}")
    inode.content[at] ^= 0xFF
    inode.stable[at] ^= 0xFF


def test_what_is_appended_is_read_and_stays() -> None:
    disk = MemoryDisk()
    files = opened(disk)
    assert (files.first, files.end, files.octets, names(disk)) == (0, 0, 0, [])
    append(files, chunks(0, 3))
    append(files, chunks(30, 2))
    assert stored(files) == expected(chunks(0, 5))
    assert (files.first, files.end) == (0, 50)
    assert files.octets == disk.size(f"{DIRECTORY}/{0:020d}.lvs") == DATA_START + 5 * (HEAD + 100)
    disk.crash()  # append has synced everything
    assert stored(opened(disk)) == expected(chunks(0, 5))


def test_readers_find_nothing_before_they_are_told() -> None:
    disk = MemoryDisk()
    files = opened(disk)
    result = files.append(chunks(0, 2))
    assert stored(files) == []
    files.appended(result)
    assert stored(files) == expected(chunks(0, 2))


def test_a_file_that_has_its_size_is_followed_by_another() -> None:
    disk = MemoryDisk()
    files = opened(disk)
    for first in range(0, 200, 20):
        append(files, chunks(first, 2), SMALL)
    assert stored(files) == expected(chunks(0, 20))
    assert names(disk) == [f"{first:020d}.lvs" for first in range(0, 200, 40)]
    assert [segment.end for segment in files.segments] == [40, 80, 120, 160, 200]
    disk.crash()
    again = opened(disk)
    assert stored(again) == expected(chunks(0, 20))
    assert [segment.end for segment in again.segments] == [40, 80, 120, 160, 200]
    append(again, chunks(200, 1), SMALL)
    assert stored(again) == expected(chunks(0, 21))


def test_one_append_can_bring_several_files() -> None:
    disk = MemoryDisk()
    files = opened(disk)
    append(files, chunks(0, 2), SMALL)
    append(files, chunks(20, 11), SMALL)
    assert [segment.first for segment in files.segments] == [0, 40, 80, 120]
    assert stored(files) == expected(chunks(0, 13))


def test_a_chunk_larger_than_a_file_has_one_of_its_own() -> None:
    disk = MemoryDisk()
    files = opened(disk)
    large = chunk(10, 5000)
    append(files, [chunk(0), large, chunk(20)], SMALL)
    assert [segment.first for segment in files.segments] == [0, 20]
    assert stored(files) == expected([chunk(0), large, chunk(20)])


def test_digests_are_in_the_index_and_not_in_the_payload() -> None:
    disk = MemoryDisk()
    files = opened(disk)
    new = [chunk(0, digest=b"d" * 65_535), chunk(10), chunk(20, digest=b"e")]
    append(files, new)
    for looked in (files, opened(disk)):
        assert stored(looked) == expected(new)
        places = looked.segments[0].places
        assert places is not None
        assert [place.digest for place in places] == [b"d" * 65_535, b"", b"e"]


def test_every_torn_end_of_the_last_append_is_cut() -> None:
    """Cut at each octet, with and without zeros in place of the missing rest; then the chunks can be appended again."""
    before, new = chunks(0, 2), chunks(20, 2)
    disk = MemoryDisk()
    append(opened(disk), before)
    size = 2 * (HEAD + 100)
    for torn in range(size + 1):
        for is_sized in (False, True):
            cut = MemoryDisk()
            append(opened(cut), before)
            files = opened(cut)

            def stop(operation: str, path: str) -> None:
                if operation == "sync":
                    raise InterruptedError

            cut.before = stop
            with pytest.raises(OSError):
                files.append(new)
            cut.before = None
            cut.crash(range(len(cut.pending)), torn, is_sized)
            again = opened(cut, 20)
            whole = torn // (HEAD + 100)
            assert stored(again) == expected([*before, *new][: 2 + whole]), torn
            assert again.end == 20 + 10 * whole
            append(again, new[whole:])
            assert stored(again) == expected([*before, *new])
            cut.crash()
            assert stored(opened(cut, 20)) == expected([*before, *new])


def test_a_torn_chunk_behind_which_a_large_one_follows_is_cut() -> None:
    """However large it is: recovery reads only the part that the journal still has."""
    disk = MemoryDisk()
    append(opened(disk), chunks(0, 1))
    append(opened(disk), [chunk(10), chunk(20, 40 << 20)])
    damage(disk, f"{0:020d}.lvs", DATA_START + 2 * HEAD + 150)
    again = opened(disk, 10)
    assert (stored(again), again.end) == (expected(chunks(0, 1)), 10)


def test_only_what_the_journal_has_is_read_at_a_start() -> None:
    disk = MemoryDisk()
    append(opened(disk), chunks(0, 50, 10_000))
    looked: list[int] = []
    find = disk._find

    class Watched(MemoryDisk):
        def open(self, path: str):  # type: ignore[no-untyped-def]
            file = super().open(path)
            read = file.read

            def counted(offset: int, length: int) -> bytes:
                looked.append(length)
                return read(offset, length)

            file.read = counted  # type: ignore[method-assign]
            return file

    disk.__class__ = Watched
    opened(disk, 480)
    assert find is not None
    assert 20_000 < sum(looked) < 40_000, "the last two chunks, and the heads of all"


@pytest.mark.parametrize("at", [0, 5, BATCH_HEADER_SIZE, BATCH_HEADER_SIZE + 3, BATCH_HEADER_SIZE + 29])
def test_a_damaged_head_in_the_middle_takes_nothing_that_comes_after_it(at: int) -> None:
    """Chunks before it can be read, those after it in the same file can't, later appends can."""
    disk = MemoryDisk()
    append(opened(disk), chunks(0, 5))
    damage(disk, f"{0:020d}.lvs", DATA_START + 2 * (HEAD + 100) + at)
    size = disk.size(f"{DIRECTORY}/{0:020d}.lvs")
    files = opened(disk, 50)
    assert disk.size(f"{DIRECTORY}/{0:020d}.lvs") == size, "no damage is cut: it may be looked at"
    assert stored(files) == expected(chunks(0, 2))
    append(files, chunks(50, 2))
    for _ in range(2):
        assert stored(files) == expected([*chunks(0, 2), *chunks(50, 2)])
        assert names(disk) == [f"{0:020d}.lvs", f"{50:020d}.lvs"]
        disk.crash()
        files = opened(disk, 50)


def test_a_large_chunk_is_read_without_its_head_and_damage_in_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_files, "LARGE_OCTETS", 50)
    disk = MemoryDisk()
    files = opened(disk)
    new = [Chunk(first, 1, 0, 0, [b"parts " * 10, b"of %d" % first], b"digest") for first in range(2)]
    append(files, new)
    for _ in range(2):
        assert stored(files) == expected(new)
        files = opened(disk)
    [segment] = files.segments
    place = files.place_of(segment, 1)
    assert place is not None
    disk.open(files.path(0)).write(place.at + 3, [b"!"])
    with pytest.raises(StreamDamaged):
        files.read(segment, place)


def test_a_damaged_chunk_is_told_and_the_others_can_be_read() -> None:
    disk = MemoryDisk()
    append(opened(disk), chunks(0, 5))
    damage(disk, f"{0:020d}.lvs", DATA_START + 3 * HEAD + 250)
    files = opened(disk, 50)
    segment = files.segment_of(20)
    assert segment is not None
    place = files.place_of(segment, 25)
    assert place is not None
    with pytest.raises(StreamDamaged, match=r"00000\.lvs, message 20: a chunk of 100 bytes with a wrong checksum"):
        files.read(segment, place)
    places = segment.places
    assert places is not None
    assert [files.read(segment, other) for other in places if other.first != 20] == [
        part.payload for part in chunks(0, 5) if part.first != 20
    ]


@pytest.mark.parametrize("journalled_from", [20, 30])
def test_a_newest_file_without_a_header_is_no_reason_not_to_start(journalled_from: int) -> None:
    """The journal's messages are written again, at their old place if they cover the whole file."""
    disk = MemoryDisk()
    files = opened(disk)
    append(files, chunks(0, 2))
    append(files, chunks(20, 2), DATA_START + 200)
    for copy in (0, 4096):
        damage(disk, f"{20:020d}.lvs", copy)
    files = opened(disk, journalled_from)
    assert (stored(files), files.end) == (expected(chunks(0, 2)), 20)
    append(files, chunks(journalled_from, 2))
    disk.crash()
    assert stored(opened(disk, 50)) == expected([*chunks(0, 2), *chunks(journalled_from, 2)])


def test_an_old_file_without_a_header_is_passed_over() -> None:
    disk = MemoryDisk()
    append(opened(disk), chunks(0, 30), SMALL)
    for copy in (0, 4096):
        damage(disk, f"{80:020d}.lvs", copy)
    files = opened(disk)
    assert stored(files) == expected([*chunks(0, 8), *chunks(120, 18)])
    assert files.first_since(85_000) == 120
    assert files.first_since(75_000) == 70


def test_chunks_behind_a_gap_are_found_after_a_start() -> None:
    disk = MemoryDisk()
    files = opened(disk)
    append(files, chunks(0, 2))
    append(files, [chunk(50), chunk(60), chunk(90)])
    assert [segment.first for segment in files.segments] == [0, 50, 90]
    disk.crash()
    assert stored(opened(disk)) == expected([*chunks(0, 2), chunk(50), chunk(60), chunk(90)])


@pytest.mark.parametrize("refused", range(1, 12))
def test_after_a_refusal_the_same_can_be_given_again(refused: int) -> None:
    """Refused at each operation of an append that extends a file and starts two: nothing is lost or duplicated."""
    disk = MemoryDisk()
    files = opened(disk)
    append(files, chunks(0, 3), SMALL)
    before = disk.operations

    def refuse(operation: str, path: str) -> None:
        if disk.operations == before + refused:
            raise OSError(28, "no space left on device", path)

    disk.before = refuse
    with pytest.raises(OSError):
        files.append(chunks(30, 6), SMALL)
    disk.before = None
    assert stored(files) == expected(chunks(0, 3))
    append(files, chunks(30, 7), SMALL)
    assert stored(files) == expected(chunks(0, 10))
    disk.crash()
    assert stored(opened(disk, 30)) == expected(chunks(0, 10))


def test_what_a_crash_left_unfinished_goes() -> None:
    disk = MemoryDisk()
    append(opened(disk), chunks(0, 1))
    disk.create(f"{DIRECTORY}/{10:020d}.lvs.new").write(0, [b"begun"])
    disk.sync_directory(DIRECTORY)
    opened(disk)
    assert names(disk) == [f"{0:020d}.lvs"]


def test_what_a_start_found_in_the_page_cache_is_safe() -> None:
    """After a kill before the sync, the next epoch reports what it reads as safe, so it must sync it."""
    disk = MemoryDisk()
    append(opened(disk), chunks(0, 1))
    files = opened(disk)

    def stop(operation: str, path: str) -> None:
        if operation == "sync":
            raise InterruptedError

    disk.before = stop
    with pytest.raises(OSError):
        files.append(chunks(10, 1))
    disk.before = None
    assert stored(opened(disk, 10)) == expected(chunks(0, 2))
    disk.crash()
    assert stored(opened(disk, 10)) == expected(chunks(0, 2))


def test_times_lead_to_the_chunk_that_ends_then_or_later() -> None:
    disk = MemoryDisk()
    append(opened(disk), chunks(0, 30), SMALL)
    files = opened(disk)
    for offset in range(300):
        assert files.first_since(offset * 1000) == offset // COUNT * COUNT
        assert files.first_since(offset * 1000 + 1) == (offset + 1) // COUNT * COUNT
    assert files.first_since(10**12) == 300
    assert opened(MemoryDisk()).first_since(5) == 0


def test_a_file_ended_when_its_last_message_arrived() -> None:
    files = opened(MemoryDisk())
    append(files, chunks(0, 30), SMALL)
    first = files.segments[0]
    assert first.end == 40
    assert not files.ended_before(first, 39_000)
    assert files.ended_before(first, 39_001)
    assert not files.ended_before(first, -1)


def test_the_oldest_files_go() -> None:
    disk = MemoryDisk()
    append(opened(disk), chunks(0, 20), SMALL)
    files = opened(disk)
    gone = files.dropped(2)
    assert gone == [0, 40]
    assert stored(files) == expected(chunks(80, 12)), "readers don't look for them any more"
    segment = files.segment_of(5)
    assert segment is not None
    assert segment.first == 80
    files.remove(gone)
    assert names(disk) == [f"{first:020d}.lvs" for first in (80, 120, 160)]


def test_no_power_cut_leaves_an_older_file_than_one_that_went() -> None:
    """At each operation of a removal of three files, with any subset of the unsynced operations."""
    stops = 0
    for number in range(1, 20):
        disk = MemoryDisk()
        files = opened(disk)
        append(files, chunks(0, 20), SMALL)
        before = disk.operations

        def stop(operation: str, path: str, last: int = before + number, disk: MemoryDisk = disk) -> None:
            if disk.operations == last:
                raise InterruptedError

        disk.before = stop
        try:
            files.remove(files.dropped(3))
        except OSError:
            stops += 1
        disk.before = None
        count = len(disk.pending)
        for bits in range(1 << count):
            other = MemoryDisk()
            other._stable_names, other._names = dict(disk._stable_names), dict(disk._names)
            other.pending, other._directories = list(disk.pending), set(disk._directories)
            other.crash([index for index in range(count) if bits >> index & 1])
            firsts = [int(name[:20]) for name in names(other)]
            assert firsts == [0, 40, 80, 120, 160][5 - len(firsts) :]
    assert stops == 6


def test_cold_chunks_are_not_waited_for(tmp_path: Path) -> None:
    """Reads with is_cached fail if the chunk is not in the page cache."""

    class Cold(RealDisk):
        def read_cached(self, path: str, offset: int, length: int) -> bytes | None:
            return None

    files = StreamFiles(RealDisk(), str(tmp_path / "1"))
    append(files, chunks(0, 2))
    segment = files.segments[0]
    assert segment.places is not None
    assert files.read(segment, segment.places[1], is_cached=True) == chunks(0, 2)[1].payload, "it was written just now"
    cold = StreamFiles(Cold(), str(tmp_path / "1"))
    cold.recover(20)
    segment = cold.segments[0]
    place = cold.place_of(segment, 15)
    assert place is not None
    assert cold.read(segment, place, is_cached=True) is None
    assert cold.read(segment, place) == chunks(0, 2)[1].payload


def test_one_thread_appends_while_others_read_and_old_files_go(tmp_path: Path) -> None:
    """A chunk that a reader has found stays readable and whole while the files grow."""
    files = StreamFiles(RealDisk(), str(tmp_path / "1"))
    append(files, chunks(0, 1), SMALL)
    told: list[tuple[int, ...]] = []
    errors: list[BaseException] = []
    is_over = threading.Event()

    def read() -> None:
        try:
            while not is_over.is_set():
                found = stored(files)
                assert found == expected(chunks(found[0][0], len(found)))
                told.append((found[0][0], found[-1][1]))
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for first in range(10, 1500, 10):
        append(files, chunks(first, 1), SMALL)
    while len(told) < 4 and not errors:
        is_over.wait(0.01)
    is_over.set()
    for reader in readers:
        reader.join()
    assert not errors, errors
    assert stored(files) == expected(chunks(0, 150))


def test_the_store_has_a_directory_for_each_stream() -> None:
    disk = MemoryDisk()
    store = StreamStore(disk, "/streams", random.Random(1).randbytes)
    assert store.numbers() == []
    for number in (3, 12):
        append(store.open(number, 0), chunks(0, 2))
    assert store.numbers() == [3, 12]
    store.remove(3)
    assert store.numbers() == [12]
    store.remove(3)
    disk.crash()
    assert disk.list_names("/streams/3") == [], "another stream may have the number by now"
    assert stored(store.open(12, 0)) == expected(chunks(0, 2))
    assert stored(store.open(3, 0)) == []
