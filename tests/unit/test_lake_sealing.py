"""Sealing native files: each message becomes one row of one file, whatever happens on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from leveret.lake import table_writer
from leveret.lake.properties import TIMESTAMP
from leveret.lake.sealer import ASIDE, Sealer, TableDisk
from leveret.store.disk import RealDisk
from leveret.store.tables import file_name, table_files
from leveret.wire.properties import Properties

from .lake import CREATION, NOON_US, Message, NativeFiles

HOUR_US = 3_600_000_000


@pytest.fixture
def native(tmp_path: Path) -> NativeFiles:
    return NativeFiles(tmp_path)


@contextmanager
def sealer(native: NativeFiles, disk: RealDisk | None = None) -> Iterator[Sealer]:
    found = Sealer(native.tables, disk)
    try:
        yield found
    finally:
        found.close()


def numbered(count: int, first: int = 0, time_us: int = NOON_US, step_us: int = 0) -> list[Message]:
    return [Message(b"%d" % number, time_us=time_us + number * step_us) for number in range(first, first + count)]


def names(native: NativeFiles) -> list[tuple[int, int, str]]:
    return [(each.first, each.last, each.date) for each in table_files(RealDisk(), native.folder)]


def check(native: NativeFiles, count: int) -> None:
    """Check that the table has the first `count` messages, each once."""
    rows = native.rows()
    assert [row["offset"] for row in rows] == list(range(count))
    assert [row["body"] for row in rows] == [each.body for each in native.messages[:count]]


def test_a_range_becomes_a_file_named_by_it(native: NativeFiles) -> None:
    native.append(numbered(100), per_chunk=30)
    with sealer(native) as it:
        answer = it.seal(native.request(0, 70))
    assert names(native) == [(0, 69, "2026-11-22")]
    [made] = answer.made
    assert made.path == os.path.join(native.folder, "date=2026-11-22", file_name(0, 69, CREATION))
    assert (made.first, made.last, made.octets) == (0, 69, os.path.getsize(made.path))
    assert (answer.end, answer.error, answer.lost) == (70, "", [])
    check(native, 70)


def test_what_is_sealed_is_not_sealed_again(native: NativeFiles) -> None:
    native.append(numbered(50), per_chunk=20)
    with sealer(native) as it:
        it.seal(native.request(0, 30))
        again = it.seal(native.request(0, 30))
        more = it.seal(native.request(0, 50))
    with sealer(native) as it:
        assert it.seal(native.request(0, 50)).made == []  # another sealer knows it from the names
    assert (again.made, again.end) == ([], 30)
    assert [(each.first, each.last) for each in more.made] == [(30, 49)]
    check(native, 50)


def test_a_file_has_one_day_and_one_native_file(native: NativeFiles) -> None:
    """Six messages an hour apart, two in each file; the second day begins with the fourth."""
    messages = numbered(6, time_us=NOON_US + 9 * HOUR_US, step_us=HOUR_US)
    for start in (0, 2, 4):
        native.append(messages[start : start + 2], segment_octets=1)
    with sealer(native) as it:
        it.seal(native.request())
    assert names(native) == [(0, 1, "2026-11-22"), (2, 2, "2026-11-22"), (3, 3, "2026-11-23"), (4, 5, "2026-11-23")]
    check(native, 6)
    assert [str(row["date"]) for row in native.rows()] == 3 * ["2026-11-22"] + 3 * ["2026-11-23"]


def test_row_groups_are_found_by_offset_and_time(native: NativeFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_writer, "ROW_GROUP_ROWS", 100)
    native.append(numbered(1000, step_us=1000), per_chunk=100)
    monkeypatch.setattr("leveret.lake.native.PART_OCTETS", 1)
    with sealer(native) as it:
        it.seal(native.request())
    [fragment] = ds.dataset(native.folder, format="parquet").get_fragments()
    assert fragment.num_row_groups == 10
    found = [len(fragment.subset(ds.field("offset") >= offset).row_groups) for offset in (0, 899, 900, 1000)]
    assert found == [10, 2, 1, 0]
    later = ds.field("timestamp") > pa.scalar(NOON_US + 950_000, TIMESTAMP)
    assert len(fragment.subset(later).row_groups) == 1
    metadata = fragment.metadata
    encodings = {metadata.row_group(0).column(each).path_in_schema: each for each in range(metadata.num_columns)}
    column = metadata.row_group(0).column(encodings["exchange"])
    assert column.compression == "ZSTD"
    assert column.has_dictionary_page
    assert not metadata.row_group(0).column(encodings["body"]).has_dictionary_page


def test_a_row_group_is_written_as_soon_as_it_has_its_octets(
    native: NativeFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the row group's size bounds the memory, not that of the native file."""
    monkeypatch.setattr("leveret.lake.native.PART_OCTETS", 1)
    monkeypatch.setattr(table_writer, "ROW_GROUP_OCTETS", 1 << 20)
    native.append([Message(bytes([number]) * 100_000) for number in range(60)], per_chunk=5)
    with sealer(native) as it:
        [made] = it.seal(native.request()).made
    metadata = pq.read_metadata(made.path)
    assert 4 <= metadata.num_row_groups <= 6
    assert metadata.num_rows == 60


