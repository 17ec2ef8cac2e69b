"""Records with a valid checksum that no broker writes, found by fuzzing (tests/fuzz/journal.py)."""

from __future__ import annotations

import struct

import pytest

from leveret.broker.publishers.reference import PublisherReference
from leveret.broker.queues.queue import Queue
from leveret.broker.storage.log import DELIVERED, MESSAGES, META, MOVED, PAGE, PAGE_HEAD, meta_record, publisher_record
from leveret.broker.storage.page import Page
from leveret.broker.storage.records import DELIVERED_MAX, RecordError, records
from leveret.broker.storage.recovery import Recovery
from leveret.broker.streams import chunk
from leveret.wire.frames import content_frames
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import Value

from .support import Bench

CONTENT = content_frames(1, encode_header(Properties(delivery_mode=2), 1), b"x", 4096)
KEY = b"\x00\x01q"


def record(kind: int, rest: bytes) -> bytes:
    return struct.pack(">BI", kind, len(rest)) + rest


def messages(count: int, stride: int, size: int, contents: bytes, key: bytes = KEY) -> bytes:
    head = struct.pack(">qIIIH", 1, count, stride, size, len(key)) + key
    return record(MESSAGES, head + struct.pack(">Hqq", 1, 1, 0) + contents)


SIZE = len(CONTENT)


@pytest.mark.parametrize("batch", [
    messages(0xFFFF_FFFF, 0, SIZE, CONTENT),  # four billion copies of the same octets
    messages(2, SIZE - 1, SIZE, (CONTENT * 2)[: 2 * SIZE - 1]),  # overlapping messages
    messages(1, 0, 0, b""), messages(1, 5, 5, b"short"), messages(1, SIZE, SIZE, b"\x01" + CONTENT[1:]),
    messages(1, SIZE, SIZE, CONTENT, b""), record(MOVED, struct.pack(">6q", 1, 1, 1, 1, 1, 1)),
    record(DELIVERED, struct.pack(">qqI", 1, 1, DELIVERED_MAX + 1)),
    record(PAGE, PAGE_HEAD.pack(1, 1, 0, 10, 1, 5, 0, 11, 0)), record(PAGE, PAGE_HEAD.pack(1, 1, 0, 10, 5, 1, 0, 1, 0)),
    record(META, b"\0\0\0\1"),
])  # fmt: skip
def test_a_record_that_makes_no_sense_is_refused(batch: bytes) -> None:
    with pytest.raises(RecordError):
        list(records(batch))


def test_a_record_of_messages_is_taken() -> None:
    assert len(list(records(messages(3, SIZE, SIZE, CONTENT * 3)))) == 1


@pytest.mark.parametrize("fields", [
    {"op": "queue.declare", "vhost": "/", "name": "q"}, {"op": "next_id"}, {"op": "next_id", "id": "x"},
    {"op": "exchange.declare", "vhost": "none", "name": "x"}, {"op": "bind", "vhost": "/"}, {"name": "q"},
    {"op": "exchange.declare", "vhost": "/", "name": "x", "type": "none", "auto_delete": False, "internal": False},
    {"op": "define", "kind": "none", "definition": {}}, {"op": "history", "vhost": "/", "exchange": "x"},
])  # fmt: skip
def test_a_declaration_that_makes_no_sense_is_told(fields: dict[str, Value]) -> None:
    bench = Bench()
    with pytest.raises(RecordError, match="a record is inconsistent"):
        Recovery(bench.broker, bench.now_us).batch(meta_record(fields))


def test_a_declaration_of_a_newer_version_is_refused() -> None:
    bench = Bench()
    with pytest.raises(RecordError, match=r"found a record 'new\.thing', .* a newer version wrote it"):
        Recovery(bench.broker, bench.now_us).batch(meta_record({"op": "new.thing", "vhost": "/"}))


@pytest.mark.parametrize("missing", ["number", "epoch", "since", "last_id", "refused", "used_us"])
def test_a_publisher_reference_that_makes_no_sense_is_told(missing: str) -> None:
    bench = Bench()
    fields = PublisherReference(1, "P", "guest", bench.broker.log).record_fields("/")
    Recovery(bench.broker, bench.now_us).batch(publisher_record(fields))
    wrong: dict[str, Value] = fields | {missing: {}}
    with pytest.raises(RecordError, match="a record is inconsistent"):
        Recovery(bench.broker, bench.now_us).batch(publisher_record(wrong))


@pytest.mark.parametrize("data", [
    b"\0", bytes(27), struct.pack(">BqIIqH", 0, 1, 1, 0xFFFF_FFFF, 0, 0),
    struct.pack(">BqIIqH", 0, 1, 5, 5, 0, 0) + b"x",
])  # fmt: skip
def test_a_page_that_is_none(data: bytes) -> None:
    nowhere = Queue(Bench().broker.vhosts["/"], "", True, False, {})
    with pytest.raises(ValueError, match="a page"):
        Page(nowhere.message_list, [], 0, 0).load(data)


def test_a_page_that_is_none_costs_its_messages_and_nothing_else() -> None:
    told: list[str] = []
    bench = Bench()
    bench.broker.vhosts["/"].on_event = told.append
    client = bench.connect()
    client.queue("q", durable=True)
    queue = bench.broker.vhosts["/"].queues["q"]
    page = Page(queue.message_list, [], 0, 0)
    page.first_id, page.last_id, page.live, page.count, page.is_stored = 1, 1, 1, 1, True
    queue.message_list.add_page(page)
    queue.message_list.enqueue_page(page)
    bench.broker.log.read_page = lambda segment, offset, size: bytes(27)
    client.publish("q", b"behind it", delivery_mode=2)
    assert queue.peek() is not None
    assert queue.count() == 1
    assert told == [
        "queue 'q' in vhost '/': a page can't be read: a page contains messages without a size; its messages are lost"
    ]


@pytest.mark.parametrize("payload", [
    b"\0" * 17, struct.pack(">qiiH", 1, -1, 20, 0), struct.pack(">qiiH", 1, 1, 0, 0),
    struct.pack(">qiiH", 1, 9, 9, 0) + b"x",
])  # fmt: skip
def test_a_chunk_that_is_none_has_an_end(payload: bytes) -> None:
    """A negative count would lead back to octets already read, in an endless loop."""
    with pytest.raises(ValueError, match="a chunk"):
        chunk.decode(payload, 0)
