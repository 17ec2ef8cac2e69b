"""Turning the firehose on and off: cached routes of many messages are not used while it is on."""

from __future__ import annotations

import pytest

from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, decode_header, encode_header
from leveret.wire.table import Value

from .support import Bench, Client


@pytest.fixture
def bench() -> Bench:
    return Bench()


def listening(bench: Bench) -> Client:
    """Return a client that consumes the firehose's messages."""
    client = bench.connect()
    client.queue("told", exclusive=True)
    client.send(1, grammar.QUEUE_BIND, queue="told", exchange="amq.rabbitmq.trace", routing_key="#")
    client.send(1, grammar.BASIC_CONSUME, queue="told", no_ack=True)
    client.frames()
    return client


def keys(client: Client) -> list[str]:
    return [method.text("routing_key") for method in client.methods()]


def alike(client: Client, count: int) -> None:
    """Publish messages that differ only in their bodies, in one read."""
    method = method_frame(1, grammar.BASIC_PUBLISH, routing_key="q")
    header = encode_header(Properties(), 1)
    client.raw(b"".join(method + content_frames(1, header, b"%d" % n, 4096) for n in range(count)))


@pytest.mark.parametrize("no_ack", [False, True])
def test_it_can_be_turned_on_and_off_under_way(bench: Bench, no_ack: bool) -> None:
    client, witness = bench.connect(), listening(bench)
    client.queue("q")
    client.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=no_ack)
    alike(client, 3)
    assert keys(witness) == []
    for _ in range(2):
        bench.broker.trace("/", True)
        alike(client, 3)
        assert keys(witness) == ["publish."] * 3 + ["deliver.q"] * 3
        bench.broker.trace("/", False)
        alike(client, 3)
        assert keys(witness) == []
    client.frames()
    assert client.peer.channels[1].next_tag == 16


