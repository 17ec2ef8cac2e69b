"""Sealing: which part of which stream is sealed when. Native files are on disk; streams and clock are fakes."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leveret.broker.streams.history import History
from leveret.net.disk.sealing import RETRY_US_MAX, RETRY_US_MIN, SEAL_AFTER_MS_DEFAULT, Sealing
from leveret.store.disk import RealDisk
from leveret.store.tables import date_directory, file_name

from .lake import CREATION, Message, NativeFiles

AFTER_US = SEAL_AFTER_MS_DEFAULT * 1000
START_US = 1_000_000_000


class FakeArchive:
    """A stream that writes its tail to its files on request."""

    def __init__(self, path: Path, **arguments: object) -> None:
        self.native = NativeFiles(path)
        self.files = self.native.files
        self.tail: list[Message] = []
        self.segment_octets = 1
        self.stream: Any = SimpleNamespace(
            committed=0, is_deleted=False, vhost=SimpleNamespace(name="/"), name=path.name, creation=CREATION,
            arguments=arguments, history=History(), what=lambda: f"queue '{path.name}' in vhost '/'",
        )  # fmt: skip

    def publish(self, count: int) -> None:
        self.tail += [Message()] * count
        self.stream.committed += count

    def write(self) -> None:
        """Write the tail to a native file, which is complete by default."""
        if self.tail:
            self.native.append(self.tail, segment_octets=self.segment_octets)
        self.tail = []


class World:
    """Sealing with a virtual clock and a process that answers on request."""

    def __init__(self, path: Path) -> None:
        self.now_us = START_US
        self.path = path
        self.asked: list[dict[str, Any]] = []
        self.archives: dict[int, Any] = {}
        self.listed: list[Any] = []
        self.sealing = Sealing(self.archives, str(path / "tables"), RealDisk(), self._submit, self._ask)

    def _submit(self, work: Any, done: Any, is_reading: bool = False) -> None:
        assert is_reading
        done(work(), None)

    def _ask(self, request: bytes) -> None:
        self.asked.append(json.loads(request))

    def add(self, number: int, **arguments: object) -> FakeArchive:
        archive = FakeArchive(self.path / f"s{number}", **arguments)
        self.archives[number] = archive
        return archive

    def look(self, after_us: int = 0) -> list[tuple[int, int, int]]:
        """Return (stream, first, end) of the new requests. Disk work is done at once."""
        before = len(self.asked)
        self.now_us += after_us
        for _ in range(3):
            self.sealing.look(self.now_us)
        return [(each["id"], each["first"], each["end"]) for each in self.asked[before:]]

    def answer(self, error: str = "", lost: tuple[str, ...] = ()) -> None:
        request = self.asked[-1]
        answer = {"id": request["id"], "end": request["end"], "lost": lost, "error": error, "made": []}
        self.sealing.answered(json.dumps(answer).encode(), self.now_us)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_is_new_waits_for_its_time(world: World) -> None:
    stream = world.add(1)
    stream.publish(10)
    assert world.look() == []
    assert world.look(AFTER_US - 1) == []
    assert stream.files.end == 0  # nothing is written before the time is up
    assert world.look(1) == [(1, 0, 10)]
    world.answer()
    assert world.look(10 * AFTER_US) == []
    stream.publish(1)
    assert world.look() == []
    assert world.look(AFTER_US) == [(1, 10, 11)]


def test_a_stream_says_how_long(world: World) -> None:
    stream = world.add(1, **{"x-leveret-seal-after-ms": 5, "x-leveret-schema": "[1]"})
    stream.publish(1)
    assert world.look() == []
    assert world.look(5000) == [(1, 0, 1)]
    assert world.asked[0] == {
        "id": 1, "directory": stream.files.directory, "vhost": "/", "stream": "s1", "creation": CREATION,
        "first": 0, "end": 1, "schema": "[1]",
    }  # fmt: skip


def test_a_native_file_that_is_complete_does_not_wait(world: World) -> None:
    """One request per file; the newest file waits for its time."""
    stream = world.add(1)
    for count in (10, 20, 5):
        stream.publish(count)
        stream.write()
    assert world.look() == [(1, 0, 10)]
    world.answer()
    assert world.look() == [(1, 10, 30)]
    world.answer()
    assert world.look(AFTER_US - 1) == []
    assert world.look(1) == [(1, 30, 35)]


def test_a_message_waits_no_longer_because_others_follow(world: World) -> None:
    """Each look finds new messages in the tail; only those present when the time was up are sealed."""
    stream = world.add(1)
    stream.segment_octets = 1 << 20
    stream.publish(1)
    world.look()
    stream.write = lambda: (FakeArchive.write(stream), stream.publish(1))  # type: ignore[method-assign]
    assert world.look(AFTER_US) == [(1, 0, 1)]


def test_what_comes_while_it_is_sealed_waits_from_then_on(world: World) -> None:
    stream = world.add(1)
    stream.publish(1)
    world.look()
    assert world.look(AFTER_US) == [(1, 0, 1)]
    stream.publish(1)
    world.now_us += AFTER_US // 2
    world.answer()
    assert world.look(AFTER_US // 2 - 1) == []
    assert world.look(1) == [(1, 1, 2)]


def test_one_request_at_a_time_and_the_oldest_first(world: World) -> None:
    late, early = world.add(1), world.add(2)
    early.publish(1)
    world.look()
    late.publish(1)
    assert world.look(AFTER_US - 1) == []
    assert world.look(AFTER_US) == [(2, 0, 1)]
    assert world.look(AFTER_US) == []
    world.answer()
    assert world.look() == [(1, 0, 1)]


def test_what_is_sealed_is_known_from_the_names(world: World) -> None:
    """This includes files of a process that died after making them, but not those of an older stream of that name."""
    stream = world.add(1)
    stream.publish(30)
    day = world.path / "tables" / "%2F" / "s1" / date_directory("2026-11-22")
    day.mkdir(parents=True)
    (day / file_name(0, 9, CREATION)).touch()
    (day / file_name(10, 14, CREATION)).touch()
    (day / file_name(0, 25, "00000000000000bb")).touch()
    world.look()
    assert world.look(AFTER_US) == [(1, 15, 30)]
    (day / file_name(15, 19, CREATION)).touch()
    world.sealing.failed("it died", world.now_us)
    assert world.look() == []
    assert world.look(RETRY_US_MIN) == [(1, 20, 30)]


def test_a_stream_that_cannot_be_sealed_is_no_other_s_fault(world: World, caplog: pytest.LogCaptureFixture) -> None:
    bad, good = world.add(1), world.add(2)
    bad.publish(1)
    world.look()
    good.publish(1)
    world.look()
    assert world.look(AFTER_US) == [(1, 0, 1)]
    world.answer("No space left on device")
    assert "queue 's1' in vhost '/' could not be sealed and will be retried: No space left" in caplog.text
    assert world.look() == [(2, 0, 1)]
    world.answer()
    waits_us = []
    for _ in range(8):
        begun_us = world.now_us
        while not world.look(RETRY_US_MIN):
            pass
        waits_us.append(world.now_us - begun_us)
        world.answer("No space left on device")
    assert waits_us == [RETRY_US_MIN * each for each in (1, 2, 4, 8, 16, 32, 60, 60)]
    world.now_us += RETRY_US_MAX
    assert world.look() == [(1, 0, 1)]
    world.answer()
    bad.publish(1)
    world.look(AFTER_US)
    world.answer("again")
    assert world.look(RETRY_US_MIN) == [(1, 0, 1)]  # the first delay again, since this process has made no file


def test_what_is_lost_is_told_and_passed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    stream = world.add(1)
    stream.publish(5)
    world.look()
    world.look(AFTER_US)
    with caplog.at_level(logging.ERROR):
        world.answer(lost=("a chunk of 7 bytes with a wrong checksum",))
    assert "queue 's1' in vhost '/': not in its table: a chunk" in caplog.text
    assert world.look(RETRY_US_MAX + AFTER_US) == []


def test_a_stream_that_is_deleted_is_forgotten(world: World) -> None:
    stream = world.add(1)
    stream.publish(1)
    world.look()
    assert world.look(AFTER_US) == [(1, 0, 1)]
    stream.stream.is_deleted = True
    world.answer()
    assert world.look(AFTER_US) == []
    del world.archives[1]
    world.look()
    assert world.sealing.progress == {}


def test_an_answer_for_a_stream_that_is_gone_frees_the_process(world: World) -> None:
    gone, other = world.add(1), world.add(2)
    gone.publish(1)
    world.look()
    other.publish(1)
    assert world.look(AFTER_US) == [(1, 0, 1)]
    del world.archives[1]
    world.answer()
    assert world.look() == []
    assert world.look(AFTER_US) == [(2, 0, 1)]


def test_what_retention_took_is_not_asked_for(world: World) -> None:
    stream = world.add(1)
    for _ in range(3):
        stream.publish(10)
        stream.write()
    stream.files.dropped(1)
    assert world.look() == [(1, 10, 20)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"Warning: something", "malformed answer: JSON is malformed"),
        (b"{}", "malformed answer: Object missing required field"),
        (b'{"id": 2, "end": 1, "lost": [], "error": ""}', "the answer is for stream 2, not for 1"),
    ],
)
def test_what_is_no_answer_is_taken_for_none(world: World, line: bytes, reason: str) -> None:
    world.add(1).publish(1)
    world.look()
    world.look(AFTER_US)
    with pytest.raises(ValueError, match=reason):
        world.sealing.answered(line, world.now_us)
    assert world.look() == []  # the request stays pending until it is reported as failed
    world.sealing.failed(reason, world.now_us)
    assert world.look(RETRY_US_MIN) == [(1, 0, 1)]
