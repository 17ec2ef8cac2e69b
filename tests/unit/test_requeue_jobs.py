"""Requeue jobs: what clients see while messages are requeued in steps, and what a stop or a crash leaves.

test_work_of_a_turn.py covers the size of a step, the simulation arbitrary interleavings.
"""

from __future__ import annotations

from base64 import b64decode

import pytest

from leveret.broker.methods.basic_methods import REJECTED_MAX
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.frames import Frame
from leveret.wire.method import Method, decode_method, method_frame
from leveret.wire.properties import decode_header
from leveret.wire.table import Value

from .asking import Operator
from .rig import Rig
from .support import SECOND_US, Bench, Client, recovered
from .test_work_of_a_turn import consuming, go_on, queue_of, with_many_that_expire

DEAD: dict[str, Value] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.broker.requeue_jobs.step_max = 2
    return bench


def numbered(client: Client, count: int, queue: str = "q", first: int = 0, mode: int = 1) -> list[bytes]:
    """Publish this many messages of different sizes and return their bodies."""
    bodies = [b"%d" % number + bytes(number % 7) for number in range(first, first + count)]
    client.raw(b"".join(client.encoded(queue, body, delivery_mode=mode) for body in bodies))
    return bodies


def taking(
    bench: Bench, count: int, name: str = "q", arguments: dict[str, Value] | None = None
) -> tuple[Client, list[bytes]]:
    """Return a client that holds this many unacknowledged messages of a queue, and their bodies."""
    client = bench.connect()
    client.queue(name, durable=True, arguments=arguments or {})
    client.send(1, grammar.BASIC_CONSUME, queue=name, consumer_tag="c")
    bodies = numbered(client, count, name, mode=2)
    assert client.bodies() == bodies
    return client, bodies


def requeue(bench: Bench, steps: int = 1000) -> None:
    while bench.broker.requeue_jobs.is_busy and steps > 0:
        bench.broker.requeue_step(bench.now_us)
        steps -= 1


def decoded(frames: list[Frame]) -> list[Method]:
    return [decode_method(frame.payload) for frame in frames if frame.kind == 1]


# -- order -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [{}, {"x-single-active-consumer": True}, {"x-queue-type": "quorum"}],
    ids=["classic", "single", "quorum"],
)
def test_nobody_is_given_anything_until_all_are_back(bench: Bench, arguments: dict[str, Value]) -> None:
    client, bodies = taking(bench, 9, arguments=arguments)
    other = bench.connect()
    other.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=True)
    other.frames()
    client.peer.lost(bench.now_us)
    bodies += numbered(bench.connect(), 3, first=9)
    requeue(bench, 3)
    assert (queue_of(bench).awaiting, other.frames()) == (1, [])
    requeue(bench)
    frames = other.frames()
    assert [frame.payload for frame in frames if frame.kind == 3] == bodies


def test_a_message_that_comes_meanwhile_is_not_handed_on_at_once(bench: Bench) -> None:
    """This holds for a large message and a consumer without acknowledgements, too."""
    client, bodies = taking(bench, 5)
    client.send(1, grammar.BASIC_CANCEL, consumer_tag="c")
    other = bench.connect()
    other.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=True)
    publisher = bench.connect()
    large = [bytes(100_000), bytes(100_001)]
    publisher.publish("q", large[0])
    assert other.bodies() == [large[0]]
    client.peer.lost(bench.now_us)
    publisher.publish("q", large[1])
    assert other.bodies() == []
    requeue(bench)
    assert other.bodies() == [*bodies, large[1]]


def test_what_several_consumers_had_in_turns_comes_back_in_order(bench: Bench) -> None:
    clients = [bench.connect() for _ in range(3)]
    clients[0].queue("q")
    for client in clients:
        client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
    bodies = numbered(clients[0], 30)
    for client in clients:
        client.peer.lost(bench.now_us)
    assert queue_of(bench).awaiting == 3
    other = bench.connect()
    other.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=True)
    requeue(bench)
    assert other.bodies() == bodies


def test_queues_wait_for_their_own_messages_only_and_channels_take_turns(bench: Bench) -> None:
    many, _ = taking(bench, 100, "many")
    few, bodies = taking(bench, 4, "few")
    other = bench.connect()
    for name in ("many", "few"):
        other.send(1, grammar.BASIC_CONSUME, queue=name, consumer_tag=name, no_ack=True)
    other.frames()
    many.peer.lost(bench.now_us)
    few.frames()
    numbered(few, 2, "few")
    assert (len(few.bodies()), len(other.bodies())) == (1, 1)
    few.send(1, grammar.BASIC_ACK, delivery_tag=5 if few.peer.channels[1].unacked.has(5) else 6)
    few.peer.lost(bench.now_us)
    requeue(bench, 3)
    assert other.bodies() == bodies
    assert queue_of(bench, "many").awaiting == 1


