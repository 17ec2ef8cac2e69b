"""Publishes in one read that differ only in their bodies become one message batch, which clients cannot notice."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leveret.broker.broker import Settings
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.queues.queue import EXPIRED_MAX
from leveret.broker.storage.recovery import Recovery
from leveret.session import lifecycle
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import Method, decode_method, method_frame
from leveret.wire.properties import Properties, encode_header

from .support import SECOND_US, Bench, Client

QUEUES = ("one", "two", "durable", "brief", "short", "full")
BRIEF = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "one"}
SHORT = {"x-max-length": 3, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "two"}
FULL = {
    "x-max-length-bytes": 24,
    "x-overflow": "reject-publish-dlx",
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "short",
}
ARGUMENTS: dict[str, dict[str, object]] = {"brief": BRIEF, "short": SHORT, "full": FULL}


def message(
    key: str, body: bytes, frame_max: int = 131072, channel: int = 1, exchange: str = "amq.topic", **values: object
) -> bytes:
    method = method_frame(channel, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key)
    header = encode_header(Properties(**values), len(body))  # type: ignore[arg-type]
    return method + content_frames(channel, header, body, frame_max)


def alike(key: str, count: int, **values: object) -> list[bytes]:
    return [message(key, b"%08d" % number, **values) for number in range(count)]


def start() -> tuple[Bench, Client]:
    """Start a broker. Key "all" reaches the queues without limits, "each" all queues, a queue's name that queue."""
    bench = Bench()
    client = bench.connect()
    for name in QUEUES:
        client.queue(name, durable=name in ("durable", "short"), arguments=ARGUMENTS.get(name, {}))
        for key in (name, "each") if name in ("short", "full") else (name, "each", "all"):
            client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.topic", routing_key=key)
    client.call(2, grammar.CHANNEL_OPEN)
    client.call(1, grammar.CONFIRM_SELECT)
    return bench, client


def runs(bench: Bench, queue: str) -> list[int]:
    """Return the lengths of the message batches at the head of a queue, and remove them."""
    ready = bench.broker.vhosts["/"].queues[queue].message_list.ready
    found: list[int] = []
    while (run := ready.run()) is not None or ready.peek() is not None:
        if isinstance(run, MessageBatch):
            found.append(int(run.buffer.count - run.taken))
            ready.drop_batch(run, run.buffer.count - run.taken)
        else:
            found.append(1)
            ready.drop()
    assert ready.count() == 0
    return found


def test_alike_messages_become_a_run_behind_the_first() -> None:
    bench, client = start()
    client.raw(b"".join(alike("one", 50)))
    assert runs(bench, "one") == [1, 49]


@pytest.mark.parametrize(
    "other",
    [
        message("two", b"00000000"),
        message("one", b"0000000"),
        message("one", b"00000000", message_id="m"),
        message("one", b"00000000", frame_max=12),
        message("one", b"00000000", channel=2),
        method_frame(2, grammar.BASIC_QOS, prefetch_count=3),
    ],
)
def test_a_run_ends_where_anything_differs(other: bytes) -> None:
    bench, client = start()
    client.raw(b"".join([*alike("one", 5), other, *alike("one", 5)]))
    found = runs(bench, "one")
    assert found[:2] == [1, 4]
    assert found[-2:] == [1, 4]


def test_a_run_ends_at_a_frame_without_its_end() -> None:
    _, client = start()
    stream = b"".join(alike("one", 5))
    client.raw(stream[:-1] + b"\x00" + stream)
    (close,) = [method for method in client.methods() if method.name == "connection.close"]
    assert close.number("reply_code") == 501


def test_messages_of_a_run_are_confirmed_after_their_sync() -> None:
    bench, client = start()
    client.raw(b"".join(alike("all", 20, delivery_mode=2)))
    assert client.methods() == []
    bench.sync()
    (ack,) = client.methods()
    assert (ack.number("delivery_tag"), ack.flag("multiple")) == (20, True)


def test_messages_to_a_queue_with_limits_are_no_run() -> None:
    bench, client = start()
    client.raw(b"".join(alike("each", 10)))
    assert runs(bench, "short") == [1, 1, 1]
    assert runs(bench, "full") == [1, 1, 1]
    assert runs(bench, "one") == [1] * 10
    words = answers(client.methods())
    assert words == [(tag, "basic.ack" if tag <= 3 else "basic.nack") for tag in range(1, 11)]


