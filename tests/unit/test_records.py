"""The journal's records read back as they were written, and refused where this leveret can't read them."""

import pytest

from leveret.broker.log import CLEAN, DELIVERED, MESSAGES, META, SETTLE, START, meta_record
from leveret.broker.records import Arrived, Declared, Passed, RecordError, records
from leveret.wire import grammar

from .support import Bench


def a_batch() -> bytes:
    """Declarations, a message in two queues, its settlement in one of them, and an orderly stop."""
    bench = Bench()
    client = bench.connect()
    for name in ("one", "two"):
        client.queue(name, durable=True)
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    client.publish("key", b"body", exchange="amq.fanout", delivery_mode=2)
    client.publish("one", b"another", delivery_mode=2)
    log = bench.broker.log
    log.settle(1, 1)
    log.delivered(2, 1)
    log.clean()
    log.start()
    return bench.sync()


def test_what_the_log_writes_is_read_back() -> None:
    batch = a_batch()
    read = list(records(batch))
    assert [record.kind for record in read] == [MESSAGES, MESSAGES, SETTLE, DELIVERED, CLEAN, START]
    first, second, settled, delivered, *_ = read
    assert isinstance(first, Arrived)
    assert isinstance(second, Arrived)
    assert (first.first_id, first.key, first.queues) == (1, b"\x0aamq.fanout\x03key", [(1, 0), (2, 0)])
    assert [b"body" in content for content in first.contents] == [True]
    assert (second.first_id, second.key, second.queues) == (2, b"\x00\x03one", [(1, 0)])
    assert isinstance(settled, Passed)
    assert isinstance(delivered, Passed)
    assert [(p.queue, p.id) for p in (settled, delivered)] == [(1, 1), (2, 1)]


def test_a_declaration_is_read_back() -> None:
    (record,) = records(meta_record({"op": "queue.delete", "vhost": "/", "name": "q"}))
    assert isinstance(record, Declared)
    assert (record.kind, record.fields) == (META, {"op": "queue.delete", "vhost": "/", "name": "q"})


def test_a_record_of_a_kind_to_come_is_refused_not_passed_over() -> None:
    batch = a_batch() + bytes([200, 0, 0, 0, 1, 0])
    with pytest.raises(RecordError, match="a record of kind 200, which this leveret does not know"):
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
        (MESSAGES, bytes(24), "kind 1 is malformed"),  # contents that do not advance
        (MESSAGES, bytes(7) + b"\1" + b"\0\0\0\2" + b"\0\0\0\1" * 2 + bytes(4) + b"x", "of 2 messages holds 1"),
        (SETTLE, bytes(15), "kind 2 is malformed"),
        (META, b"", "kind 3 is malformed"),
        (META, b"\0\0\0\3\1aZ", "kind 3 is malformed: .*unknown field type 'Z'"),
    ],
)
def test_a_malformed_record_has_a_clear_error(kind: int, rest: bytes, text: str) -> None:
    with pytest.raises(RecordError, match=text):
        list(records(bytes([kind]) + len(rest).to_bytes(4, "big") + rest))