@pytest.mark.parametrize("how", ["get", "cancelled"])
def test_a_queue_waits_for_what_a_channel_has_without_a_consumer(bench: Bench, how: str) -> None:
    client = bench.connect()
    client.queue("q")
    bodies = numbered(client, 5)
    if how == "get":
        for _ in bodies:
            client.send(1, grammar.BASIC_GET, queue="q")
    else:
        client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
        client.send(1, grammar.BASIC_CANCEL, consumer_tag="c")
    assert queue_of(bench).unacked == 5
    other = bench.connect()
    other.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=True)
    client.send(1, grammar.CHANNEL_CLOSE)
    assert other.bodies() == []
    requeue(bench)
    assert other.bodies() == bodies


def test_a_channel_forgets_queues_of_which_it_has_nothing(bench: Bench) -> None:
    client = bench.connect()
    client.queue("kept")
    numbered(client, 1, "kept")
    client.send(1, grammar.BASIC_GET, queue="kept")
    channel = client.peer.channels[1]
    for number in range(1000):
        client.queue(f"q{number}")
        numbered(client, 1, f"q{number}")
        client.send(1, grammar.BASIC_GET, queue=f"q{number}")
        client.send(1, grammar.BASIC_ACK, delivery_tag=number + 2)
        client.send(1, grammar.QUEUE_DELETE, queue=f"q{number}")
    assert [queue.name for queue in channel.sources()] == ["kept"]  # type: ignore[attr-defined]
    assert len(channel._left) < 200  # type: ignore[attr-defined]


# -- requests that wait for the job ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "fields", "answer", "count"),
    [
        (grammar.BASIC_GET, {}, grammar.BASIC_GET_OK, 8),
        (grammar.QUEUE_DECLARE, {"passive": True}, grammar.QUEUE_DECLARE_OK, 9),
        (grammar.QUEUE_DECLARE, {"durable": True}, grammar.QUEUE_DECLARE_OK, 9),
        (grammar.QUEUE_PURGE, {}, grammar.QUEUE_PURGE_OK, 9),
        (grammar.QUEUE_DELETE, {}, grammar.QUEUE_DELETE_OK, 9),
    ],
)
@pytest.mark.parametrize("is_same", [False, True])
def test_who_asks_for_what_a_queue_has_waits(
    bench: Bench,
    spec: grammar.MethodSpec,
    fields: dict[str, bool],
    answer: grammar.MethodSpec,
    count: int,
    is_same: bool,
) -> None:
    """channel.close-ok is sent at once; any later request for the queue's content waits for the requeue job."""
    client, bodies = taking(bench, 9)
    client.send(1, grammar.CHANNEL_CLOSE)
    assert [method.name for method in client.methods()] == ["channel.close-ok"]
    asking = client if is_same else bench.connect()
    if is_same:
        client.call(1, grammar.CHANNEL_OPEN)
    asking.raw(method_frame(1, spec, queue="q", **fields) + method_frame(1, grammar.BASIC_QOS))
    bench.sync()
    assert (asking.frames(), asking.peer.has_more) == ([], True)
    assert go_on(asking) == 4
    bench.sync()
    frames = asking.frames()
    told = decoded(frames)
    assert [method.spec for method in told] == [answer, grammar.BASIC_QOS_OK]
    assert told[0].number("message_count") == count
    if spec is grammar.BASIC_GET:
        assert (frames[2].payload, told[0].flag("redelivered")) == (bodies[0], True)


def test_a_consumer_that_waits_longer_goes_first(bench: Bench) -> None:
    client, bodies = taking(bench, 5)
    client.peer.lost(bench.now_us)
    getting = bench.connect()
    getting.send(1, grammar.BASIC_GET, queue="q")
    other = bench.connect()
    other.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=True)
    go_on(getting)
    assert (other.bodies(), [method.name for method in getting.methods()]) == (bodies, ["basic.get-empty"])


def test_an_operator_does_not_wait() -> None:
    operator = Operator()
    operator.bench.broker.requeue_jobs.step_max = 2
    client, bodies = taking(operator.bench, 9)
    client.peer.lost(operator.bench.now_us)
    got = operator.ask("get_messages", vhost="/", queue="q", count=3, ackmode="ack_requeue_true", encoding="base64")
    assert [b64decode(each["payload"]) for each in got] == bodies[:3]
    requeue(operator.bench)
    assert queue_of(operator.bench).count() == len(bodies)


