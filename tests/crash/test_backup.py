"""Backups of a running broker: no confirmed message is missing or doubled, and no partial backup looks complete."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from leveret.control.calls.client import ControlClient
from leveret.control.refusal import BAD_REQUEST, CONFLICT, Refused
from leveret.store.backup import CHUNK_OCTETS, MANIFEST_NAME, UNFINISHED_SUFFIX, BackupMark, BackupRefused, copy
from leveret.testing.processes import LeveretProcess

BODY = b"x" * 20_000
# more than stays in memory, and more than one journal file holds
BACKLOG = 5_000


class Load(threading.Thread):
    """Publishes numbered messages with confirms to one queue, and consumes each third one."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.confirmed: list[int] = []  # numbers of the messages on the broker's disk
        self.taken: list[int] = []  # numbers of those whose acknowledgement was sent
        self.ending = threading.Event()
        self.has_begun = threading.Event()
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._channel.queue_declare("under-load", durable=True)
        self._channel.confirm_delivery()

    def run(self) -> None:
        number = 0
        while not self.ending.is_set():
            number += 1
            properties = pika.BasicProperties(delivery_mode=2)
            self._channel.basic_publish("", "under-load", b"%d" % number, properties, mandatory=True)
            self.confirmed.append(number)
            if number % 3 == 0:
                method, _, body = self._channel.basic_get("under-load")
                self.taken.append(int(body))
                self._channel.basic_ack(method.delivery_tag)
            if number == 50:
                self.has_begun.set()
        self._connection.close()


def backlog(broker: LeveretProcess) -> None:
    """Publish many messages, most of which go to segments, and consume some; all is on disk on return."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("long", durable=True)
    for number in range(BACKLOG):
        channel.basic_publish("", "long", b"%d " % number + BODY, pika.BasicProperties(delivery_mode=2))
    for _ in range(100):
        method, _, _ = channel.basic_get("long")
        channel.basic_ack(method.delivery_tag)
    # An acknowledgement is not confirmed, but a later publish is, in the same batch or a later one.
    channel.queue_declare("behind", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "behind", b"", pika.BasicProperties(delivery_mode=2))
    connection.close()


def drain(broker: LeveretProcess, queue: str) -> list[int]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    left = channel.queue_declare(queue, passive=True).method.message_count
    found: list[int] = []
    if left:
        channel.basic_qos(prefetch_count=100)
        for method, _, body in channel.consume(queue):
            found.append(int(body.split()[0]))
            channel.basic_ack(method.delivery_tag)
            if len(found) == left:
                break
    connection.close()
    return found


def check(directory: Path) -> str:
    command = [sys.executable, "-m", "leveret.cli.main", "store", "check", str(directory)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_a_backup_under_load_has_all_that_was_confirmed_and_nothing_twice(tmp_path: Path) -> None:
    target = tmp_path / "copies" / "monday"
    with LeveretProcess(tmp_path / "data") as broker:
        backlog(broker)
        load = Load(broker.url)
        load.start()
        load.has_begun.wait()
        with ControlClient(str(broker.data_dir)) as control:
            before = set(load.confirmed)
            answer = control.call("backup", directory=str(target))
        taken = set(load.taken)
        assert len(load.confirmed) > len(before)  # the broker works on
        load.ending.set()
        load.join()
        assert "audit" in broker.output
    assert "segment-" in check(target)
    manifest = json.loads((target / MANIFEST_NAME).read_text())
    assert len(manifest["files"]) == answer["files"]
    assert sum(file["size"] for file in manifest["files"]) == answer["octets"]
    for file in manifest["files"]:
        assert hashlib.sha256((target / file["path"]).read_bytes()).hexdigest() == file["sha256"]
    with LeveretProcess(target) as restored:
        assert drain(restored, "long") == list(range(100, BACKLOG))
        found = drain(restored, "under-load")
        assert len(found) == len(set(found))
        assert before - taken <= set(found)
        assert set(found) <= set(load.confirmed) | {max(load.confirmed) + 1}


class StreamLoad(threading.Thread):
    """Publishes numbered messages with confirms to a stream; the first `before` are large, so that it has files."""

    def __init__(self, url: str, before: int) -> None:
        super().__init__(daemon=True)
        self.confirmed = 0  # how many messages are on the broker's disk, the `before` included
        self.ending = threading.Event()
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        arguments = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 1_000_000}
        self._channel.queue_declare("stream", durable=True, arguments=arguments)
        self._channel.confirm_delivery()
        for _ in range(before):
            self._publish(BODY)

    def _publish(self, filling: bytes) -> None:
        self._channel.basic_publish("", "stream", b"%d " % self.confirmed + filling)
        self.confirmed += 1

    def run(self) -> None:
        while not self.ending.is_set():
            self._publish(BODY if self.confirmed % 10 == 0 else b"")
        self._connection.close()


def stream_from_first(broker: LeveretProcess, count: int) -> list[tuple[int, int]]:
    """Return (offset, number in the body) of the first `count` messages."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=500)
    found: list[tuple[int, int]] = []
    for method, properties, body in channel.consume("stream", arguments={"x-stream-offset": "first"}):
        found.append((properties.headers["x-stream-offset"], int(body.split()[0])))
        channel.basic_ack(method.delivery_tag)
        if len(found) == count:
            break
    connection.close()
    return found


