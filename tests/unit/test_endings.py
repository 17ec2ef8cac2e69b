"""Every way in which a channel or a connection can end, whatever it was doing, frees all that it had at once.

The garbage collector is off in a broker, so no reference cycle may be left, nor the octets of an incomplete message.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from leveret.session import lifecycle
from leveret.session.assembly import Assembly
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header

from .stages import abort, attach
from .support import SECOND_US, STREAM, Bench, Client

FRAME_MAX = 131072
BODY_OCTETS = 300_000
ROUNDS = 3
DAY_US = 24 * 3600 * SECOND_US


def upload(key: str = "q", size: int = BODY_OCTETS, frame_max: int = 20_000) -> bytes:
    """Return the frames of a publish."""
    method = method_frame(1, grammar.BASIC_PUBLISH, routing_key=key)
    return method + content_frames(1, encode_header(Properties(), size), bytes(size), frame_max)


def waits_for_a_content(client: Client) -> None:
    client.raw(upload()[:40])


def has_sent_a_part_of_a_small_message(client: Client) -> None:
    client.raw(upload(size=4000)[:3000])


def has_sent_whole_frames(client: Client) -> None:
    data = upload()
    client.raw(data[: data.index(b"\xce\x03\x00\x01", 200_000) + 1])
    assert client.peer._assembly is None


def has_sent_a_part_of_a_frame(client: Client) -> None:
    data = upload(frame_max=FRAME_MAX)
    client.raw(data[:200_000])
    assert client.peer._assembly is not None


def has_sent_it_in_small_reads(client: Client) -> None:
    data = upload()[:250_000]
    for at in range(0, len(data), 10_000):
        client.raw(data[at : at + 10_000])


def is_blocked(client: Client) -> None:
    client.bench.broker.block_reason = "memory"
    client.raw(upload()[:250_000])
    assert client.peer.is_blocked


def is_blocked_in_the_middle(client: Client) -> None:
    client.raw(upload(frame_max=FRAME_MAX)[:100_000])
    client.bench.broker.block_reason = "memory"
    client.raw(upload(frame_max=FRAME_MAX)[100_000:250_000])
    assert client.peer.is_blocked


def consumes(client: Client) -> None:
    client.raw(client.encoded("q") * 5 + client.encoded("q", b"another"))
    client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
    assert len(client.bodies()) == 6


def consumes_with_a_limit(client: Client) -> None:
    client.send(1, grammar.BASIC_QOS, prefetch_count=2)
    for tag in "ab":
        client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag=tag, arguments={"x-priority": ord(tag)})
    client.raw(client.encoded("q") * 9)
    assert len(client.bodies()) == 4


def has_fetched(client: Client) -> None:
    client.publish("q")
    client.send(1, grammar.BASIC_GET, queue="q")
    assert client.bodies() == [b"x"]


def gives_back_and_fetches_again(client: Client) -> None:
    has_fetched(client)
    client.send(1, grammar.BASIC_NACK, delivery_tag=1, requeue=True)
    client.send(1, grammar.BASIC_GET, queue="q")


def leaves_a_transaction(client: Client) -> None:
    client.publish("q")
    client.send(1, grammar.TX_SELECT)
    client.raw(upload())
    client.send(1, grammar.BASIC_GET, queue="q")
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)


def waits_for_a_confirm(client: Client) -> None:
    client.send(1, grammar.CONFIRM_SELECT)
    client.publish("q", bytes(BODY_OCTETS), delivery_mode=2)


def asks_by_direct_reply(client: Client) -> None:
    client.send(1, grammar.BASIC_CONSUME, queue="amq.rabbitmq.reply-to", no_ack=True)
    client.publish("q", reply_to="amq.rabbitmq.reply-to")


def reads_a_stream(client: Client) -> None:
    client.send(1, grammar.BASIC_QOS, prefetch_count=10)
    client.send(1, grammar.BASIC_CONSUME, queue="s", arguments={"x-stream-offset": "first"})
    assert client.bodies()


def has_a_queue_of_its_own(client: Client) -> None:
    client.send(1, grammar.QUEUE_DECLARE, queue="own", exclusive=True, arguments={"x-max-priority": 3})
    client.send(1, grammar.QUEUE_BIND, queue="own", exchange="amq.topic", routing_key="a.*")
    client.publish("own", bytes(BODY_OCTETS), priority=2)
    client.send(1, grammar.BASIC_CONSUME, queue="own")
    client.publish("own", bytes(BODY_OCTETS))


def does_not_read_what_it_gets(client: Client) -> None:
    client.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    client.raw(upload() * 3)


def waits_for_the_disk(client: Client) -> None:
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    client.publish("q", bytes(BODY_OCTETS), delivery_mode=2)
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    client.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)


def stages(client: Client) -> None:
    attach(client, 1, "a")
    client.raw(upload())
    client.raw(upload()[:250_000])


DOING = [
    waits_for_a_content, has_sent_a_part_of_a_small_message, has_sent_whole_frames, has_sent_a_part_of_a_frame,
    has_sent_it_in_small_reads, is_blocked, is_blocked_in_the_middle, consumes, consumes_with_a_limit, has_fetched,
    gives_back_and_fetches_again, leaves_a_transaction, waits_for_a_confirm, asks_by_direct_reply, reads_a_stream,
    has_a_queue_of_its_own, does_not_read_what_it_gets, waits_for_the_disk, stages,
]  # fmt: skip


def is_lost(client: Client) -> None:
    """Cut: the socket is gone, the client was silent for too long or too slow, or the broker stops."""


def closes(client: Client) -> None:
    client.send(0, grammar.CONNECTION_CLOSE)


def closes_its_channel(client: Client) -> None:
    client.send(1, grammar.CHANNEL_CLOSE)  # a violation, in the middle of a content


def closes_its_channel_and_opens_another(client: Client) -> None:
    client.raw(method_frame(1, grammar.CHANNEL_CLOSE) + method_frame(1, grammar.CHANNEL_OPEN))


def makes_a_mistake(client: Client) -> None:
    client.send(1, grammar.QUEUE_DECLARE, queue="missing", passive=True)
    client.send(1, grammar.CHANNEL_CLOSE_OK)


def breaks_the_protocol(client: Client) -> None:
    client.raw(b"\x09" * 8)


def is_silenced(client: Client) -> None:
    """For example by the timeout of its acknowledgements."""
    if 1 in client.peer.channels:
        client.peer.close_channel(client.peer.channels[1], 406, "enough")


def is_closed_by_an_operator(client: Client) -> None:
    client.peer.close(320, "enough")


def is_closed_and_says_so(client: Client) -> None:
    client.peer.close(320, "enough")
    client.send(0, grammar.CONNECTION_CLOSE_OK)


def loses_its_queue(client: Client) -> None:
    for name in ("q", "own"):
        queue = client.bench.broker.vhosts["/"].queues.get(name)
        if queue is not None:
            client.bench.broker.vhosts["/"].delete_queue(queue)


ENDINGS = [
    is_lost, closes, closes_its_channel, closes_its_channel_and_opens_another, makes_a_mistake, breaks_the_protocol,
    is_silenced, is_closed_by_an_operator, is_closed_and_says_so, loses_its_queue,
]  # fmt: skip


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    client = bench.connect()
    client.queue("s", durable=True, arguments=STREAM)
    client.publish("s", delivery_mode=2)
    end(client)
    gc.collect()
    gc.disable()
    yield bench
    gc.enable()


def end(client: Client) -> None:
    """Close the socket, and let the broker finish its work."""
    broker = client.bench.broker
    broker.block_reason = ""
    client.peer.lost(client.bench.now_us)
    settle(client.bench)


def settle(bench: Bench) -> None:
    broker = bench.broker
    while broker.requeue_jobs.is_busy:
        broker.requeue_step(bench.now_us)
    bench.sync()
    bench.batches.clear()
    broker.dirty.clear()


def one_life(bench: Bench, doing: Callable[[Client], None], ending: Callable[[Client], None]) -> None:
    operator = bench.connect()
    operator.queue("q", durable=True)
    client = bench.connect()
    doing(client)
    ending(client)
    end(client)
    operator.send(1, grammar.CONFIRM_SELECT)
    abort(operator, 1)
    operator.send(1, grammar.QUEUE_DELETE, queue="q")
    end(operator)
    bench.pass_time(DAY_US)  # deleted objects stay until their timers run


def alive() -> Counter[str]:
    """Count leveret's objects by class, and memoryviews, which refer to data that was read."""
    kinds = (type(each) for each in gc.get_objects())
    return Counter(each.__name__ for each in kinds if each is memoryview or str(each.__module__).startswith("leveret."))