def test_an_operator_gets_what_is_behind_very_many_expired_messages() -> None:
    operator = Operator()
    with_many_that_expire(operator.bench, "1")
    operator.bench.now_us += SECOND_US  # no timer fires, since the head has no time to live
    got = operator.ask("get_messages", vhost="/", queue="q", count=2, ackmode="ack_requeue_false", encoding="base64")
    assert [b64decode(each["payload"]) for each in got] == [b"first", b"last"]


# -- requeues that take several turns ----------------------------------------------------------------------------------


def test_a_channel_that_closes_while_it_gives_back_gives_back_all(bench: Bench) -> None:
    client, bodies = taking(bench, 9)
    client.raw(method_frame(1, grammar.BASIC_NACK, delivery_tag=6, multiple=True, requeue=True))
    assert (queue_of(bench).count(), client.peer.has_more) == (2, True)
    client.peer.lost(bench.now_us)
    assert queue_of(bench).awaiting == 1
    requeue(bench)
    other = bench.connect()
    other.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=True)
    assert other.bodies() == bodies


def test_it_gives_back_what_it_had_then(bench: Bench) -> None:
    client, bodies = taking(bench, 6)
    client.raw(method_frame(1, grammar.BASIC_RECOVER_ASYNC, requeue=True))
    bench.connect().queue("other")
    go_on(client)
    # the client's own consumer gets them again, in order
    assert (client.bodies(), queue_of(bench).unacked) == (bodies, 6)


def test_a_tag_that_was_given_back_is_unknown(bench: Bench) -> None:
    client, _ = taking(bench, 6)
    nack = method_frame(1, grammar.BASIC_NACK, delivery_tag=5, multiple=True, requeue=True)
    client.raw(nack + nack)
    go_on(client)
    assert client.methods()[-1].spec is grammar.CHANNEL_CLOSE


def test_room_within_a_limit_of_the_channel_is_made_step_by_step(bench: Bench) -> None:
    client = bench.connect()
    client.send(1, grammar.BASIC_QOS, prefetch_count=6, **{"global": True})
    for name in ("q", "other"):
        client.queue(name)
        client.send(1, grammar.BASIC_CONSUME, queue=name, consumer_tag=name)
    bodies = numbered(client, 6)
    others = numbered(client, 9, "other", 100)
    assert client.bodies() == bodies
    client.raw(method_frame(1, grammar.BASIC_NACK, delivery_tag=0, multiple=True, requeue=True))
    assert client.bodies() == others[:2]
    go_on(client)
    assert client.bodies() == others[2:6]
    assert (queue_of(bench).count(), queue_of(bench, "other").unacked) == (6, 6)


@pytest.mark.parametrize("tag", [0, 2 * REJECTED_MAX + 2])
def test_a_rejection_of_very_many_takes_several_turns(tag: int) -> None:
    bench = Bench()
    client = consuming(bench, 2 * REJECTED_MAX + 2, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "d"})
    client.queue("d")
    nack = method_frame(1, grammar.BASIC_NACK, delivery_tag=tag, multiple=True, requeue=False)
    client.raw(nack + client.encoded("q", b"behind it"))
    queue = queue_of(bench)
    assert (queue.unacked, queue_of(bench, "d").count()) == (REJECTED_MAX + 2, REJECTED_MAX)
    assert go_on(client) == 2
    # the message behind the nack was delivered, and the nack does not cover it
    assert (queue.unacked, client.bodies(), queue_of(bench, "d").count()) == (1, [b"behind it"], 2 * REJECTED_MAX + 2)


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "rounds"), [({"x-max-length": 3}, 1), ({"x-queue-type": "quorum", "x-delivery-limit": 1}, 2)]
)
def test_dead_letters_of_those_that_come_back_are_in_order(
    bench: Bench, arguments: dict[str, Value], rounds: int
) -> None:
    bench.broker.requeue_jobs.step_max = 16  # 2 of the messages with a delivery count
    bench.connect().queue("dead")
    client, bodies = taking(bench, 40, arguments=DEAD | arguments)
    for each in range(rounds):
        if each:
            client = bench.connect()
            client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
        client.peer.lost(bench.now_us)
        while bench.broker.requeue_jobs.is_busy:
            queue = queue_of(bench)
            assert queue.count() + queue.unacked + queue_of(bench, "dead").count() == 40
            requeue(bench, 1)
    other = bench.connect()
    for name in ("dead", "q"):
        other.send(1, grammar.BASIC_CONSUME, queue=name, consumer_tag=name, no_ack=True)
    assert other.bodies() == bodies