def test_a_stream_is_restored_with_all_that_was_confirmed_at_the_same_offsets(tmp_path: Path) -> None:
    target = tmp_path / "copy"
    with LeveretProcess(tmp_path / "data") as broker:
        load = StreamLoad(broker.url, 150)
        load.start()
        with ControlClient(str(broker.data_dir)) as control:
            confirmed = load.confirmed
            control.call("backup", directory=str(target))
            assert len(list(target.glob("streams/*/*.lvs"))) > 1
        load.ending.set()
        load.join()
    check(target)
    with LeveretProcess(target) as restored:
        connection = pika.BlockingConnection(pika.URLParameters(restored.url))
        count = connection.channel().queue_declare("stream", passive=True).method.message_count
        connection.close()
        assert confirmed <= count <= load.confirmed + 1
        assert stream_from_first(restored, count) == [(number, number) for number in range(count)]


def test_files_that_nobody_needs_any_more_go_after_the_backup(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path / "data") as broker:
        backlog(broker)
        with ControlClient(str(broker.data_dir)) as control:
            control.call("backup", directory=str(tmp_path / "one"))
            assert drain(broker, "long")[0] == 100
            while list((broker.data_dir / "segments").iterdir()):
                control.call("list_users")  # one turn of the broker
            control.call("backup", directory=str(tmp_path / "two"))
        sizes = [sum(path.stat().st_size for path in (tmp_path / name).rglob("*")) for name in ("one", "two")]
        assert not list((tmp_path / "two" / "segments").iterdir())
        assert sizes[1] < sizes[0]


def test_where_a_backup_may_not_go(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "something").touch()
    empty = tmp_path / "empty"
    empty.mkdir()
    with LeveretProcess(tmp_path / "data") as broker, ControlClient(str(broker.data_dir)) as control:
        for directory, kind, reason in (
            ("here", BAD_REQUEST, "must be an absolute path, not 'here'"),
            (str(broker.data_dir / "inside"), BAD_REQUEST, "is inside the data directory"),
            (str(full), CONFLICT, "exists and is not empty"),
            (str(full / "something"), CONFLICT, "exists and is not empty"),
            (str(full / "something" / "below"), BAD_REQUEST, "something: File exists"),
        ):
            with pytest.raises(Refused) as refused:
                control.call("backup", directory=directory)
            assert refused.value.kind == kind
            assert reason in refused.value.reason
        assert [path.name for path in full.iterdir()] == ["something"]
        assert control.call("backup", directory=str(empty))["files"] == 1
    assert "all sound" in check(empty)


