"""A time to live of 0: the message goes at once to a consumer that can take it, or expires before the next method.

RabbitMQ's queues do so around each publish (basic.get fetched none of 500 such messages there), so later methods of the
same read must not matter.
"""

from __future__ import annotations

import pytest

from leveret.broker.storage.definitions import POLICY
from leveret.wire import grammar
from leveret.wire.method import method_frame
from leveret.wire.table import Value

from .stages import attach, detach, release
from .support import STREAM, Bench, Client

ONWARD: dict[str, Value] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
GET = method_frame(1, grammar.BASIC_GET, queue="q", no_ack=True)
COMMIT = method_frame(1, grammar.TX_COMMIT)


def declared(how: str, **arguments: Value) -> tuple[Bench, Client, bytes]:
    """Return a client with queues q and grave, and a publish to q of a message with a time to live of 0."""
    bench = Bench()
    client = bench.connect()
    client.queue("grave")
    if how == "policy":
        policy = {"vhost": "/", "name": "p", "pattern": "^q$", "apply-to": "queues", "priority": 0}
        bench.broker.definitions.put(POLICY, {**policy, "definition": {"message-ttl": 0}})
    arguments = ONWARD | arguments | ({"x-message-ttl": 0} if how == "queue" else {})
    client.queue("q", durable="x-queue-type" in arguments, arguments=arguments)
    return bench, client, client.encoded("q", b"brief", expiration="0" if how == "message" else None)


def released(how: str, count: int, before: bytes = b"", **arguments: Value) -> tuple[Bench, Client]:
    """Return a client after a release of such messages for q; `before` is sent before the release.

    The release is on disk; the messages move in the client's next turn.
    """
    bench, client, publish = declared(how, **arguments)
    stager = bench.connect()
    stager.send(1, grammar.CONFIRM_SELECT)
    attach(stager, 0, "a")
    stager.raw(publish * count)
    detach(stager)
    client.raw(before)
    release(stager, 0, "a")
    bench.sync()
    client.frames()
    return bench, client


def answers(client: Client) -> list[str]:
    return [method.name for method in client.methods()]


def waiting(bench: Bench, name: str) -> int:
    return int(bench.broker.vhosts["/"].queues[name].count())


HOW = pytest.mark.parametrize("how", ["message", "queue", "policy"])
KINDS = pytest.mark.parametrize("arguments", [
    {}, {"x-max-priority": 3}, {"x-max-length": 9}, {"x-queue-type": "quorum"}, {"x-single-active-consumer": True},
], ids=str)  # fmt: skip


@HOW
@KINDS
@pytest.mark.parametrize("count", [1, 3])
def test_who_asks_in_the_same_turn_finds_nothing(how: str, arguments: dict[str, Value], count: int) -> None:
    bench, client, publish = declared(how, **arguments)
    client.raw(publish * count + GET + method_frame(1, grammar.QUEUE_PURGE, queue="q"))
    bench.sync()
    got, purged = client.methods()
    assert (got.name, purged.number("message_count")) == ("basic.get-empty", 0)
    assert waiting(bench, "grave") == count


@HOW
@pytest.mark.parametrize("count", [1, 3])
def test_who_asks_how_many_there_are_is_told_none(how: str, count: int) -> None:
    bench, client, publish = declared(how)
    client.raw(publish * count + method_frame(1, grammar.QUEUE_DECLARE, queue="q", passive=True))
    assert client.methods()[-1].number("message_count") == 0
    client.raw(publish * count + method_frame(1, grammar.QUEUE_DELETE, queue="q", if_empty=True))
    assert answers(client) == ["queue.delete-ok"]
    assert waiting(bench, "grave") == 2 * count


@HOW
def test_it_is_dead_before_the_next_question(how: str) -> None:
    _, client, publish = declared(how)
    client.raw(publish + method_frame(1, grammar.BASIC_GET, queue="grave"))
    assert [frame.payload for frame in client.frames() if frame.kind == 3] == [b"brief"]


@HOW
@KINDS
@pytest.mark.parametrize("no_ack", [True, False])
def test_a_consumer_that_can_take_it_has_it_at_once(how: str, arguments: dict[str, Value], no_ack: bool) -> None:
    bench, client, publish = declared(how, **arguments)
    client.call(1, grammar.BASIC_CONSUME, queue="q", no_ack=no_ack)
    client.raw(publish * 2 + GET)
    bodies = [frame.payload for frame in client.frames() if frame.kind == 3]
    assert (bodies, waiting(bench, "grave")) == ([b"brief"] * 2, 0)


@HOW
@KINDS
@pytest.mark.parametrize("count", [1, 2])
def test_a_consumer_that_can_take_none_does_not_get_it_by_what_follows(
    how: str, arguments: dict[str, Value], count: int
) -> None:
    bench, client, publish = declared(how, **arguments)
    client.call(1, grammar.BASIC_QOS, prefetch_count=1)
    client.call(1, grammar.BASIC_CONSUME, queue="q")
    client.raw(publish)
    assert client.bodies() == [b"brief"]
    client.raw(publish * count + method_frame(1, grammar.BASIC_ACK, delivery_tag=1) + GET)
    assert answers(client) == ["basic.get-empty"]
    assert waiting(bench, "grave") == count


@HOW
def test_a_consumer_that_comes_behind_it_gets_nothing(how: str) -> None:
    bench, client, publish = declared(how)
    client.raw(publish + method_frame(1, grammar.BASIC_CONSUME, queue="q"))
    assert (answers(client), waiting(bench, "grave")) == (["basic.consume-ok"], 1)


