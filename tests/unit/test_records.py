"""The journal's records are read back as written; records that this version cannot read are refused."""

import pytest

from leveret.broker.messages.message_batch import BatchBuffer, MessageBatch
from leveret.broker.storage.log import (
    CLEAN,
    DELIVERED,
    HOP,
    MESSAGES,
    META,
    MOVED,
    PAGE,
    SETTLE,
    START,
    meta_record,
    page_record,
)
from leveret.broker.storage.page import Page
from leveret.broker.storage.records import Arrived, Declared, Moved, Paged, Passed, RecordError, records
from leveret.wire import grammar

from .support import Bench


def a_batch() -> bytes:
    """Return a batch: declarations, a message in two queues, its settlement in one of them, and an orderly stop."""
    bench = Bench()
    client = bench.connect()
    for name in ("one", "two"):
        client.queue(name, durable=True)
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    client.publish("key", b"body", exchange="amq.fanout", delivery_mode=2)
    client.publish("one", b"another", delivery_mode=2)
    log = bench.broker.log
    queue = bench.broker.vhosts["/"].queues["one"]
    log.settle(queue.message_list, 1)
    log.delivered(2, 1)
    log.clean()
    log.start()
    return bench.sync()


def a_page() -> bytes:
    """Return a page with messages 5 to 9 of queue 1, of which 7 is settled."""
    queue = Bench().broker.vhosts["/"]._nowhere
    queue.number = 1
    content = b"c" * 20
    page = Page(
        queue.message_list,
        [MessageBatch(queue.message_list, BatchBuffer(content * 5, 20, 20, 5, b"key"), 5, 99, 1)],
        0,
        1,
    )
    page.segment, page.offset, page.size = 3, 8212, 127
    page.settle(7)
    return page_record(page)


def test_a_page_is_read_back() -> None:
    (record,) = records(a_page())
    assert isinstance(record, Paged)
    assert (record.kind, record.queue, record.segment, record.offset, record.size) == (PAGE, 1, 3, 8212, 127)
    assert (record.first_id, record.last_id, record.expires_us, record.live) == (5, 9, 99, 4)
    assert (record.settled, record.is_redelivered) == ((7,), False)


def test_a_hop_is_one_record() -> None:
    bench = Bench()
    client = bench.connect()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "two", "x-message-ttl": 1}
    client.queue("one", durable=True, arguments=arguments)
    client.queue("two", durable=True)
    client.publish("one", b"body", delivery_mode=2)
    bench.sync()
    bench.pass_time(1000)
    (hop,) = records(bench.sync())
    assert isinstance(hop, Moved)
    assert (hop.kind, hop.left, hop.id, hop.queue, hop.expires_us) == (MOVED, (1, 1), 2, 2, 0)
    assert hop.change == b"\x00\x03two"


def test_a_hop_to_two_queues_is_one_record() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("one", durable=True, arguments={"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 1})
    for name in ("two", "three"):
        client.queue(name, durable=True)
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    client.publish("one", b"body", delivery_mode=2)
    bench.sync()
    bench.pass_time(1000)
    (hop,) = records(bench.sync())
    assert isinstance(hop, Arrived)
    assert (hop.kind, hop.left, hop.first_id, hop.queues) == (HOP, (1, 1), 2, [(2, 0), (3, 0)])


def test_what_the_log_writes_is_read_back() -> None:
    batch = a_batch()
    read = list(records(batch))
    assert [record.kind for record in read] == [MESSAGES, MESSAGES, SETTLE, DELIVERED, CLEAN, START]
    first, second, settled, delivered, *_ = read
    assert isinstance(first, Arrived)
    assert isinstance(second, Arrived)
    assert (first.first_id, first.buffer.key, first.queues) == (1, b"\x0aamq.fanout\x03key", [(1, 0), (2, 0)])
    assert [b"body" in content for content in first.contents] == [True]
    assert (second.first_id, second.buffer.key, second.queues) == (2, b"\x00\x03one", [(1, 0)])
    assert isinstance(settled, Passed)
    assert isinstance(delivered, Passed)
    assert [(p.queue, p.id) for p in (settled, delivered)] == [(1, 1), (2, 1)]


def test_a_declaration_is_read_back() -> None:
    (record,) = records(meta_record({"op": "queue.delete", "vhost": "/", "name": "q"}))
    assert isinstance(record, Declared)
    assert (record.kind, record.fields) == (META, {"op": "queue.delete", "vhost": "/", "name": "q"})


def test_a_record_of_a_kind_to_come_is_refused_not_passed_over() -> None:
    batch = a_batch() + bytes([200, 0, 0, 0, 1, 0])
    with pytest.raises(RecordError, match="a record of kind 200, which this version of leveret does not know"):
        list(records(batch))


def test_a_batch_cut_anywhere_inside_a_record_is_refused() -> None:
    batch = a_batch()
    whole = 0
    for size in range(len(batch)):
        try:
            found = list(records(batch[:size]))
        except RecordError as error:
            assert "longer than its batch" in str(error)  # noqa: PT017
        else:
            assert len(found) == whole
            whole += 1
    assert whole == 6


@pytest.mark.parametrize(
    ("kind", "rest", "text"),
    [
        (MESSAGES, b"", "kind 1 is malformed"),
        (MESSAGES, bytes(24), "of 0 messages holds 0"),
        (MESSAGES, bytes(7) + b"\1" + b"\0\0\0\2" + b"\0\0\0\1" * 2 + bytes(4) + b"x", "of 2 messages holds 1"),
        (SETTLE, bytes(15), "kind 2 is malformed"),
        (META, b"", "kind 3 is malformed"),
        (META, b"\0\0\0\3\1aZ", "kind 3 is malformed: .*unknown field type 'Z'"),
    ],
)
def test_a_malformed_record_has_a_clear_error(kind: int, rest: bytes, text: str) -> None:
    with pytest.raises(RecordError, match=text):
        list(records(bytes([kind]) + len(rest).to_bytes(4, "big") + rest))
