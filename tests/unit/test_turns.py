"""Pipelined methods: queues deliver published messages before the next method is answered."""

from __future__ import annotations

import pytest

from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, decode_header, encode_header

from .support import Bench, Client

PUBLISH = method_frame(1, grammar.BASIC_PUBLISH, exchange="", routing_key="q") + content_frames(
    1, encode_header(Properties(), 1), b"x", 131072
)


def consumed(prefetch: int = 0) -> Client:
    """Return a client that consumes from queue q."""
    client = Bench().connect()
    client.queue("q")
    client.call(1, grammar.BASIC_QOS, prefetch_count=prefetch)
    client.call(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
    return client


def said(client: Client, after: bytes) -> list[str]:
    client.raw(PUBLISH + after)
    return [method.name for method in client.methods()]


def test_a_message_goes_to_the_consumer_before_it_can_be_fetched() -> None:
    assert said(consumed(), method_frame(1, grammar.BASIC_GET, queue="q")) == ["basic.deliver", "basic.get-empty"]


@pytest.mark.parametrize("size", [1, 100_000])
def test_what_comes_with_a_consumer_does_not_overtake_what_waits(size: int) -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q")
    first, second = (client.encoded("q", bytes([number]) * size) for number in (1, 2))
    client.raw(first + first)
    client.raw(method_frame(1, grammar.BASIC_CONSUME, queue="q", no_ack=True) + second + second + second)
    assert [body[0] for body in client.bodies()] == [1, 1, 2, 2, 2]


def test_what_is_delivered_is_neither_counted_nor_purged() -> None:
    client = consumed()
    client.raw(PUBLISH + method_frame(1, grammar.QUEUE_DECLARE, queue="q", passive=True))
    assert client.methods()[-1].number("message_count") == 0
    client.raw(PUBLISH + method_frame(1, grammar.QUEUE_PURGE, queue="q"))
    assert client.methods()[-1].number("message_count") == 0


def test_a_consumer_that_is_cancelled_gets_what_came_before() -> None:
    cancel = method_frame(1, grammar.BASIC_CANCEL, consumer_tag="c")
    assert said(consumed(), cancel) == ["basic.deliver", "basic.cancel-ok"]


def test_an_acknowledgement_makes_room_before_the_next_question() -> None:
    client = consumed(prefetch=1)
    client.raw(PUBLISH + PUBLISH)
    assert [method.name for method in client.methods()] == ["basic.deliver"]
    ack = method_frame(1, grammar.BASIC_ACK, delivery_tag=1)
    client.raw(ack + method_frame(1, grammar.BASIC_GET, queue="q"))
    assert [method.name for method in client.methods()] == ["basic.deliver", "basic.get-empty"]


def test_what_was_delivered_to_a_closing_channel_comes_back_as_redelivered() -> None:
    client = consumed()
    assert said(client, method_frame(1, grammar.CHANNEL_CLOSE)) == ["basic.deliver", "channel.close-ok"]
    client.call(2, grammar.CHANNEL_OPEN)
    client.send(2, grammar.BASIC_GET, queue="q")
    assert client.methods()[-1].flag("redelivered")


def test_a_lost_connection_gives_nothing_from_one_channel_to_the_next() -> None:
    client = Bench().connect()
    client.queue("q", arguments={"x-delivery-limit": 5})
    for channel in (1, 2):
        if channel == 2:
            client.call(2, grammar.CHANNEL_OPEN)
        client.call(channel, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
    client.raw(PUBLISH)
    client.peer.lost(client.bench.now_us)
    other = client.bench.connect()
    other.send(1, grammar.BASIC_GET, queue="q")
    header = next(frame.payload for frame in other.frames() if frame.kind == 2)
    headers = decode_header(header)[0].headers
    assert headers is not None
    assert headers["x-delivery-count"] == 1


def test_what_goes_to_thousands_of_queues_is_handled_in_several_turns() -> None:
    client = Bench().connect()
    for number in range(2000):
        client.raw(method_frame(1, grammar.QUEUE_DECLARE, queue=str(number), no_wait=True))
        client.raw(method_frame(1, grammar.QUEUE_BIND, queue=str(number), exchange="amq.fanout", no_wait=True))
    method = method_frame(1, grammar.BASIC_PUBLISH, exchange="amq.fanout", routing_key="q")
    bodies = [b"%d" % number * (1 + number % 2) for number in range(100)]  # no message batches
    said = b"".join(method + content_frames(1, encode_header(Properties(), len(body)), body, 131072) for body in bodies)
    queue = client.bench.broker.vhosts["/"].queues["7"]
    client.raw(said + method_frame(1, grammar.QUEUE_DECLARE, queue="7", passive=True))
    turns = [int(queue.count())]
    while client.peer.has_more:
        client.raw(b"")
        turns.append(int(queue.count()))
    assert len(turns) > 5
    assert sorted(set(turns)) == turns
    assert client.methods()[-1].number("message_count") == len(bodies)
    waiting = zip(queue.in_memory(), bodies, strict=True)
    assert [entry.content.endswith(body + b"\xce") for entry, body in waiting] == [True] * 100