def test_a_run_is_journalled_once_and_comes_back() -> None:
    bench, client = start()
    records = [b"".join(bench.broker.snapshot())]
    client.raw(b"".join(alike("all", 20, delivery_mode=2)))
    client.frames()
    client.send(2, grammar.BASIC_CONSUME, queue="durable", no_ack=False)
    client.send(2, grammar.BASIC_ACK, delivery_tag=7, multiple=True)
    client.send(2, grammar.BASIC_ACK, delivery_tag=9)
    records.append(bench.sync())
    assert len(records[1]) < 20 * len(message("all", b"%08d" % 0, delivery_mode=2)) + 500
    again = Bench()
    recovery = Recovery(again.broker, again.now_us)
    for batch in records:
        recovery.batch(batch)
    assert recovery.finish() == 12
    reader = again.connect()
    reader.send(1, grammar.BASIC_CONSUME, queue="durable", no_ack=True)
    assert reader.bodies() == [b"%08d" % number for number in [7, *range(9, 20)]]
    assert again.broker.log.next_id == 21


def test_messages_that_are_taken_singly_from_a_run_are_settled_as_themselves() -> None:
    bench, client = start()
    bench.batches.append(b"".join(bench.broker.snapshot()))
    client.raw(b"".join(alike("all", 5, delivery_mode=2)))
    for _ in range(5):
        client.send(2, grammar.BASIC_GET, queue="durable", no_ack=False)
    for tag in (2, 4):
        client.send(2, grammar.BASIC_ACK, delivery_tag=tag)
    bench.sync()
    again = Bench()
    recovery = Recovery(again.broker, again.now_us)
    for batch in bench.batches:
        recovery.batch(batch)
    assert recovery.finish() == 3
    reader = again.connect()
    reader.send(1, grammar.BASIC_CONSUME, queue="durable", no_ack=True)
    assert reader.bodies() == [b"%08d" % number for number in (0, 2, 4)]


def test_a_run_expires_as_its_messages_do() -> None:
    bench, client = start()
    client.raw(b"".join(alike("brief", 10)))
    client.frames()
    bench.pass_time(SECOND_US - 1)
    assert client.call(2, grammar.QUEUE_DECLARE, queue="one", passive=True).number("message_count") == 0
    bench.pass_time(1)
    assert client.call(2, grammar.QUEUE_DECLARE, queue="one", passive=True).number("message_count") == 10
    client.send(2, grammar.BASIC_CONSUME, queue="one", no_ack=True)
    assert client.bodies() == [b"%08d" % number for number in range(10)]


def test_an_expired_run_is_not_delivered() -> None:
    bench, client = start()
    for _ in range(5):
        client.raw(b"".join(alike("brief", EXPIRED_MAX)))
    client.frames()
    bench.now_us += SECOND_US + 1  # one turn expires only the first of them
    client.send(2, grammar.BASIC_CONSUME, queue="brief", no_ack=True)
    assert client.bodies() == []
    for _ in range(5):
        bench.pass_time(0)
    assert client.call(2, grammar.QUEUE_DECLARE, queue="one", passive=True).number("message_count") == 5 * EXPIRED_MAX


def test_what_is_left_of_a_run_goes_to_the_next_consumer() -> None:
    _, client = start()
    client.raw(b"".join(alike("one", 10)))
    client.frames()
    for _ in range(4):
        client.send(2, grammar.BASIC_GET, queue="one", no_ack=True)
    client.send(1, grammar.BASIC_CONSUME, queue="one", no_ack=True)
    assert client.bodies() == [b"%08d" % number for number in range(10)]


def test_a_long_queue_is_not_copied_into_the_output_at_once() -> None:
    bench, client = start()
    for _ in range(50):
        client.raw(b"".join(alike("one", 2000)))
    client.frames()
    client.send(2, grammar.BASIC_CONSUME, queue="one", no_ack=True)
    received = 0
    while client.peer.is_dirty:
        assert client.peer.output.octets() < 2 << 20
        received += len(client.bodies())
        client.peer.drained(bench.now_us)
    assert received == 100_000


