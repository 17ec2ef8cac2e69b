"""The core without sockets: order, limits, time, confirms. Each test must fail with one mutant of the list."""

from __future__ import annotations

import re

import pytest

from leveret.broker.broker import Settings
from leveret.broker.peer import Peer
from leveret.broker.storage.definitions import GLOBAL_PARAMETER
from leveret.broker.storage.recovery import Recovery
from leveret.session import lifecycle
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER
from leveret.wire.method import method_frame

from .support import SECOND_US, Bench, Client, recovered


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def client(bench: Bench) -> Client:
    return bench.connect()


def consume(client: Client, queue: str, *, no_ack: bool = False, prefetch: int = 0) -> None:
    client.call(1, grammar.BASIC_QOS, prefetch_count=prefetch)
    client.send(1, grammar.BASIC_CONSUME, queue=queue, consumer_tag=f"c-{queue}", no_ack=no_ack)


def get(client: Client, queue: str, *, no_ack: bool = True) -> bytes | None:
    client.send(1, grammar.BASIC_GET, queue=queue, no_ack=no_ack)
    bodies = client.bodies()
    return bodies[0] if bodies else None


def test_confirm_comes_after_the_sync_and_not_before(bench: Bench, client: Client) -> None:
    client.queue("q", durable=True)
    client.call(1, grammar.CONFIRM_SELECT)
    client.publish("q", delivery_mode=2)
    client.publish("q", delivery_mode=2)
    assert client.methods() == []
    bench.sync()
    (ack,) = client.methods()
    assert (ack.name, ack.number("delivery_tag"), ack.flag("multiple")) == ("basic.ack", 2, True)


def test_a_message_behind_the_closed_batch_waits_for_the_next(bench: Bench, client: Client) -> None:
    client.queue("q", durable=True)
    client.call(1, grammar.CONFIRM_SELECT)
    client.publish("q", delivery_mode=2)
    batch = bench.broker.log.batch
    bench.broker.log.close_batch()
    client.publish("q", delivery_mode=2)
    bench.broker.log.on_disk(batch)
    assert [ack.number("delivery_tag") for ack in client.methods()] == [1]
    bench.sync()
    assert [ack.number("delivery_tag") for ack in client.methods()] == [2]


def test_transient_confirms_never_cover_a_pending_tag_and_come_once(bench: Bench, client: Client) -> None:
    client.queue("q", durable=True)
    client.call(1, grammar.CONFIRM_SELECT)
    client.publish("q", delivery_mode=2)
    client.publish("q", delivery_mode=1)
    client.publish("q", delivery_mode=1)
    early = client.methods()
    assert [(ack.number("delivery_tag"), ack.flag("multiple")) for ack in early] == [(2, False), (3, False)]
    bench.sync()
    covered = client.methods()
    assert [(ack.number("delivery_tag"), ack.flag("multiple")) for ack in covered] == [(1, False)]
    client.publish("q", delivery_mode=1)
    last = client.methods()
    assert [(ack.number("delivery_tag"), ack.flag("multiple")) for ack in last] == [(4, False)]


def test_durable_declaration_is_answered_after_its_sync(bench: Bench, client: Client) -> None:
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    client.send(1, grammar.BASIC_QOS, prefetch_count=1)
    assert client.methods() == []
    bench.sync()
    assert [method.name for method in client.methods()] == ["queue.declare-ok", "basic.qos-ok"]


def test_requeue_goes_to_the_original_place(client: Client) -> None:
    client.queue("q")
    for number in range(5):
        client.publish("q", b"%d" % number)
    for _ in range(3):
        get(client, "q", no_ack=False)
    client.send(1, grammar.BASIC_NACK, delivery_tag=3, multiple=True, requeue=True)
    assert [get(client, "q") for _ in range(6)] == [b"0", b"1", b"2", b"3", b"4", None]


def test_prefetch_is_exact(client: Client) -> None:
    client.queue("q")
    consume(client, "q", prefetch=3)
    client.frames()
    for number in range(5):
        client.publish("q", b"%d" % number)
    assert client.bodies() == [b"0", b"1", b"2"]
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    assert client.bodies() == [b"3"]