def test_a_chunk_that_is_lost_is_a_gap_and_told(native: NativeFiles) -> None:
    native.append(numbered(30), per_chunk=10)
    place = native.files.segments[0].places[1]  # type: ignore[index]
    with open(native.files.path(0), "r+b") as file:
        file.seek(place.at + 20)
        file.write(b"\xff")
    with sealer(native) as it:
        answer = it.seal(native.request())
        assert it.seal(native.request()).made == []
    assert "message 10" in answer.lost[0]
    assert answer.end == 30
    assert [(each.first, each.last) for each in answer.made] == [(0, 9), (20, 29)]
    assert [row["offset"] for row in native.rows()] == [*range(10), *range(20, 30)]


def test_another_stream_of_the_name_begins_anew(native: NativeFiles) -> None:
    native.append(numbered(10))
    with sealer(native) as it:
        it.seal(native.request())
        request = native.request()
        answer = it.seal(type(request)(2, request.directory, "/", "events", "00000000000000bb", 0, 10))
    assert [(each.first, each.last) for each in answer.made] == [(0, 9)]


class Stopped(BaseException):
    """Raised where a kill is simulated."""


class StoppingDisk(TableDisk):
    """Ends the process at its nth step."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.done: list[str] = []

    def _step(self, name: str) -> None:
        self.done.append(name)
        if not self.left:
            raise Stopped
        self.left -= 1

    def open(self, path: str) -> Any:
        self._step("open")
        return super().open(path)

    def size(self, path: str) -> int:
        self._step("size")
        return super().size(path)

    def rename(self, old: str, new: str) -> None:
        self._step("rename")
        super().rename(old, new)

    def sync_directory(self, path: str) -> None:
        self._step("sync_directory")
        super().sync_directory(path)

    def remove(self, path: str) -> None:
        self._step("remove")
        super().remove(path)


def test_a_kill_at_any_step_leaves_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three files to be made, those that exist after the kill are complete, and the next run makes the others."""
    monkeypatch.setattr(table_writer.TableWriter, "abandon", lambda self: None)  # a killed process cleans nothing up
    steps, seen = 0, set()
    while True:
        native = NativeFiles(tmp_path / str(steps))
        native.append(numbered(30, time_us=NOON_US + 9 * HOUR_US, step_us=HOUR_US), per_chunk=7)
        disk = StoppingDisk(steps)
        found = None
        try:
            found = Sealer(native.tables, disk)
            found.seal(native.request())
        except Stopped:
            seen.add(disk.done[-1])
        if found is not None:
            found.close()
        if disk.left:
            break
        before = names(native)
        if before:
            check(native, before[-1][1] + 1)
        with sealer(native) as it:
            assert os.listdir(os.path.join(native.tables, ASIDE)) == ["lock"]
            it.seal(native.request())
        check(native, 30)
        assert names(native)[: len(before)] == before
        assert len(names(native)) == 3
        steps += 1
    assert seen == {"open", "size", "rename", "sync_directory"}