@pytest.mark.parametrize("whole_channel", [False, True])
def test_a_run_ends_at_the_prefetch_limit(whole_channel: bool) -> None:
    bench, client = start()
    client.raw(b"".join(alike("durable", 20, delivery_mode=2)))
    client.frames()
    client.call(2, grammar.BASIC_QOS, prefetch_count=7, **{"global": whole_channel})
    client.send(2, grammar.BASIC_CONSUME, queue="durable")
    assert client.bodies() == [b"%08d" % number for number in range(7)]
    client.send(2, grammar.BASIC_ACK, delivery_tag=3, multiple=True)
    assert client.bodies() == [b"%08d" % number for number in range(7, 10)]
    client.send(2, grammar.BASIC_ACK, delivery_tag=9)
    assert client.bodies() == [b"%08d" % 10]
    bench.sync()
    client.send(2, grammar.CHANNEL_CLOSE, reply_code=200, reply_text="", class_id=0, method_id=0)
    reader = bench.connect()
    reader.send(1, grammar.BASIC_CONSUME, queue="durable", no_ack=True)
    frames = reader.frames()
    methods = [decode_method(frame.payload) for frame in frames if frame.kind == 1]
    left = [*range(3, 8), *range(9, 20)]
    assert [frame.payload for frame in frames if frame.kind == 3] == [b"%08d" % number for number in left]
    assert [each.flag("redelivered") for each in methods if each.name == "basic.deliver"] == [
        number < 11 for number in left
    ]


def test_messages_of_a_run_come_back_one_by_one_and_those_not_acknowledged_in_time() -> None:
    """The timeout applies to a message batch; closing the channel requeues what is unacknowledged."""
    bench = Bench(Settings(consumer_timeout_ms=60_000))
    client = bench.connect()
    client.queue("q")
    client.raw(b"".join(alike("q", 10, exchange="")))
    client.send(1, grammar.BASIC_CONSUME, queue="q")
    client.send(1, grammar.BASIC_ACK, delivery_tag=4, multiple=True)
    client.frames()
    for _ in range(130):
        bench.pass_time(SECOND_US)
        client.peer.check_ack_timeouts(bench.now_us)
    (close,) = client.methods()
    assert (close.name, close.number("reply_code")) == ("channel.close", 406)
    assert [
        (entry.content[-9:-1], entry.redelivered) for entry in bench.broker.vhosts["/"].queues["q"].in_memory()
    ] == [(b"%08d" % number, True) for number in range(4, 10)]


# channel of the publisher, which has its own connection; the first queue's consumers use the same number
PUBLISHING = 3
NAMES = st.sampled_from(QUEUES)
KEYS = st.sampled_from([*QUEUES, "all", "each", "nowhere"])
OPERATIONS = st.one_of(
    st.tuples(st.just("publish"), KEYS, st.integers(1, 9), st.integers(1, 2)),
    st.tuples(st.just("consume"), NAMES, st.booleans()),
    st.tuples(st.sampled_from(["cancel", "recover", "purge", "delete"]), NAMES),
    st.tuples(st.just("qos"), NAMES, st.integers(0, 4)),
    st.tuples(st.just("get"), NAMES, st.booleans()),
    st.tuples(st.just("ack"), NAMES, st.booleans(), st.integers(0, 9)),
    st.tuples(st.just("nack"), NAMES, st.booleans(), st.integers(0, 9)),
    st.tuples(st.just("commit"), NAMES, st.booleans(), st.integers(0, 9)),
    st.tuples(st.just("time"), st.sampled_from([1, 400_000, SECOND_US])),
    st.tuples(st.just("sync")),
)