def test_round_robin(bench: Bench, client: Client) -> None:
    other = bench.connect()
    client.queue("q")
    consume(client, "q", no_ack=True)
    consume(other, "q", no_ack=True)
    client.frames()
    other.frames()
    for number in range(6):
        client.publish("q", b"%d" % number)
    assert (client.bodies(), other.bodies()) == ([b"0", b"2", b"4"], [b"1", b"3", b"5"])


def test_ttl_is_neither_early_nor_late(bench: Bench, client: Client) -> None:
    client.queue("dead")
    arguments = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.queue("q", arguments=arguments)
    client.publish("q")
    bench.pass_time(SECOND_US - 1)
    assert get(client, "dead") is None
    bench.pass_time(1)
    assert get(client, "dead") == b"x"


def test_a_hop_counts_from_when_it_was_due(bench: Bench, client: Client) -> None:
    client.queue("end")
    second = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "end"}
    first = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "second"}
    client.queue("second", arguments=second)
    client.queue("first", arguments=first)
    client.publish("first")
    bench.pass_time(SECOND_US + 400_000)  # late
    bench.pass_time(599_999)
    assert get(client, "end") is None
    bench.pass_time(1)
    assert get(client, "end") == b"x"


def test_reply_goes_to_the_channel_that_asked(bench: Bench, client: Client) -> None:
    other = bench.connect()
    server = bench.connect()
    for each in (client, other):
        each.send(1, grammar.BASIC_CONSUME, queue="amq.rabbitmq.reply-to", no_ack=True)
    server.queue("rpc")
    client.publish("rpc", b"ask", reply_to="amq.rabbitmq.reply-to")
    other.publish("rpc", b"ask too", reply_to="amq.rabbitmq.reply-to")
    client.frames()
    other.frames()
    for answer in (b"to the first", b"to the second"):
        server.send(1, grammar.BASIC_GET, queue="rpc", no_ack=True)
        header = next(frame for frame in server.frames() if frame.kind == 2)
        name = header.payload[15 : 15 + header.payload[14]].decode()
        assert name.startswith("amq.rabbitmq.reply-to.")
        server.publish(name, answer)
    assert (client.bodies(), other.bodies()) == ([b"to the first"], [b"to the second"])


def test_recovery_brings_back_what_is_not_settled(bench: Bench, client: Client) -> None:
    records = [b"".join(bench.broker.log.close_batch())]
    client.send(1, grammar.EXCHANGE_DECLARE, exchange="x", type="topic", durable=True)
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    client.send(1, grammar.QUEUE_BIND, queue="q", exchange="x", routing_key="a.*")
    for number in range(4):
        client.publish("a.b", b"%d" % number, exchange="x", delivery_mode=2)
    client.publish("a.b", b"transient", exchange="x")
    records.append(bench.sync())
    client.frames()
    assert get(client, "q", no_ack=False) == b"0"
    assert get(client, "q", no_ack=False) == b"1"
    client.send(1, grammar.BASIC_ACK, delivery_tag=2)
    records.append(bench.sync())

    again = Bench()
    recovery = Recovery(again.broker, again.now_us)
    for batch in records:
        recovery.batch(batch)
    assert recovery.finish() == 3
    reader = again.connect()
    assert [get(reader, "q") for _ in range(4)] == [b"0", b"2", b"3", None]
    reader.publish("a.c", b"routed", exchange="x")
    assert get(reader, "q") == b"routed"


def test_topic_wildcards(client: Client) -> None:
    client.queue("q")
    client.send(1, grammar.QUEUE_BIND, queue="q", exchange="amq.topic", routing_key="a.*.#.z")
    for key in ("a.b.z", "a.b.c.d.z", "a.z", "a.b.c", "b.b.z"):
        client.publish(key, key.encode(), exchange="amq.topic")
    client.frames()
    assert [get(client, "q") for _ in range(3)] == [b"a.b.z", b"a.b.c.d.z", None]