def test_what_is_written_is_synced_before_it_has_its_name(native: NativeFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guarantee is the order: bytes, name, and the sync of the name."""
    order: list[str] = []
    sync, rename, sync_directory = os.fdatasync, os.replace, RealDisk.sync_directory

    def told(what: str, then: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            order.append(what)
            then(*arguments)

        return call

    native.append(numbered(3))
    with sealer(native) as it:
        os.makedirs(os.path.join(native.folder, "date=2026-11-22"))
        monkeypatch.setattr(os, "fdatasync", told("sync", sync))
        monkeypatch.setattr(os, "replace", told("rename", rename))
        monkeypatch.setattr(RealDisk, "sync_directory", told("sync name", sync_directory))
        it.seal(native.request())
    assert order == ["sync", "rename", "sync name"]


def test_a_disk_that_refuses_leaves_nothing_behind(native: NativeFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    native.append(numbered(10))

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with sealer(native) as it:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refuse)
            with pytest.raises(OSError, match="No space"):
                it.seal(native.request())
        assert os.listdir(os.path.join(native.tables, ASIDE)) == ["lock"]
        assert names(native) == []
        it.seal(native.request())
    check(native, 10)


def test_tables_have_the_permissions_that_the_umask_gives(native: NativeFiles) -> None:
    """Other users than the broker's should read them, if they may enter the directory."""
    native.append(numbered(3))
    before = os.umask(0o027)
    try:
        with sealer(native) as it:
            [made] = it.seal(native.request()).made
    finally:
        os.umask(before)
    path, modes = made.path, []
    while path != str(native.path):
        modes.append(os.stat(path).st_mode & 0o777)
        path = os.path.dirname(path)
    assert modes == [0o640, 0o750, 0o750, 0o750, 0o750]


# -- the process -------------------------------------------------------------------------------------------------------


@contextmanager
def process(native: NativeFiles) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "leveret.lake", native.tables]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as found:
        try:
            yield found
        finally:
            found.kill()


def asked(process: subprocess.Popen[bytes], line: bytes) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    return dict(json.loads(process.stdout.readline()))


def line_of(native: NativeFiles, **others: object) -> bytes:
    request = native.request()
    values = {name: getattr(request, name) for name in request.__struct_fields__}
    return json.dumps(values | others).encode()


def test_the_process_answers_whatever_comes(native: NativeFiles) -> None:
    native.append([Message(b"%d" % number, Properties(headers={"n": number})) for number in range(20)])
    with process(native) as it:
        assert "error" in asked(it, b"what?")
        strange = asked(it, b'{"id": 7, "directory": 3}')
        assert (strange["id"], "Expected `str`" in strange["error"]) == (7, True)
        assert "it is not JSON" in asked(it, line_of(native, id=8, schema="{"))["error"]
        assert (
            "no files of a stream found: '/nowhere'" in asked(it, line_of(native, id=9, directory="/nowhere"))["error"]
        )
        answer = asked(it, line_of(native, id=10))
        assert (answer["id"], answer["end"], answer["error"]) == (10, 20, "")
        assert [each["last"] for each in answer["made"]] == [19]
        assert os.getpriority(os.PRIO_PROCESS, it.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
        it.send_signal(signal.SIGINT)
        assert asked(it, line_of(native, id=11))["made"] == []
        it.stdin.close()  # type: ignore[union-attr]
        assert it.wait() == 0
    check(native, 20)


def test_only_one_process_seals(native: NativeFiles) -> None:
    """A process that a killed broker left behind may still work: the next one waits, then knows what it did."""
    native.append(numbered(20))
    first = Sealer(native.tables)
    with process(native) as it:
        assert it.stdin is not None
        it.stdin.write(line_of(native) + b"\n")
        it.stdin.flush()
        first.seal(native.request(0, 15))
        first.close()
        assert it.stdout is not None
        answer = json.loads(it.stdout.readline())
    assert [(each["first"], each["last"]) for each in answer["made"]] == [(15, 19)]
    check(native, 20)


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-m", "leveret.lake", str(tmp_path / "file" / "tables")], capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"streams can't be sealed in" in done.stderr
    assert b"Traceback" not in done.stderr
