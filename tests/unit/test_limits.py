"""Queues with limits where only the core can be asked: turns, the journal, and what must not change."""

from __future__ import annotations

import pytest

from leveret.broker.storage.recovery import Recovery
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, decode_header, encode_header

from .support import Bench, Client


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def client(bench: Bench) -> Client:
    return bench.connect()


def publishes(key: str, *bodies: bytes, **values: object) -> bytes:
    method = method_frame(1, grammar.BASIC_PUBLISH, routing_key=key)
    properties = Properties(**values)  # type: ignore[arg-type]
    return b"".join(
        method + content_frames(1, encode_header(properties, len(body)), body, 131072) for body in bodies
    )


def bodies(bench: Bench, queue: str) -> list[bytes]:
    """Return the bodies of all ready messages of a queue."""
    entries = bench.broker.vhosts["/"].queues[queue].in_memory()
    return [content[7 + int.from_bytes(content[3:7], "big") + 1 + 7 : -1] for content in (e.content for e in entries)]


def words(client: Client) -> list[tuple[str, int, bool]]:
    methods = [method for method in client.methods() if method.name in ("basic.ack", "basic.nack")]
    return [(method.name, method.number("delivery_tag"), method.flag("multiple")) for method in methods]


def revived(*batches: bytes) -> tuple[Bench, int]:
    """Return a new broker from these batches of the journal, and how many messages it found."""
    bench = Bench()
    recovery = Recovery(bench.broker, bench.now_us)
    for batch in batches:
        recovery.batch(batch)
    return bench, recovery.finish()