def test_a_dead_letter_that_somebody_waits_for_is_told(bench: Bench) -> None:
    client, witness = bench.connect(), listening(bench)
    client.queue("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.queue("dead")
    client.send(1, grammar.BASIC_CONSUME, queue="dead", no_ack=True)
    client.publish("q")
    bench.broker.trace("/", True)
    client.send(1, grammar.BASIC_GET, queue="q")
    client.send(1, grammar.BASIC_REJECT, delivery_tag=1, requeue=False)
    assert keys(witness) == ["deliver.q", "deliver.dead"]


def test_messages_that_waited_are_told_when_they_are_delivered(bench: Bench) -> None:
    client, witness = bench.connect(), listening(bench)
    client.queue("q")
    client.send(1, grammar.BASIC_QOS, prefetch_count=1)
    client.send(1, grammar.BASIC_CONSUME, queue="q")
    alike(client, 3)
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    bench.broker.trace("/", True)
    client.send(1, grammar.BASIC_ACK, delivery_tag=2)
    assert keys(witness) == ["deliver.q"]


def test_messages_of_a_run_that_waits_are_told_one_by_one(bench: Bench) -> None:
    client, witness = bench.connect(), listening(bench)
    client.queue("q")
    alike(client, 4)
    bench.broker.trace("/", True)
    client.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    bodies = [frame.payload for frame in witness.frames() if frame.kind == 3]
    assert bodies == [b"0", b"1", b"2", b"3"]


def test_a_full_witness_gets_no_more_than_its_limit(bench: Bench) -> None:
    """A queue with a limit delivers and trims around each traced message."""
    client = bench.connect()
    client.queue("told", arguments={"x-max-length": 2})
    client.send(1, grammar.QUEUE_BIND, queue="told", exchange="amq.rabbitmq.trace", routing_key="publish.#")
    bench.broker.trace("/", True)
    alike(client, 5)
    assert client.call(1, grammar.QUEUE_DECLARE, queue="told", passive=True).number("message_count") == 2


def test_malformed_headers_are_left_out(bench: Bench) -> None:
    """A journal of an older version may contain such headers; a consumer could not decode them."""
    client, witness = bench.connect(), listening(bench)
    client.queue("q")
    header = encode_header(Properties(headers={"a": {"b": 1}}), 0).replace(b"\x01bI", b"\x01bZ")
    bench.broker.vhosts["/"].queues["q"].message_list.enqueue(content_frames(1, header, b"", 4096), b"\0\x01q", 0, 0)
    bench.broker.trace("/", True)
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    (told,) = [decode_header(frame.payload)[0].headers for frame in witness.frames() if frame.kind == 2]
    assert told is not None
    assert told["properties"] == {}


def test_there_is_no_such_virtual_host(bench: Bench) -> None:
    with pytest.raises(KeyError):
        bench.broker.trace("nope", True)


def test_what_a_delayed_exchange_holds_is_on_its_way_to_no_queue_yet(bench: Bench) -> None:
    client, witness = bench.connect(), listening(bench)
    client.queue("q")
    client.send(
        1, grammar.EXCHANGE_DECLARE, exchange="d", type="x-delayed-message", arguments={"x-delayed-type": "fanout"}
    )
    client.send(1, grammar.QUEUE_BIND, queue="q", exchange="d")
    bench.broker.trace("/", True)
    client.publish("", exchange="d", headers={"x-delay": 1000})
    client.publish("", exchange="d", headers={"x-delay": 0})
    told = [decode_header(frame.payload)[0].headers or {} for frame in witness.frames() if frame.kind == 2]
    assert [headers["routed_queues"] for headers in told] == [[], ["q"]]


# -- beyond RabbitMQ ---------------------------------------------------------------------------------------------------


def audited(bench: Bench, key: str = "#") -> Client:
    """Return a client that consumes audited events, which have more headers."""
    client = bench.connect()
    client.queue("audited", exclusive=True)
    binding = {"queue": "audited", "exchange": "amq.rabbitmq.trace", "routing_key": key}
    client.send(1, grammar.QUEUE_BIND, **binding, arguments={"x-leveret-audit": True})
    client.send(1, grammar.BASIC_CONSUME, queue="audited", no_ack=True)
    client.frames()
    bench.broker.trace("/", True)
    return client


def told_headers(client: Client) -> list[dict[str, Value]]:
    return [decode_header(frame.payload)[0].headers or {} for frame in client.frames() if frame.kind == 2]


def stretches(headers: list[dict[str, Value]]) -> list[tuple[Value, Value]]:
    return [(each["first_seq_no"], each["last_seq_no"]) for each in headers if "first_seq_no" in each]


def test_confirms_are_told_when_they_are_written(bench: Bench) -> None:
    witness = audited(bench, "confirm.*")
    client = bench.connect()
    client.queue("q", durable=True)
    client.send(1, grammar.CONFIRM_SELECT)
    for _ in range(3):
        client.publish("q", delivery_mode=2)
    client.publish("q")
    assert stretches(told_headers(witness)) == [(4, 4)]
    bench.sync()
    assert bench.broker.log.is_stirred
    bench.broker.end_turn(bench.now_us)
    (headers,) = told_headers(witness)
    assert (headers["first_seq_no"], headers["last_seq_no"], headers["channel"]) == (1, 3, 1)
    assert headers["connection"] == client.peer.name
    bench.broker.end_turn(bench.now_us)
    assert told_headers(witness) == []


def test_a_refusal_is_told_as_one(bench: Bench) -> None:
    witness = audited(bench, "confirm.*")
    client = bench.connect()
    client.queue("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.send(1, grammar.CONFIRM_SELECT)
    client.publish("q")
    client.publish("q")
    assert keys(witness) == ["confirm.ack", "confirm.nack"]


def test_publishes_have_numbers_and_all_has_a_time(bench: Bench) -> None:
    witness = audited(bench)
    client = bench.connect()
    client.queue("q")
    client.publish("q")
    client.send(1, grammar.CONFIRM_SELECT)
    client.publish("q")
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    headers = told_headers(witness)
    assert [each.get("publish_seq_no") for each in headers] == [None, 1, None, None]
    assert {each["timestamp_in_us"] for each in headers} == {int(bench.broker.timeline.wall_us(bench.now_us))}


def test_without_the_argument_it_tells_what_rabbitmq_tells(bench: Bench) -> None:
    """Also after an audit has ended: the numbers that a channel noted for it are dropped."""
    plain, witness = listening(bench), audited(bench)
    client = bench.connect()
    client.send(1, grammar.CONFIRM_SELECT)
    client.publish("nowhere")
    assert {"publish_seq_no", "first_seq_no"} <= {name for each in told_headers(plain) for name in each}
    witness.send(1, grammar.QUEUE_DELETE, queue="audited")
    client.publish("nowhere")
    bare = ["exchange_name", "routing_keys", "properties", "node", "vhost", "connection", "channel", "user"]
    assert [list(each) for each in told_headers(plain)] == [[*bare, "routed_queues"]]
    channel = client.peer.channels[1]
    assert channel.confirms is not None
    assert channel.confirms.told is None