def operate(bench: Bench, publisher: Client, client: Client, operation: tuple[object, ...], whole: bool) -> None:
    """Run one operation. Each queue has its own channel, since the order across queues depends on turns."""
    match operation:
        case "publish", str(key), int(times), int(mode):
            messages = alike(key, times, delivery_mode=mode, channel=PUBLISHING)
            for data in [b"".join(messages)] if whole else messages:
                publisher.raw(data)
            return
        case "time", int(us):
            bench.pass_time(us)
            return
        case ("sync",):
            bench.sync()
            return
    name, queue, value, back = (*operation, None, None)[:4]
    assert isinstance(queue, str)
    assert back is None or isinstance(back, int)
    number = PUBLISHING + QUEUES.index(queue)
    if number in client.peer.channels and client.peer.channels[number].state == lifecycle.CLOSE_SENT:
        client.send(number, grammar.CHANNEL_CLOSE_OK)
    if number not in client.peer.channels:
        client.send(number, grammar.CHANNEL_OPEN)
    channel = client.peer.channels[number]
    match name, value:
        case "consume", bool(no_ack):
            tag = next(tag for tag in (f"{queue} {each}" for each in count()) if tag not in channel.consumers)
            client.send(number, grammar.BASIC_CONSUME, queue=queue, no_ack=no_ack, consumer_tag=tag)
        case "cancel", _:
            client.send(number, grammar.BASIC_CANCEL, consumer_tag=f"{queue} 0")
        case "qos", int(window):
            client.send(number, grammar.BASIC_QOS, prefetch_count=window)
        case "get", bool(no_ack):
            client.send(number, grammar.BASIC_GET, queue=queue, no_ack=no_ack)
        case "ack", bool(multiple):
            client.send(
                number, grammar.BASIC_ACK, delivery_tag=max(0, int(channel.next_tag) - 1 - back), multiple=multiple
            )
        case "nack", bool(requeue):
            tag = max(0, int(channel.next_tag) - 1 - back)
            if back == 0 or not channel.unacked.has(tag):
                client.send(number, grammar.BASIC_NACK, delivery_tag=0, multiple=True, requeue=requeue)
            else:
                client.send(number, grammar.BASIC_NACK, delivery_tag=tag, multiple=back % 2 == 0, requeue=requeue)
        case "commit", bool(commits):
            tag = max(0, int(channel.next_tag) - 1 - back)
            client.send(number, grammar.TX_SELECT)
            if channel.unacked.has(tag):
                client.send(number, grammar.BASIC_ACK, delivery_tag=tag, multiple=back % 2 == 0)
            client.send(number, grammar.TX_COMMIT if commits else grammar.TX_ROLLBACK)
        case "recover", _:
            client.send(number, grammar.BASIC_RECOVER, requeue=True)
        case "purge", _:
            client.send(number, grammar.QUEUE_PURGE, queue=queue)
        case "delete", _:
            client.send(number, grammar.QUEUE_DELETE, queue=queue)


def answers(methods: list[Method]) -> list[tuple[int, str]]:
    """Return (tag, answer) for each publish, however the answers were combined."""
    words: dict[int, str] = {}
    for method in methods:
        tag = method.number("delivery_tag")
        for each in range(1, tag + 1) if method.flag("multiple") else [tag]:
            words.setdefault(each, method.name)
    return sorted(words.items())


def play(operations: list[tuple[object, ...]], *, whole: bool) -> list[object]:
    """Run the operations and return all visible results; publishes arrive in one read if `whole`, else one per read."""
    bench, client = start()
    publisher = bench.connect()
    publisher.call(PUBLISHING, grammar.CHANNEL_OPEN)
    publisher.call(PUBLISHING, grammar.CONFIRM_SELECT)
    for operation in operations:
        operate(bench, publisher, client, operation, whole)
    bench.sync()
    seen: list[object] = [(frame.kind, frame.channel, frame.payload) for frame in client.frames()]
    seen.sort(key=lambda frame: frame[1])  # type: ignore[index]
    seen.append(answers(publisher.methods()))
    for queue in bench.broker.vhosts["/"].queues.values():
        seen.append((queue.name, int(queue.count()), int(queue.unacked)))
        seen.append([(entry.content, int(entry.id), entry.redelivered) for entry in queue.in_memory()])
    return seen


@settings(max_examples=300, deadline=None)
@example([("consume", "one", False), ("consume", "one", False), ("cancel", "one"), ("consume", "one", False)] * 2)
@given(st.lists(OPERATIONS, max_size=25))
def test_runs_cannot_be_told_from_single_messages(operations: list[tuple[object, ...]]) -> None:
    assert play(operations, whole=True) == play(operations, whole=False)
