"""leveret store check | dump: all is read, nothing is changed, and the exit code tells the result."""

import base64
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.queues.queue import Queue
from leveret.broker.storage.page import Page
from leveret.cli.main import main
from leveret.store.disk import RealDisk
from leveret.store.format import BATCH_HEADER_SIZE, DATA_START, FORMAT_VERSION, FileHeader
from leveret.store.journal import Journal
from leveret.store.lock import DataDirectoryInUse, DirectoryLock
from leveret.store.segment import SegmentStore
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.properties import Properties, encode_header

from .support import Bench


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["store", *arguments])


def batches() -> list[bytes]:
    """Return what a broker writes: two queues, a message in both, one that is settled, and an orderly stop."""
    bench = Bench()
    client = bench.connect()
    written = []
    for name in ("one", "two"):
        client.send(1, grammar.QUEUE_DECLARE, queue=name, durable=True)
        client.send(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout", arguments={"bytes": b"\xff"})
    written.append(bench.sync())
    client.publish("key", b"body", exchange="amq.fanout", delivery_mode=2)
    client.publish("one", b"", delivery_mode=2, expiration="60000")
    written.append(bench.sync())
    client.send(1, grammar.BASIC_GET, queue="two", no_ack=True)
    bench.broker.stop()
    written.append(bench.sync())
    return written


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data directory with two journal files, the first with room behind its batches."""
    with DirectoryLock(str(tmp_path)):
        journal = Journal(RealDisk(), str(tmp_path / "journal"), ahead_size=1000)
        assert list(journal.replay()) == []
        first, *rest = batches()
        journal.append(first)
        journal.rotate(first)
        for batch in rest:
            journal.append(batch)
        journal.close()
    return tmp_path


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def journal_file(directory: Path, number: int) -> Path:
    return directory / "journal" / f"journal-{number:010d}.lvj"


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        octet = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([octet ^ 1]))


def test_a_sound_directory(directory: Path) -> None:
    before = contents(directory)
    result = run("check", str(directory))
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith(f"{journal_file(directory, 1)}: 1 batch, ")
    assert lines[0].endswith(" bytes: sound")
    assert lines[1].startswith(f"{journal_file(directory, 2)}: 3 batches, ")
    assert lines[2:] == ["2 files: all sound"]
    assert contents(directory) == before


def test_damage_is_found_where_it_is_and_left_there(directory: Path) -> None:
    flip(journal_file(directory, 1), DATA_START + BATCH_HEADER_SIZE)
    before = contents(directory)
    result = run("check", str(directory))
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0].endswith(": DAMAGED")
    assert f"at byte {DATA_START}: batches with a wrong checksum at the end" in lines[1]
    assert lines[-1] == "2 files: 1 damaged"
    result = run("dump", str(directory))
    assert result.exit_code == 1
    assert f"at byte {DATA_START}: batches with a wrong checksum" in result.stderr
    assert {json.loads(line)["file"] for line in result.stdout.splitlines()} == {2}
    assert contents(directory) == before


def test_an_unfinished_batch_is_reported_and_no_damage(directory: Path) -> None:
    journal = Journal(RealDisk(), str(directory / "journal"), ahead_size=0)
    assert list(journal.replay())
    end = journal.current_size
    journal.append(bytes(100))
    journal.close()
    os.truncate(journal_file(directory, 2), end + 60)
    before = contents(directory)
    result = run("check", str(directory))
    assert result.exit_code == 0
    assert f"an unfinished batch of 60 bytes at byte {end}: nothing in it was confirmed" in result.output
    assert contents(directory) == before


def test_a_batch_that_holds_no_records_is_damage(directory: Path) -> None:
    journal = Journal(RealDisk(), str(directory / "journal"))
    assert list(journal.replay())
    journal.append(b"\xc8\0\0\0\0")
    journal.close()
    for command in ("check", "dump"):
        result = run(command, str(directory))
        assert result.exit_code == 1
        assert "batch 5: found a record of kind 200, which this version of leveret does not know" in result.output


def a_page(id: int, *bodies: bytes) -> bytes:
    queue = Queue(Bench().broker.vhosts["/"], "q", True, False, {})
    items: list[Entry | MessageBatch] = []
    for body in bodies:
        content = content_frames(1, encode_header(Properties(), len(body)), body, 131072)
        items.append(Entry(queue.message_list, content, b"\0\x03key", id + len(items), 0, len(items)))
    return Page(queue.message_list, items, 0, len(items)).encode()


def test_segments_spares_and_leftovers_are_looked_at(directory: Path) -> None:
    journal = Journal(RealDisk(), str(directory / "journal"))
    assert list(journal.replay())
    journal.remove(1)
    journal.close()
    segments = SegmentStore(RealDisk(), str(directory / "segments"))
    pages = [a_page(7, b"one"), a_page(8, b"two", b"three")]
    first, second = segments.write(1, pages)
    segments.write(2, pages)
    flip(directory / "segments" / "segment-0000000002.lvs", second[0])
    segments.set_aside(2)
    (directory / "journal" / "journal-0000000003.lvj.new").write_bytes(b"half")
    before = contents(directory)
    result = run("check", str(directory))
    assert result.exit_code == 1
    assert f"segment-0000000001.lvs: 2 pages, {sum(second)} bytes: sound\n" in result.output
    assert f"segment-0000000002.lvs: 1 page, {sum(first)} bytes: DAMAGED\n" in result.output
    where = f"at byte {sum(first)}: pages with a wrong checksum at the end ({BATCH_HEADER_SIZE + second[1]} bytes)"
    assert where in result.output
    assert "spare-0000000001.lvj: a spare file of " in result.output
    assert "journal-0000000003.lvj.new: unfinished" in result.output
    assert "salvage/segment-0000000002.lvs: a damaged file" in result.output
    assert result.output.splitlines()[-1] == "3 files: 1 damaged"
    result = run("dump", str(directory), "--bodies")
    assert result.exit_code == 1
    assert where in result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines() if "segment" in json.loads(line)]
    assert [(line["segment"], line["page"], line["id"], line["key"], line["sizes"]) for line in lines] == [
        (1, 1, 7, "key", [3]), (1, 2, 8, "key", [3]), (1, 2, 9, "key", [5]), (2, 1, 7, "key", [3]),
    ]  # fmt: skip
    assert lines[2] == {
        "segment": 1, "page": 2, "offset": second[0], "kind": "messages", "id": 9, "exchange": "", "key": "key",
        "sizes": [5], "bodies": [base64.b64encode(b"three").decode()],
    }  # fmt: skip
    assert contents(directory) == before


def test_records_as_json(directory: Path) -> None:
    before = contents(directory)
    result = run("dump", str(directory), "--bodies")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert [(line["file"], line["batch"]) for line in lines[:4]] == [(1, 1)] * 4
    assert lines[4] == lines[0] | {"file": 2, "batch": 2}, "the snapshot"
    assert [line["op"] for line in lines[:4]] == ["queue.declare", "bind", "queue.declare", "bind"]
    assert lines[1]["arguments"] == {"bytes": base64.b64encode(b"\xff").decode()}
    first, second, settled, stop = lines[8:]
    assert first == {
        "file": 2, "batch": 3, "kind": "messages", "id": 1, "exchange": "amq.fanout", "key": "key",
        "queues": [{"queue": "one", "number": 1, "expires_us": 0}, {"queue": "two", "number": 2, "expires_us": 0}],
        "sizes": [4], "bodies": [base64.b64encode(b"body").decode()],
    }  # fmt: skip
    assert (second["exchange"], second["key"], second["sizes"], second["bodies"]) == ("", "one", [0], [""])
    assert second["queues"][0]["expires_us"] > 0
    assert settled == {"file": 2, "batch": 4, "kind": "settled", "id": 1, "count": 1, "queue": "two", "number": 2}
    assert (stop["batch"], stop["kind"]) == (4, "clean stop")
    assert "bodies" not in run("dump", str(directory)).output
    assert contents(directory) == before


def test_what_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "file"):
        for command in ("check", "dump"):
            result = run(command, str(path))
            assert result.exit_code == 2
            assert "is not a data directory" in result.output or "Not a directory" in result.output
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_directory_in_use_is_refused_and_readers_keep_brokers_out_only_while_they_read(directory: Path) -> None:
    with DirectoryLock(str(directory)):
        result = run("check", str(directory))
        assert result.exit_code == 3
        assert result.output == f"{directory} is in use by process {os.getpid()}; stop the broker first\n"
    assert run("check", str(directory)).exit_code == 0
    DirectoryLock(str(directory)).release()
    # a copy without the lock file is not in use
    (directory / "lock").unlink()
    assert run("check", str(directory)).exit_code == 0
    assert not (directory / "lock").exists()


def test_while_it_reads_no_broker_can_start(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []

    def look(self: object) -> list[tuple[str, str]]:
        with pytest.raises(DataDirectoryInUse):
            DirectoryLock(str(directory))
        refused.append(True)
        assert run("dump", str(directory)).exit_code == 0, "another reader is welcome"
        return []

    monkeypatch.setattr("leveret.store.inspection.Inspection.others", look)
    assert run("check", str(directory)).exit_code == 0
    assert refused == [True]


def test_a_directory_of_a_newer_leveret(directory: Path) -> None:
    with journal_file(directory, 2).open("r+b") as file:
        file.write(FileHeader(2, 2, 1 << 40, version=FORMAT_VERSION + 1).pack())
    for command in ("check", "dump"):
        result = run(command, str(directory))
        assert result.exit_code == 6
        assert result.output.splitlines()[-1].endswith("start the version that wrote it, or a newer one")


def test_dump_shows_the_routing_key_without_what_is_kept_behind_it(tmp_path: Path) -> None:
    bench = Bench()
    client = bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="one", durable=True)
    client.publish("one", b"", delivery_mode=2, headers={"BCC": ["blind"], "x-death": "mine"})
    with DirectoryLock(str(tmp_path)):
        journal = Journal(RealDisk(), str(tmp_path / "journal"), ahead_size=1000)
        assert list(journal.replay()) == []
        journal.append(bench.sync())
        journal.close()
    lines = [json.loads(line) for line in run("dump", str(tmp_path)).output.splitlines()]
    assert [line["key"] for line in lines if line["kind"] == "messages"] == ["one"]


def test_what_a_delayed_exchange_holds_bears_its_name(tmp_path: Path) -> None:
    bench = Bench()
    client = bench.connect()
    arguments = {"x-delayed-type": "direct"}
    client.send(
        1, grammar.EXCHANGE_DECLARE, exchange="later", type="x-delayed-message", durable=True, arguments=arguments
    )
    client.publish("k", b"body", exchange="later", headers={"x-delay": 5000})
    with DirectoryLock(str(tmp_path)):
        journal = Journal(RealDisk(), str(tmp_path / "journal"))
        assert list(journal.replay()) == []
        journal.append(bench.sync())
        journal.close()
    rows = [json.loads(line) for line in run("dump", str(tmp_path)).stdout.splitlines()]
    (held,) = [row["queues"] for row in rows if row["kind"] == "messages"]
    assert [queue["queue"] for queue in held] == ["later"]
    assert held[0]["expires_us"] == bench.now_us + 5_000_000


def test_dump_tells_what_is_undeliverable_and_why(tmp_path: Path) -> None:
    bench = Bench()
    client = bench.connect()
    arguments = {
        "x-queue-type": "quorum", "x-dead-letter-exchange": "nowhere", "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }  # fmt: skip
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=arguments)
    client.publish("q", b"body")
    client.send(1, grammar.BASIC_GET, queue="q")
    client.send(1, grammar.BASIC_REJECT, delivery_tag=1, requeue=False)
    with DirectoryLock(str(tmp_path)):
        journal = Journal(RealDisk(), str(tmp_path / "journal"))
        assert list(journal.replay()) == []
        journal.append(bench.sync())
        journal.close()
    rows = [json.loads(line) for line in run("dump", str(tmp_path)).stdout.splitlines()]
    (hop,) = [row for row in rows if row["kind"] == "hop"]
    assert "parked" not in hop["left"]
    assert [(queue["queue"], queue["parked"]) for queue in hop["queues"]] == [("q", "rejected")]