@pytest.fixture
def mark(tmp_path: Path) -> BackupMark:
    paths = [tmp_path / name for name in ("journal-0000000001.lvj", "journal-0000000002.lvj", "segment-0000000001.lvs")]
    for path in paths:
        path.write_bytes(os.urandom(2 * CHUNK_OCTETS + 1))
    gone = str(tmp_path / "segment-0000000002.lvs")
    stream = tmp_path / "streams" / "7" / f"{0:020d}.lvs"
    stream.parent.mkdir(parents=True)
    stream.write_bytes(os.urandom(CHUNK_OCTETS))
    return BackupMark([str(path) for path in paths[:2]], CHUNK_OCTETS + 5, [str(paths[2]), gone], [(str(stream), 99)])


def killed_after(chunks: int, mark: BackupMark, directory: Path) -> int:
    """Copy in a child process that is killed before `chunks` more chunks; return the signal that ended it."""
    child = os.fork()
    if child == 0:
        left = iter(range(chunks))

        def go_on() -> bool:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return True

        copy(mark, str(directory), {}, go_on)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_copy_that_is_killed_is_no_copy_and_the_next_one_is_whole(mark: BackupMark, tmp_path: Path) -> None:
    directory = tmp_path / "copy"
    chunks = 0
    while killed_after(chunks, mark, directory) == -signal.SIGKILL:
        assert not directory.exists()
        assert not (tmp_path / f"copy{UNFINISHED_SUFFIX}" / MANIFEST_NAME).exists()
        chunks += 1
    assert chunks == 9
    assert not (tmp_path / f"copy{UNFINISHED_SUFFIX}").exists()
    first, last = (directory / "journal" / Path(path).name for path in mark.journal)
    assert first.read_bytes() == Path(mark.journal[0]).read_bytes()
    assert last.read_bytes() == Path(mark.journal[1]).read_bytes()[: mark.size]
    assert [path.name for path in (directory / "segments").iterdir()] == ["segment-0000000001.lvs"]
    assert (directory / "streams" / "7" / f"{0:020d}.lvs").read_bytes() == Path(mark.streams[0][0]).read_bytes()[:99]


def test_a_copy_that_is_given_up_leaves_nothing(mark: BackupMark, tmp_path: Path) -> None:
    answers: Iterator[bool] = iter([True, True, False])
    with pytest.raises(BackupRefused, match="given up"):
        copy(mark, str(tmp_path / "copy"), {}, lambda: next(answers))
    assert not (tmp_path / "copy").exists()
    assert not (tmp_path / f"copy{UNFINISHED_SUFFIX}").exists()


def test_a_broker_that_is_killed_during_a_backup_has_lost_nothing(tmp_path: Path) -> None:
    target = tmp_path / "copy"
    unfinished = tmp_path / f"copy{UNFINISHED_SUFFIX}"
    with LeveretProcess(tmp_path / "data") as broker:
        backlog(broker)
        failures: list[BaseException] = []

        def ask() -> None:
            try:
                with ControlClient(str(broker.data_dir)) as control:
                    control.call("backup", directory=str(target))
            except ConnectionError as error:
                failures.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        while not unfinished.exists():
            os.sched_yield()
        broker.kill()
        asking.join()
        assert failures
        assert not target.exists()
        broker.start()
        with ControlClient(str(broker.data_dir)) as control:
            control.call("backup", directory=str(target))
        assert not unfinished.exists()
        assert drain(broker, "long") == list(range(100, BACKLOG))
    check(target)


def test_a_broker_that_is_stopped_gives_its_backup_up(tmp_path: Path) -> None:
    unfinished = tmp_path / f"copy{UNFINISHED_SUFFIX}"
    with LeveretProcess(tmp_path / "data") as broker:
        backlog(broker)
        with ControlClient(str(broker.data_dir)) as control:
            asking = threading.Thread(target=_asked, args=(control, str(tmp_path / "copy")))
            asking.start()
            while not unfinished.exists():
                os.sched_yield()
            assert broker.stop() == 0
            asking.join()
    assert not unfinished.exists()


def _asked(control: ControlClient, directory: str) -> None:
    try:
        control.call("backup", directory=directory)
    except (ConnectionError, Refused):
        pass  # either error is possible