@pytest.mark.parametrize("interval_s", [1, 2, 5, 60])
def test_a_heartbeat_is_sent_before_half_an_interval_without_output_is_over(bench: Bench, interval_s: int) -> None:
    client = bench.connect()
    client.peer.heartbeat_s = interval_s
    client.peer.sent_us = bench.now_us
    silences = []
    for _ in range(4 * interval_s):
        bench.now_us += SECOND_US
        client.peer.now_us = client.peer.received_us = bench.now_us
        assert client.peer.tick()
        if client.frames():
            silences.append((bench.now_us - client.peer.sent_us) // SECOND_US)
            client.peer.sent_us = bench.now_us
    assert max(silences) <= max(1, interval_s / 2)
    assert interval_s < 5 or min(silences) > 1


def test_both_sides_may_close_at_the_same_time(client: Client) -> None:
    """Each answers the other's close; data behind it is dropped unread."""
    client.queue("q", exclusive=True)
    client.send(1, grammar.CHANNEL_OPEN)
    assert [method.name for method in client.methods()] == ["connection.close"]
    client.publish("q")
    client.send(0, grammar.CONNECTION_CLOSE)
    assert [method.name for method in client.methods()] == ["connection.close-ok"]
    client.send(0, grammar.CONNECTION_CLOSE_OK)
    client.raw(b"anything else")
    assert client.methods() == []
    assert client.peer.channels == {}


def test_a_violation_behind_a_violation_is_not_told(client: Client) -> None:
    client.send(1, grammar.CHANNEL_OPEN)
    client.frames()
    client.raw(b"\x01\x00\x01\xff\xff\xff\xff")
    client.send(1, grammar.CHANNEL_OPEN)
    client.send(0, grammar.QUEUE_DECLARE)
    assert client.methods() == []
    client.send(0, grammar.CONNECTION_CLOSE_OK)
    assert client.peer.state == lifecycle.CLOSED


def test_two_silent_intervals_are_the_end(bench: Bench) -> None:
    client = bench.connect()
    client.peer.heartbeat_s = 10
    client.peer.received_us = bench.now_us
    client.peer.now_us = bench.now_us + 20 * SECOND_US
    assert client.peer.tick()
    client.peer.now_us += 1
    assert not client.peer.tick()
    client.peer.heartbeat_s = 0
    assert client.peer.tick()


def test_a_frame_without_its_end_closes_the_connection(client: Client) -> None:
    select = method_frame(1, grammar.CONFIRM_SELECT)
    client.raw(select[:-1] + b"\x00" + select)
    (close,) = client.methods()
    assert (close.name, close.number("reply_code")) == ("connection.close", 501)


def test_the_purge_of_an_empty_durable_queue_is_answered_though_nothing_is_written(client: Client) -> None:
    client.queue("q", durable=True)
    client.send(1, grammar.QUEUE_PURGE, queue="q")
    assert [method.name for method in client.methods()] == ["queue.purge-ok"]


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        (grammar.QUEUE_DECLARE, {"queue": "q", "durable": True}),
        (grammar.EXCHANGE_DECLARE, {"exchange": "e", "type": "direct", "durable": True}),
        (grammar.QUEUE_BIND, {"queue": "q", "exchange": "e"}),
        (grammar.EXCHANGE_BIND, {"source": "amq.direct", "destination": "e"}),
        (grammar.EXCHANGE_UNBIND, {"source": "amq.direct", "destination": "e"}),
        (grammar.QUEUE_UNBIND, {"queue": "q", "exchange": "e"}),
        (grammar.EXCHANGE_DELETE, {"exchange": "e"}),
        (grammar.QUEUE_DELETE, {"queue": "q"}),
    ],
    ids=lambda value: value.name if isinstance(value, grammar.MethodSpec) else "",
)
def test_who_asks_for_the_same_again_does_not_hear_before_it_is_on_disk(
    spec: grammar.MethodSpec, values: dict[str, object]
) -> None:
    bench = Bench()
    client, other = bench.connect(), bench.connect()
    if spec is not grammar.QUEUE_DECLARE:
        client.queue("q", durable=True)
        client.call(1, grammar.EXCHANGE_DECLARE, exchange="e", type="direct", durable=True)
    if spec not in (grammar.QUEUE_DECLARE, grammar.EXCHANGE_DECLARE):
        client.call(1, grammar.QUEUE_BIND, queue="q", exchange="e")
        client.call(1, grammar.EXCHANGE_BIND, source="amq.direct", destination="e")
    if spec is grammar.EXCHANGE_DECLARE:
        client.call(1, grammar.EXCHANGE_DELETE, exchange="e")
    if spec is grammar.QUEUE_BIND:
        client.call(1, grammar.QUEUE_UNBIND, queue="q", exchange="e")
    if spec is grammar.EXCHANGE_BIND:
        client.call(1, grammar.EXCHANGE_UNBIND, source="amq.direct", destination="e")
    batch = bench.broker.log.batch
    client.send(1, spec, **values)
    bench.broker.log.close_batch()
    other.send(1, spec, **values)
    assert other.methods() == []
    bench.broker.log.on_disk(batch)
    assert [method.name for method in other.methods()] == [f"{spec.name}-ok"]
