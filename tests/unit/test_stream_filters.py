"""Filters of stream consumers: only matching messages are delivered, and chunks without any are not read."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.streams.chunk import ChunkGroup
from leveret.broker.streams.filter import Filter, digest_of, filter_of, filter_value
from leveret.broker.streams.stream import Stream
from leveret.net.disk.archive import Archive
from leveret.net.disk.streams import StreamStorage
from leveret.store.disk import MemoryDisk
from leveret.store.streams import StreamStore
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import encode_value

from .support import Bench, Client

STREAM = {"x-queue-type": "stream"}


class ReadDisk(MemoryDisk):
    """Counts the reads of stream files."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def read_cached(self, path: str, offset: int, length: int) -> bytes | None:
        self.reads += 1
        return super().read_cached(path, offset, length)


class World:
    """A broker with one stream "s" and its files in memory."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.disk = ReadDisk()
        store = StreamStore(self.disk, "streams", random.Random(1).randbytes)
        self.streams = StreamStorage(self.bench.broker, store, self._submit, lambda: None, lambda: self.bench.now_us)
        self.publisher = self.bench.connect()
        self.publisher.queue("s", durable=True, arguments=STREAM)
        self.count = 0

    def _submit(
        self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None], is_reading: bool = False
    ) -> None:
        done(work(), None)

    @property
    def stream(self) -> Stream:
        stream = self.bench.broker.vhosts["/"].queues["s"]
        assert isinstance(stream, Stream)
        return stream

    @property
    def archive(self) -> Archive:
        (archive,) = self.streams.archives.values()
        return archive

    def publish(self, *values: object) -> None:
        """Publish a message for each filter value (None: without one); its body is its offset."""
        for value in values:
            headers: dict[str, object] = {"x": 1} if value is None else {"a": "b", "x-stream-filter-value": value}
            self.publisher.publish("s", b"%d" % self.count, headers=headers, content_type="t")
            self.count += 1
        self.bench.sync()
        self.bench.broker.end_turn(self.bench.now_us)

    def file(self) -> None:
        """Write all messages of the tail to the files, as one chunk."""
        self.archive.write()

    def reader(self, filter: object, *, prefetch: int = 1000, unfiltered: object = None, offset: object = 0) -> Client:
        client = self.bench.connect()
        client.call(1, grammar.BASIC_QOS, prefetch_count=prefetch)
        arguments = {"x-stream-offset": offset, "x-stream-filter": filter, "x-stream-match-unfiltered": unfiltered}
        given = {name: value for name, value in arguments.items() if value is not None}
        client.send(1, grammar.BASIC_CONSUME, queue="s", arguments=given)
        return client


def got(client: Client) -> list[int]:
    return [int(body) for body in client.bodies()]


@pytest.mark.parametrize("is_filed", [False, True])
def test_exactly_what_is_wanted(is_filed: bool) -> None:
    world = World()
    world.publish("a", "b", None, "a", "c", "", None, b"a", 7)
    if is_filed:
        world.file()
        assert not world.stream.tail
    assert got(world.reader("a")) == [0, 3, 7]
    assert got(world.reader(["a", "c"])) == [0, 3, 4, 7]
    assert got(world.reader("a", unfiltered=True)) == [0, 2, 3, 6, 7, 8]
    assert got(world.reader("a", unfiltered=False)) == [0, 3, 7]
    assert got(world.reader("none")) == []
    assert got(world.reader("")) == [5]
    assert got(world.reader([])) == []
    assert got(world.reader([], unfiltered=True)) == [2, 6, 8]
    assert got(world.reader(None, unfiltered=True)) == list(range(9))
    assert got(world.reader("c", offset=5)) == []


def test_what_is_passed_over_costs_no_credit() -> None:
    world = World()
    world.publish(*"abbbbabbba")
    client = world.reader("a", prefetch=2)
    assert got(client) == [0, 5]
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    assert got(client) == [9]


def test_a_stored_offset_is_behind_what_was_wanted() -> None:
    world = World()
    client = world.bench.connect()
    client.call(1, grammar.BASIC_QOS, prefetch_count=10)
    arguments = {"x-stream-filter": "a", "x-leveret-consumer": "n", "x-stream-offset": 0}
    client.send(1, grammar.BASIC_CONSUME, queue="s", arguments=arguments)
    world.publish(*"abbabb")
    assert got(client) == [0, 3]
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    assert world.stream.offsets.table() == {"n": 1}
    client.send(1, grammar.BASIC_ACK, delivery_tag=2)
    assert world.stream.offsets.table() == {"n": 4}


def test_chunks_without_any_of_it_are_not_read() -> None:
    world = World()
    for index in range(200):
        world.publish(*("wanted" if index in (50, 199) else f"v{index}-{part}" for part in range(3)))
        world.file()
    before = world.disk.reads
    client = world.reader("wanted")
    found = got(client)
    while world.bench.broker.timers.next_us():
        world.bench.pass_time(1)
        found += got(client)
    assert found == [150, 151, 152, 597, 598, 599]
    assert world.disk.reads - before == 2
    plain = world.reader("wanted", unfiltered=True)  # every message has a filter value
    assert got(plain)[:3] == [150, 151, 152]
    assert world.disk.reads - before == 2  # from the cache


def test_a_long_stretch_without_any_of_it_is_passed_over_in_many_turns() -> None:
    """Other connections are served meanwhile, and the search continues by itself."""
    world = World()
    for _ in range(40):
        world.publish(*(("x", "y") * 20))
    world.publish("a")
    client = world.reader("a")
    assert got(client) == []  # 1,600 messages precede it in memory
    world.bench.pass_time(1)
    assert got(client) == [1600]
    client.peer.lost(world.bench.now_us)
    for _ in range(3000):
        world.publish("z")
        world.file()
    world.publish("a")
    client = world.reader("a")
    turns = 0
    found: list[int] = []
    while len(found) < 2:
        assert world.bench.broker.timers.next_us() != 0
        world.bench.pass_time(1)
        found += got(client)
        turns += 1
    assert found == [1600, 4601]
    assert turns > 1


def test_a_plain_reader_is_not_asked() -> None:
    assert filter_of({"x-stream-match-unfiltered": b"t\x01"}) is None


def content(value: object, size: int = 1) -> bytes:
    headers = None if value is None else {"x-stream-filter-value": value}
    properties = Properties(headers=headers, content_encoding="e", delivery_mode=2)  # type: ignore[arg-type]
    return content_frames(1, encode_header(properties, size), b"." * size, 131072)


def test_the_value_of_a_message() -> None:
    assert [filter_value(content(value)) for value in ("a", b"b", None, 1, "", "ä")] == [
        b"a", b"b", None, None, b"", "ä".encode(),
    ]  # fmt: skip


words = st.none() | st.text("abc", max_size=2)


@given(st.lists(words, max_size=8), st.lists(st.text("abcd", max_size=2), max_size=3), st.booleans())
def test_a_digest_hides_nothing(values: list[str | None], wanted: list[str], has_unfiltered: bool) -> None:
    groups = []
    for offset, value in enumerate(values):
        data = content(value)
        groups.append(ChunkGroup(offset, 0, b"", data, len(data), 1, 0))
    filter = Filter({word.encode() for word in wanted}, has_unfiltered)
    digest = digest_of(groups)
    is_there = any(filter.admits(group.data) for group in groups)
    assert filter.may_admit(digest) or not is_there
    if values:
        assert filter.may_admit(digest) == is_there  # each of these few values has 16 bits of its own
    given = {"x-stream-filter": encode_value([*wanted])}
    again = filter_of(given)
    assert again is not None
    assert [again.admits(group.data) for group in groups] == [value in wanted for value in values]


def test_a_digest_of_very_many_values_tells_nothing() -> None:
    groups = []
    for offset in range(1025):
        data = content(str(offset))
        groups.append(ChunkGroup(offset, 0, b"", data, len(data), 1, 0))
    assert digest_of(groups) == b"\x02"
    assert len(digest_of(groups[1:])) < 2 * 1024 + 2
    nothing = Filter({b"x"}, False)
    assert nothing.may_admit(digest_of(groups))
    assert digest_of([]) == b""


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=5)),
        st.tuples(st.just("file"), st.just([])),
        st.tuples(st.just("ack"), st.just([])),
    ),
    max_size=20,
)


@settings(max_examples=50)
@given(steps, st.sets(st.sampled_from("abcd")), st.booleans(), st.integers(1, 4), st.integers(0, 6))
def test_a_reader_gets_what_it_wants_in_order(
    steps: list[tuple[str, list[str | None]]], wanted: set[str], unfiltered: bool, prefetch: int, first: int
) -> None:
    world = World()
    early = world.reader(sorted(wanted), prefetch=prefetch, unfiltered=unfiltered, offset=first)
    values: list[str | None] = []
    found: list[int] = []
    outstanding = 0
    acked = 0
    for step, fresh in steps:
        if step == "publish":
            world.publish(*fresh)
            values += fresh
        elif step == "file":
            world.file()
        elif outstanding:
            acked += 1
            outstanding -= 1
            early.send(1, grammar.BASIC_ACK, delivery_tag=acked)
        new = got(early)
        found += new
        outstanding += len(new)
        expected = [
            offset
            for offset, value in enumerate(values)
            if offset >= first and (unfiltered if value is None else value in wanted)
        ]
        assert found == expected[: acked + prefetch]
        late = world.reader(sorted(wanted), unfiltered=unfiltered, offset=first)
        assert got(late) == expected
