"""leveret store check | dump on the files of streams."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from leveret.store.disk import RealDisk
from leveret.store.journal import Journal
from leveret.store.lock import DirectoryLock

from .stream_rig import HOME, StreamRig
from .test_cli_store import contents, flip, run


def saved(rig: StreamRig, path: Path, *batches: bytes) -> Path:
    """Save these batches and the files of the rig's streams in a data directory; return the streams' directory."""
    with DirectoryLock(str(path)):
        journal = Journal(RealDisk(), str(path / "journal"))
        assert list(journal.replay()) == []
        for batch in batches:
            journal.append(batch)
        journal.close()
    directory = path / "streams" / str(rig.stream().number)
    directory.mkdir(parents=True)
    for name in rig.disk.list_names(f"{HOME}/{directory.name}"):
        (directory / name).write_bytes(rig.disk.read(f"{HOME}/{directory.name}/{name}"))
    return directory


@pytest.fixture
def rig() -> StreamRig:
    """Ten messages each in two files, three in the journal."""
    rig = StreamRig()
    rig.declare()
    rig.fill(10)
    rig.fill(10)
    for _ in range(3):
        rig.client.publish("s", b"tail")
    rig.step()
    return rig


@pytest.fixture
def directory(rig: StreamRig, tmp_path: Path) -> Path:
    """A data directory whose journal begins where the files end."""
    return saved(rig, tmp_path, b"".join(rig.bench.broker.snapshot()), rig.bench.batches[-1])


def checked(directory: Path) -> tuple[int, list[str]]:
    before = contents(directory.parents[1])
    result = run("check", str(directory.parents[1]))
    assert contents(directory.parents[1]) == before
    return result.exit_code, result.output.splitlines()[1:]


def test_sound_files(rig: StreamRig, tmp_path: Path) -> None:
    directory = saved(rig, tmp_path, *rig.bench.batches)
    code, lines = checked(directory)
    first, second = sorted(directory.iterdir())
    assert code == 0
    assert lines == [
        f"{first}: messages 0 to 9 in 1 chunk, {first.stat().st_size} bytes: sound",
        f"{second}: messages 10 to 19 in 1 chunk, {second.stat().st_size} bytes: sound",
        "3 files: all sound",
    ]


@pytest.mark.parametrize(("number", "messages"), [(0, "0 to 9"), (1, "10 to 19")])
def test_a_chunk_with_a_wrong_checksum(rig: StreamRig, tmp_path: Path, number: int, messages: str) -> None:
    rig.bench.broker.vhosts["/"].queues["s"].next_offset = 20  # type: ignore[attr-defined]
    directory = saved(rig, tmp_path, b"".join(rig.bench.broker.snapshot()))
    path = sorted(directory.iterdir())[number]
    flip(path, path.stat().st_size - 50)
    code, lines = checked(directory)
    assert code == 1
    assert f"messages {messages}: a chunk of" in lines[number + 1]
    assert lines[-1] == "3 files: 1 damaged"
    result = run("dump", str(tmp_path))
    assert result.exit_code == 1
    assert f"{path}: messages {messages}: a chunk of" in result.stderr
    offsets = [json.loads(line)["offset"] for line in result.stdout.splitlines() if '"chunk"' in line]
    assert offsets == list(range(10 - 10 * number, 20 - 10 * number))


def test_what_a_crash_left_unfinished_is_no_damage(rig: StreamRig, tmp_path: Path) -> None:
    directory = saved(rig, tmp_path, *rig.bench.batches)
    path = max(directory.iterdir())
    os.truncate(path, path.stat().st_size - 1)
    code, lines = checked(directory)
    assert code == 0
    assert lines[1].startswith(f"{path}: no messages in 0 chunks, ")
    assert "an unfinished chunk of" in lines[2]


def test_what_no_journal_has_is_missing(rig: StreamRig, directory: Path) -> None:
    first, second = sorted(directory.iterdir())
    second_bytes = second.read_bytes()
    os.truncate(second, second.stat().st_size - 1)
    code, lines = checked(directory)
    assert code == 1
    assert "  messages 10 to 22 are missing at byte" in lines[2]
    second.write_bytes(second_bytes)
    os.truncate(first, first.stat().st_size - 1)
    code, lines = checked(directory)
    assert (code, "  messages 0 to 9 are missing at byte" in lines[1]) == (1, True)
    for path in (first, second):
        path.unlink()
    directory.rmdir()
    code, lines = checked(directory)
    assert code == 1
    assert lines[0] == f"stream {rig.stream().number}: no files; messages before 23 are missing"


def test_files_of_a_deleted_stream_are_nobodys(rig: StreamRig, tmp_path: Path) -> None:
    directory = saved(rig, tmp_path, *rig.bench.batches)
    rig.delete()
    with DirectoryLock(str(tmp_path)):
        journal = Journal(RealDisk(), str(tmp_path / "journal"))
        list(journal.replay())
        journal.append(rig.bench.batches[-1])
        journal.close()
    flip(min(directory.iterdir()), 5000)
    assert checked(directory) == (
        0, [f"{directory}: belongs to a deleted stream; the next start removes it", "1 file: all sound"]
    )  # fmt: skip


def test_messages_of_files(rig: StreamRig, tmp_path: Path) -> None:
    directory = saved(rig, tmp_path, *rig.bench.batches)
    result = run("dump", str(tmp_path), "--bodies")
    assert result.exit_code == 0
    rows = [row for row in map(json.loads, result.stdout.splitlines()) if "chunk" in row]
    places = [(row["stream"], row["file"], row["chunk"], row["offset"]) for row in rows]
    assert places == [("s", offset // 10 * 10, offset // 10 * 10, offset) for offset in range(20)]
    assert {(row["number"], row["time_us"]) for row in rows} == {(int(directory.name), rig.bench.now_us)}
    assert (rows[0]["exchange"], rows[0]["key"], rows[0]["sizes"]) == ("", "s", [100])
    assert {base64.b64decode(body) for row in rows for body in row["bodies"]} == {b"x" * 100}