def grown(bench: Bench, doing: Callable[[Client], None], endings: list[Callable[[Client], None]]) -> dict[str, int]:
    """Return what each of the ROUNDS adds: objects by class, and octets, if they are many."""
    for ending in endings:
        one_life(bench, doing, ending)  # from here on, what is made only once exists
    before = alive()
    tracemalloc.start()
    for _ in range(ROUNDS):
        for ending in endings:
            one_life(bench, doing, ending)
    octets, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    left = alive()
    left.subtract(before)
    found = {kind: count for kind, count in left.items() if count >= ROUNDS}
    return found | ({"octets": octets} if octets > BODY_OCTETS // 3 else {})


@pytest.mark.parametrize("doing", DOING, ids=lambda each: each.__name__)
def test_nothing_is_left_of_a_channel_or_connection_however_it_ends(
    bench: Bench, doing: Callable[[Client], None]
) -> None:
    if grown(bench, doing, ENDINGS):
        assert {ending.__name__: grown(bench, doing, [ending]) for ending in ENDINGS} == {}


def held(assembly: Assembly) -> int:
    return sum(len(piece) for piece in assembly.pieces)


@pytest.mark.parametrize("whole", [True, False], ids=["between frames", "in a frame"])
def test_a_content_that_nobody_waits_for_is_given_up_while_its_connection_goes_on(whole: bool) -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q")
    data = upload(frame_max=40_000)
    seam = 280_000 if not whole else data.index(b"\xce\x03\x00\x01", 200_000) + 1
    client.raw(data[:seam])
    assembly = client.peer.channels[1].assembly
    assert assembly is not None
    assert held(assembly) > 200_000
    client.peer.close_channel(client.peer.channels[1], 406, "enough")
    assert held(assembly) < 40_000
    client.raw(data[seam:] + method_frame(1, grammar.CHANNEL_CLOSE_OK) + method_frame(1, grammar.CHANNEL_OPEN))
    assert [method.name for method in client.methods()] == ["channel.close", "channel.open-ok"]
    client.raw(upload())
    assert bench.broker.vhosts["/"].queues["q"].count() == 1


@pytest.mark.parametrize("doing", [is_blocked, is_blocked_in_the_middle], ids=lambda each: each.__name__)
def test_the_last_word_of_a_connection_that_is_closed_while_it_is_blocked_is_understood(
    doing: Callable[[Client], None],
) -> None:
    bench = Bench()
    client = bench.connect()
    doing(client)
    client.peer.close(320, "enough")
    data = upload() if doing is is_blocked else upload(frame_max=FRAME_MAX)
    client.raw(data[250_000:] + method_frame(0, grammar.CONNECTION_CLOSE_OK))
    assert client.peer.state == lifecycle.CLOSED