def test_a_message_beyond_the_configured_size_closes_its_channel() -> None:
    client = Bench(Settings(max_message_octets=1000)).connect()
    client.queue("q")
    client.publish("q", b"x" * 1000)
    for size in (1001, 300_000):
        client.publish("q", b"x" * size)
        (close,) = client.methods()
        assert (close.name, close.number("reply_code")) == ("channel.close", 406)
        assert close.text("reply_text") == (
            f"PRECONDITION_FAILED - message size {size} is larger than configured max size 1000"
        )
        assert (close.number("class_id"), close.number("method_id")) == (60, 40)
        client.send(1, grammar.CHANNEL_CLOSE_OK)
        client.call(1, grammar.CHANNEL_OPEN)
    assert client.call(1, grammar.QUEUE_DECLARE, queue="q", passive=True).number("message_count") == 1


# -- the cluster's name ------------------------------------------------------------------------------------------------


def shown_name(bench: Bench) -> str:
    """Return the cluster name that a client sees."""
    client = Client(bench, Peer(bench.broker, "test:1", True))
    client.raw(PROTOCOL_HEADER)
    return str(client.methods()[0].table("server_properties")["cluster_name"])


def test_each_data_directory_has_a_name_of_its_own_and_keeps_it() -> None:
    batches: list[bytes] = []
    first = recovered(batches)
    first.sync()
    name = shown_name(first)
    assert re.fullmatch("leveret@localhost-[0-9a-f]{8}", name)
    assert shown_name(recovered([], 1000)) != name
    snapshot = b"".join(first.broker.snapshot())
    for journal in (first.batches, [snapshot], [*first.batches, snapshot]):
        assert shown_name(recovered(journal, 1000)) == name
    assert first.broker.server_properties()["cluster_name"] == name


def test_a_data_directory_from_before_gets_its_name_at_the_next_start() -> None:
    """The name is on disk with the first batch, and written only once."""
    old = Bench()
    old.connect().queue("q", durable=True)
    again = recovered(old.batches, 1000)
    batch = again.sync()
    assert shown_name(recovered([*old.batches, batch], 2000)) == shown_name(again)
    third = recovered([*old.batches, batch], 2000)
    assert b"cluster_name" not in third.sync()


def test_the_configured_name_goes_before_that_of_the_directory_and_an_operators_before_both() -> None:
    bench = Bench(Settings(cluster_name="configured"))
    assert shown_name(bench) == "configured"
    bench.broker.definitions.put(GLOBAL_PARAMETER, {"name": "cluster_name", "value": "wanted"})
    assert shown_name(bench) == "wanted"
    bench.sync()
    assert shown_name(recovered(bench.batches)) == "wanted"
    bench.broker.definitions.remove(GLOBAL_PARAMETER, "cluster_name")
    assert shown_name(bench) == "configured"


def test_the_name_is_not_what_makes_a_broker_one_that_has_lived() -> None:
    first = recovered([])
    assert recovered([first.sync()]).broker.is_new
