"""Commands that list and forget a stream's consumer names."""

from __future__ import annotations

import pytest

from leveret.broker.streams.stream import Stream
from leveret.control.refusal import BAD_REQUEST, NOT_FOUND
from leveret.wire import grammar

from .support import recovered
from .test_object_commands import Operator


@pytest.fixture
def operator() -> Operator:
    operator = Operator()
    operator.bench.batches.append(b"".join(operator.bench.broker.snapshot()))
    operator.do("declare_queue", name="s", durable=True, arguments={"x-queue-type": "stream"})
    publisher = operator.bench.connect()
    for sequence in (3, 7, 9):
        headers = {"x-leveret-publisher": "p", "x-leveret-sequence": sequence}
        publisher.publish("s", headers=headers)
    operator.bench.sync()
    consumer = operator.bench.connect()
    consumer.call(1, grammar.BASIC_QOS, prefetch_count=10)
    for tag in ("one", "two"):
        arguments = {"x-leveret-consumer": "c", "x-single-active-consumer": True, "x-stream-offset": "first"}
        consumer.call(1, grammar.BASIC_CONSUME, queue="s", consumer_tag=tag, arguments=arguments)
    consumer.send(1, grammar.BASIC_ACK, delivery_tag=1)
    operator.bench.sync()
    return operator


CONSUMER = {"type": "offset", "name": "c", "tracking_value": 1, "lag": 2, "is_consuming": True}
PUBLISHER = {"type": "writer", "name": "p", "tracking_value": 9, "lag": None, "is_consuming": None}


def test_listed(operator: Operator) -> None:
    assert operator.do("list_stream_tracking", stream="s") == [CONSUMER, PUBLISHER]
    assert operator.do("list_stream_tracking", stream="s", offset=True) == [CONSUMER]
    assert operator.do("list_stream_tracking", stream="s", writer=True) == [PUBLISHER]
    assert operator.do("list_stream_tracking", stream="s", writer=True, offset=True) == [CONSUMER, PUBLISHER]


def test_forgotten(operator: Operator) -> None:
    operator.do("forget_stream_tracking", stream="s", name="p", writer=True)
    assert operator.do("list_stream_tracking", stream="s") == [CONSUMER]
    operator.do("forget_stream_tracking", stream="s", name="c")
    operator.bench.sync()
    stream = recovered(operator.bench.batches).broker.vhosts["/"].queues["s"]
    assert isinstance(stream, Stream)
    assert (stream.offsets.table(), stream.sequences.table()) == ({}, {})


@pytest.mark.parametrize("command", ["list_stream_tracking", "forget_stream_tracking"])
def test_what_is_no_stream(operator: Operator, command: str) -> None:
    more = {"name": "c"} if command == "forget_stream_tracking" else {}
    assert operator.refusal(command, stream="q", **more) == (BAD_REQUEST, "queue 'q' in vhost '/' is not a stream")
    assert operator.refusal(command, stream="none", **more) == (NOT_FOUND, "no stream 'none' in vhost '/'")


def test_who_is_not_known(operator: Operator) -> None:
    stream = "queue 's' in vhost '/'"
    refused = operator.refusal("forget_stream_tracking", stream="s", name="p")
    assert refused == (NOT_FOUND, f"{stream} has no consumer 'p'")
    refused = operator.refusal("forget_stream_tracking", stream="s", name="c", writer=True)
    assert refused == (NOT_FOUND, f"{stream} has no publisher 'c'")