def test_what_is_over_its_limit_is_a_dead_letter_before_the_next_method(bench: Bench) -> None:
    bench.broker.requeue_jobs.step_max = 16
    bench.connect().queue("dead")
    client, _ = taking(bench, 2, arguments=DEAD | {"x-queue-type": "quorum", "x-delivery-limit": 0})
    nack = method_frame(1, grammar.BASIC_NACK, delivery_tag=0, multiple=True, requeue=True)
    client.raw(nack + method_frame(1, grammar.QUEUE_DECLARE, queue="dead", passive=True))
    assert client.methods()[-1].number("message_count") == 2


def test_what_expires_on_its_way_expires_when_it_is_back(bench: Bench) -> None:
    bench.connect().queue("dead")
    client, bodies = taking(bench, 7, arguments=DEAD | {"x-message-ttl": 1000})
    client.peer.lost(bench.now_us)
    bench.pass_time(2_000_000)
    assert queue_of(bench, "dead").count() == 2
    requeue(bench)
    bench.pass_time(0)
    other = bench.connect()
    other.send(1, grammar.BASIC_CONSUME, queue="dead", consumer_tag="c", no_ack=True)
    assert other.bodies() == bodies


@pytest.mark.parametrize("how", ["delete", "auto-delete", "vhost"])
def test_those_of_a_deleted_queue_are_forgotten(bench: Bench, how: str) -> None:
    client = bench.connect()
    client.queue("q", durable=True, auto_delete=how == "auto-delete")
    client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
    numbered(client, 9, mode=2)
    client.peer.lost(bench.now_us)
    if how == "delete":
        bench.broker.vhosts["/"].delete_queue(queue_of(bench))
    elif how == "vhost":
        bench.broker.delete_vhost("/")
    requeue(bench)
    bench.sync()
    assert bench.broker.log._current_live + sum(bench.broker.log._live) == 0


# -- crash and stop ----------------------------------------------------------------------------------------------------


def test_a_stop_gives_back_all_that_is_on_its_way(bench: Bench) -> None:
    client, bodies = taking(bench, 9)
    numbered(client, 1, first=9, mode=2)
    client.frames()
    client.peer.lost(bench.now_us)
    bodies += numbered(bench.connect(), 1, first=10, mode=2)
    bench.broker.stop()
    bench.sync()
    client = recovered(bench.batches).connect()
    client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=True)
    delivered = [method.flag("redelivered") for method in client.methods()[1:]]
    assert delivered == [True] * 10 + [False]


def test_a_crash_on_the_way_loses_nothing(bench: Bench) -> None:
    client, bodies = taking(bench, 9)
    client.peer.lost(bench.now_us)
    requeue(bench, 2)
    bench.sync()
    client = recovered(bench.batches).connect()
    client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=True)
    assert client.bodies() == bodies


@pytest.mark.parametrize("is_paged", [False, True])
def test_a_new_journal_file_knows_those_on_their_way(is_paged: bool) -> None:
    """Their delivery counts and positions are in the new file."""
    rig = Rig(MemoryDisk(), octets_max=3000 if is_paged else 1 << 30)
    rig.bench.broker.requeue_jobs.step_max = 8
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments={"x-queue-type": "quorum"})
    client.send(1, grammar.QUEUE_DECLARE, queue="busy", durable=True)
    bodies = numbered(client, 4)
    rig.write()
    consume = method_frame(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
    client.raw(consume + method_frame(1, grammar.BASIC_RECOVER_ASYNC, requeue=True))
    go_on(client)
    client.send(1, grammar.CHANNEL_CLOSE)
    client.call(1, grammar.CHANNEL_OPEN)
    assert rig.bench.broker.requeue_jobs.is_busy
    for _ in range(60):
        numbered(client, 1, "busy", mode=2)
        rig.page()
        rig.write()
    rig.disk.crash()
    rig = Rig(rig.disk)
    client = rig.bench.connect()
    client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=True)
    frames = client.frames()
    assert [frame.payload for frame in frames if frame.kind == 3] == bodies
    headers = [decode_header(frame.payload)[0].headers or {} for frame in frames if frame.kind == 2]
    assert [each["x-delivery-count"] for each in headers] == [2, 1, 1, 1]