def test_the_answer_to_a_refused_message_waits_for_no_sync(bench: Bench, client: Client) -> None:
    client.queue("full", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.call(1, grammar.CONFIRM_SELECT)
    client.raw(publishes("full", b"1", b"2", b"3", delivery_mode=2))
    assert words(client) == [("basic.nack", 2, False), ("basic.nack", 3, False)]
    bench.sync()
    assert words(client) == [("basic.ack", 1, False)]


def test_an_ack_waits_for_the_slowest_queue(bench: Bench, client: Client) -> None:
    for name, durable in (("durable", True), ("transient", False)):
        client.queue(name, durable=durable)
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    client.call(1, grammar.CONFIRM_SELECT)
    client.publish("", exchange="amq.fanout", delivery_mode=2)
    assert words(client) == []
    bench.sync()
    assert words(client) == [("basic.ack", 1, False)]


def test_a_refusing_queue_keeps_nothing_in_the_journal(bench: Bench, client: Client) -> None:
    records = [b"".join(bench.broker.snapshot())]
    client.send(1, grammar.QUEUE_DECLARE, queue="full", durable=True,
                arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.send(1, grammar.QUEUE_DECLARE, queue="other", durable=True)
    for name in ("full", "other"):
        client.send(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    for _ in range(3):
        client.publish("", exchange="amq.fanout", delivery_mode=2)
    again, count = revived(*records, bench.sync())
    assert count == 4
    assert [len(bodies(again, name)) for name in ("full", "other")] == [1, 3]


def test_dropped_messages_are_gone_from_the_journal(bench: Bench, client: Client) -> None:
    arguments = {"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=arguments)
    client.send(1, grammar.QUEUE_DECLARE, queue="grave", durable=True, arguments={"x-max-length": 1})
    client.raw(publishes("q", b"1", b"2", b"3", b"4", delivery_mode=2))
    again, count = revived(bench.sync())
    assert count == 3
    assert bodies(again, "q") == [b"3", b"4"]
    assert bodies(again, "grave") == [b"2"]
    reader = again.connect()
    reader.publish("q", b"5")
    assert bodies(again, "q") == [b"4", b"5"]


def test_octets_are_counted_after_a_restart(bench: Bench, client: Client) -> None:
    arguments = {"x-max-length-bytes": 10, "x-overflow": "reject-publish"}
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=arguments)
    client.raw(publishes("q", b"x" * 8, delivery_mode=2))
    again, _ = revived(bench.sync())
    reader = again.connect()
    reader.raw(publishes("q", b"y" * 3, b"z" * 2))
    assert bodies(again, "q") == [b"x" * 8, b"z" * 2]


def test_a_queue_with_limits_delivers_between_the_messages_of_a_turn(bench: Bench, client: Client) -> None:
    """As if each had come alone: what a consumer may take is not dropped, what exceeds its prefetch is."""
    client.queue("q", arguments={"x-max-length": 2})
    client.call(1, grammar.BASIC_QOS, prefetch_count=3)
    client.send(1, grammar.BASIC_CONSUME, queue="q")
    client.frames()
    client.raw(publishes("q", *[b"%d" % number for number in range(9)]))
    assert client.bodies() == [b"0", b"1", b"2"]
    assert bodies(bench, "q") == [b"7", b"8"]


def test_room_made_in_the_same_turn_counts(bench: Bench, client: Client) -> None:
    client.queue("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.call(1, grammar.CONFIRM_SELECT)
    client.call(1, grammar.BASIC_QOS, prefetch_count=1)
    client.send(1, grammar.BASIC_CONSUME, queue="q")
    client.raw(publishes("q", b"1", b"2", b"3"))
    assert words(client) == [("basic.ack", 2, True), ("basic.nack", 3, False)]
    client.raw(method_frame(1, grammar.BASIC_ACK, delivery_tag=1) + publishes("q", b"4"))
    assert words(client) == [("basic.ack", 4, False)]
    assert bodies(bench, "q") == [b"4"]


def test_the_limit_holds_behind_each_method_of_a_turn(bench: Bench, client: Client) -> None:
    """A declaration behind a requeue in the same read must not report more messages than the limit allows."""
    client.queue("q", arguments={"x-max-length": 1})
    client.publish("q", b"1")
    client.send(1, grammar.BASIC_GET, queue="q")
    client.publish("q", b"2")
    client.frames()
    client.raw(
        method_frame(1, grammar.BASIC_REJECT, delivery_tag=1, requeue=True)
        + method_frame(1, grammar.QUEUE_DECLARE, queue="q", passive=True)
    )
    assert client.methods()[-1].number("message_count") == 1
    assert bodies(bench, "q") == [b"2"]


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish-dlx"])
def test_a_long_chain_of_full_queues(bench: Bench, client: Client, overflow: str) -> None:
    """Each drops into the next one; the call stack does not grow with their number."""
    names = [f"q{number}" for number in range(200)]
    for name, following in zip(names, [*names[1:], "last"], strict=True):
        arguments = {"x-max-length": 0, "x-overflow": overflow, "x-dead-letter-exchange": "",
                     "x-dead-letter-routing-key": following}
        client.send(1, grammar.QUEUE_DECLARE, queue=name, arguments=arguments)
    client.send(1, grammar.QUEUE_DECLARE, queue="last")
    client.publish("q0", b"through")
    assert bodies(bench, "last") == [b"through"]


def test_discards_are_told_once_for_each_queue_and_reason(bench: Bench, client: Client) -> None:
    told: list[str] = []
    bench.broker.on_event = told.append
    for name in ("a", "b"):
        client.queue(name, arguments={"x-max-length": 0, "x-dead-letter-exchange": "missing"})
        client.raw(publishes(name, b"1", b"2", b"3"))
    assert [text.split(" (")[0] for text in told] == [
        f"queue '{name}' in vhost '/': dead letter exchange missing: the message is dropped" for name in ("a", "b")
    ]
    assert bench.broker.vhosts["/"].discards == {"dead letter exchange missing": 6}


def test_blind_copies_outlive_a_restart(bench: Bench, client: Client) -> None:
    """Dead lettering sends to them again, and no consumer sees them."""
    client.send(1, grammar.QUEUE_DECLARE, queue="blind", durable=True)
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments={"x-dead-letter-exchange": ""})
    client.publish("q", b"x", delivery_mode=2, headers={"BCC": ["blind"]})
    again, count = revived(bench.sync())
    assert count == 2
    reader = again.connect()
    reader.send(1, grammar.BASIC_GET, queue="blind", no_ack=True)
    reader.send(1, grammar.BASIC_CONSUME, queue="q")
    reader.send(1, grammar.BASIC_REJECT, delivery_tag=2, requeue=False)
    reader.send(1, grammar.BASIC_GET, queue="blind", no_ack=True)
    frames = reader.frames()
    assert [frame.payload for frame in frames if frame.kind == 3] == [b"x"] * 4  # the dead letter goes to both again
    headers = [decode_header(frame.payload)[0].headers or {} for frame in frames if frame.kind == 2]
    assert ["x-death" in each for each in headers] == [False, False, True, True]
    assert not any("BCC" in each for each in headers)


def test_many_blind_copies(bench: Bench, client: Client) -> None:
    """There are more keys than a journal record can name; each gets its copy."""
    client.send(1, grammar.QUEUE_DECLARE, queue="last", durable=True)
    keys = [f"{number:0255d}" for number in range(400)]
    client.publish("none", b"x", delivery_mode=2, headers={"BCC": [*keys, "last"]})
    again, count = revived(bench.sync())
    assert count == 1
    assert bodies(again, "last") == [b"x"]


def test_returned_messages_keep_their_count_over_the_turns(bench: Bench, client: Client) -> None:
    arguments = {"x-delivery-limit": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
    client.queue("grave")
    client.queue("q", arguments=arguments)
    client.raw(publishes("q", b"1", b"2", b"3"))
    for turn in range(2):
        for _ in range(3):
            client.send(1, grammar.BASIC_GET, queue="q")
        client.frames()
        client.send(1, grammar.BASIC_NACK, delivery_tag=0, multiple=True, requeue=True)
        assert bodies(bench, "q") == ([b"1", b"2", b"3"] if turn == 0 else [])
    assert bodies(bench, "grave") == [b"1", b"2", b"3"]
    queue = bench.broker.vhosts["/"].queues["q"]
    assert (int(queue.unacked), int(queue.count())) == (0, 0)


@pytest.mark.parametrize("limit", [None, -1])
def test_without_a_delivery_limit_messages_come_back_as_they_are(client: Client, limit: int | None) -> None:
    client.queue("q", arguments={} if limit is None else {"x-delivery-limit": limit})
    client.publish("q", b"x")
    for tag in range(1, 20):
        client.send(1, grammar.BASIC_GET, queue="q")
        header, body = [frame.payload for frame in client.frames() if frame.kind > 1]
        assert (decode_header(header)[0].headers, body) == (None, b"x")
        client.send(1, grammar.BASIC_REJECT, delivery_tag=tag, requeue=True)


def with_headers(raw: bytes) -> bytes:
    """Return a content with these octets as headers."""
    header = encode_header(Properties(), 1)
    header = header[:12] + (1 << 13).to_bytes(2, "big") + len(raw).to_bytes(4, "big") + raw
    return content_frames(1, header, b"x", 131072)


def keep(bench: Bench, content: bytes) -> None:
    """Put a message into "q" that is refused today, but may be in an old journal."""
    queue = bench.broker.vhosts["/"].queues["q"]
    queue.message_list.enqueue(content, b"\0\1q", 0, queue.expiry(bench.now_us, -1))
    bench.broker.end_turn(bench.now_us)


@pytest.mark.parametrize("raw", [
    b"\x05a", b"\x01a", b"\x01aS\x00\x00\x00\x09x", b"\x01a?", b"\x01aI\x00", b"\x01aS\xff",
    b"\x01aF\x00\x00\x00\x02\x05b", b"\x01aA\x00\x00\x00\x06F\x00\x00\x00\x01\x01", b"\x01aA\x00\x00\x00\x01?",
    b"\x01a" + b"A\x00\x00\x00\x05" * 100,
])
def test_malformed_headers_are_refused(client: Client, raw: bytes) -> None:
    client.queue("q")
    client.raw(method_frame(1, grammar.BASIC_PUBLISH, routing_key="q") + with_headers(raw))
    (close,) = client.methods()
    assert (close.name, close.number("reply_code")) == ("connection.close", 502)


def test_malformed_headers_are_no_dead_letters(bench: Bench, client: Client) -> None:
    """Nothing can be added to them."""
    told: list[str] = []
    bench.broker.on_event = told.append
    arguments = {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
    client.queue("grave")
    client.queue("q", arguments=arguments)
    keep(bench, with_headers(b"\x01aF\x00\x00\x00\x02\x05b"))
    client.raw(publishes("q", b"sound"))
    bench.pass_time(1_000)
    assert bodies(bench, "q") == []
    assert bodies(bench, "grave") == [b"sound"]
    text = "queue 'q' in vhost '/': dead letter with malformed headers: the message is dropped"
    assert told == [f"{text} (logged once; all are counted)"]


def test_malformed_headers_come_back_without_a_count(bench: Bench, client: Client) -> None:
    client.queue("q", arguments={"x-delivery-limit": 5})
    keep(bench, with_headers(b"\x01aF\x00\x00\x00\x02\x05b"))
    for tag in (1, 2):
        client.send(1, grammar.BASIC_GET, queue="q")
        client.send(1, grammar.BASIC_REJECT, delivery_tag=tag, requeue=True)
    assert [method.name for method in client.methods()] == ["basic.get-ok"] * 2


def test_octets_count_down_with_each_message(client: Client) -> None:
    client.queue("q", arguments={"x-max-length-bytes": 8, "x-overflow": "reject-publish"})
    client.call(1, grammar.CONFIRM_SELECT)
    client.raw(publishes("q", b"1234", b"5678"))
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    client.frames()
    client.raw(publishes("q", b"abcd"))
    assert words(client) == [("basic.ack", 3, False)]


def test_a_message_without_time_to_live_takes_no_room_from_the_next_in_its_turn(bench: Bench, client: Client) -> None:
    client.queue("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.call(1, grammar.CONFIRM_SELECT)
    client.raw(publishes("q", b"brief", expiration="0") + publishes("q", b"next"))
    assert words(client) == [("basic.ack", 2, True)]
    assert bodies(bench, "q") == [b"next"]