@HOW
def test_what_comes_back_has_no_time_left(how: str) -> None:
    bench, client, publish = declared(how)
    client.call(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
    client.raw(publish + method_frame(1, grammar.BASIC_RECOVER, requeue=True) + GET)
    assert answers(client) == ["basic.deliver", "basic.recover-ok", "basic.get-empty"]
    assert waiting(bench, "grave") == 1


@HOW
def test_what_a_commit_publishes_is_not_fetched_behind_it(how: str) -> None:
    bench, client, publish = declared(how)
    client.call(1, grammar.TX_SELECT)
    client.raw(publish * 2 + COMMIT + GET)
    assert answers(client) == ["tx.commit-ok", "basic.get-empty"]
    assert waiting(bench, "grave") == 2


@HOW
def test_what_a_commit_publishes_is_counted_by_nobody(how: str) -> None:
    _, client, publish = declared(how)
    client.call(1, grammar.TX_SELECT)
    client.raw(publish + COMMIT + method_frame(1, grammar.QUEUE_DECLARE, queue="q", passive=True))
    assert client.methods()[-1].number("message_count") == 0


@HOW
def test_behind_a_message_that_lives_it_stays_until_that_is_fetched(how: str) -> None:
    bench, client, publish = declared("message")
    client.raw(client.encoded("q", b"lives") + publish + client.encoded("q", b"too") + GET + GET + GET)
    bodies = [frame.payload for frame in client.frames() if frame.kind == 3]
    assert (bodies, waiting(bench, "grave")) == ([b"lives", b"too"], 1)


@HOW
def test_of_several_queues_each_has_its_own_consumers(how: str) -> None:
    bench, client, _ = declared(how)
    client.queue("other", arguments=ONWARD | ({"x-message-ttl": 0} if how != "message" else {}))
    client.queue("s", durable=True, arguments=STREAM)
    for name in ("q", "other", "s"):
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    client.call(1, grammar.BASIC_CONSUME, queue="other", no_ack=True)
    client.publish("", b"brief", exchange="amq.fanout", expiration="0" if how == "message" else None)
    assert (client.bodies(), waiting(bench, "grave"), waiting(bench, "q")) == ([b"brief"], 1, 0)


@HOW
def test_a_delayed_one_is_not_fetched_when_it_is_due(how: str) -> None:
    bench, client, _ = declared(how)
    client.call(
        1, grammar.EXCHANGE_DECLARE, exchange="later", type="x-delayed-message", arguments={"x-delayed-type": "fanout"}
    )
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="later")
    expiration = "0" if how == "message" else None
    client.publish("", b"brief", exchange="later", expiration=expiration, headers={"x-delay": 10})
    bench.now_us += 10_000
    client.raw(GET)
    assert answers(client) == ["basic.get-empty"]
    assert waiting(bench, "grave") == 1


@pytest.mark.parametrize("late_us", [0, 5_000])
def test_a_dead_letter_goes_to_the_consumer_of_a_queue_without_time(late_us: int) -> None:
    """However late the timer of the dead letter fires."""
    bench, client, _ = declared("queue")
    first: dict[str, Value] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q", "x-message-ttl": 10}
    client.queue("first", arguments=first)
    client.call(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    client.publish("first", b"brief")
    bench.pass_time(10_000 + late_us)
    assert (client.bodies(), waiting(bench, "grave")) == ([b"brief"], 0)


@HOW
@KINDS
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_released_is_not_fetched_by_who_has_heard_of_it(
    how: str, arguments: dict[str, Value], count: int
) -> None:
    bench, client = released(how, count, **arguments)
    client.raw(GET)
    bench.sync()
    assert answers(client) == ["basic.get-empty"]
    assert (waiting(bench, "q"), waiting(bench, "grave")) == (0, count)


@HOW
@KINDS
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_released_is_counted_by_nobody(how: str, arguments: dict[str, Value], count: int) -> None:
    _, client = released(how, count, **arguments)
    client.raw(method_frame(1, grammar.QUEUE_DECLARE, queue="q", passive=True))
    assert client.methods()[-1].number("message_count") == 0


@HOW
@KINDS
@pytest.mark.parametrize("no_ack", [True, False])
def test_what_is_released_goes_to_a_consumer_that_can_take_it(
    how: str, arguments: dict[str, Value], no_ack: bool
) -> None:
    consume = method_frame(1, grammar.BASIC_CONSUME, queue="q", no_ack=no_ack)
    bench, client = released(how, 3, before=consume, **arguments)
    client.raw(GET)
    assert (client.bodies(), waiting(bench, "grave")) == ([b"brief"] * 3, 0)


@HOW
@KINDS
def test_what_is_released_behind_a_full_window_is_not_delivered_by_an_acknowledgement(
    how: str, arguments: dict[str, Value]
) -> None:
    consume = method_frame(1, grammar.BASIC_QOS, prefetch_count=1) + method_frame(1, grammar.BASIC_CONSUME, queue="q")
    bench, client = released(how, 3, before=consume, **arguments)
    client.raw(method_frame(1, grammar.BASIC_ACK, delivery_tag=1) + GET)
    bench.sync()
    assert (client.bodies(), waiting(bench, "grave")) == ([b"brief"], 2)


@HOW
@KINDS
def test_a_consumer_that_comes_behind_the_release_gets_nothing(how: str, arguments: dict[str, Value]) -> None:
    bench, client = released(how, 3, **arguments)
    client.raw(method_frame(1, grammar.BASIC_CONSUME, queue="q"))
    bench.sync()
    assert (answers(client), waiting(bench, "grave")) == (["basic.consume-ok"], 3)
