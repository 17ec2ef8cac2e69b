"""What holds after a call was cancelled (asyncio) or interrupted (blocking): docs/guides/cancelled-calls.md, by row."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.client import (
    Channel,
    Connection,
    ConnectionClosed,
    Consumer,
    Nacked,
    Properties,
    Rpc,
    connect,
)
from leveret.delay import Sender
from leveret.endpoint.replies import Replies
from leveret.endpoint.topology import Topology
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER

from .client_in_memory import ANSWERED, BODIES, MOMENTS, NOT_ANSWERED, NOT_HEARD, AsyncLine, BlockingLine, Case, Line

Check = Callable[["Case"], Awaitable[None]]
GUIDE = Path(__file__).parents[2] / "docs/guides/cancelled-calls.md"


async def nothing(_case: Case) -> None:
    """Prepare nothing."""


async def all_wait(case: Case) -> None:
    """Check that all messages wait in the queue, as if the call had not been made."""
    assert await case.info() == (3, 0)
    assert await case.take(4) == [*BODIES, b""]


async def all_come(case: Case) -> None:
    """Check that all messages come once, in order, and that there is no consumer."""
    assert (await case.info())[1] == 0
    assert await case.take(4) == [*BODIES, b""]


async def one_channel(case: Case) -> None:
    assert case.channels == (1, 1)
    assert case.queues == {"tasks"}
    await all_wait(case)


async def no_new_queue(case: Case) -> None:
    assert case.queues == {"tasks"}
    await all_wait(case)


async def a_new_queue(case: Case) -> None:
    assert case.queues == {"tasks", "new"}
    await all_wait(case)


async def is_purged(case: Case) -> None:
    assert await case.info() == (0, 0)


async def is_deleted(case: Case) -> None:
    assert case.queues == set()
    await case.do(lambda: case.channel.declare_queue("tasks"))
    assert await case.info() == (0, 0)


async def confirms(case: Case) -> None:
    """Check that the next publish is confirmed, and that its own confirm is waited for."""
    case.channel.publish(b"4", "", "tasks")
    assert case.channel.outstanding == 1
    await case.do(case.channel.confirm_select)
    await case.do(case.channel.wait_for_confirms)
    assert case.channel.outstanding == 0
    assert (await case.info())[0] == 4


async def is_in_transaction(case: Case) -> None:
    case.channel.publish(b"4", "", "tasks")
    assert await case.info() == (3, 0)
    await case.do(case.channel.tx_commit)
    assert await case.info() == (4, 0)


async def a_transaction(case: Case) -> None:
    await case.do(case.channel.tx_select)
    case.channel.publish(b"4", "", "tasks")


async def is_committed(case: Case) -> None:
    assert await case.info() == (4, 0)


async def is_rolled_back(case: Case) -> None:
    await case.do(case.channel.tx_commit)
    await all_wait(case)


async def one_fetched(case: Case) -> None:
    assert await case.take(1, no_ack=False) == [b"1"]


async def a_consumer(case: Case) -> None:
    case.kept = await case.do(lambda: case.channel.consume("tasks"))


async def consumer_ends(case: Case) -> None:
    """Check that earlier deliveries can be iterated, and that the iteration then ends."""
    assert await case.info() == (0, 0)
    if isinstance(case.line, AsyncLine):
        assert await case.do(lambda: bodies(case.kept)) == BODIES
    else:
        assert [delivery.body for delivery in case.channel.deliveries(9, 0)] == BODIES


async def bodies(consumer: Consumer) -> list[bytes]:
    return [delivery.body async for delivery in consumer]


async def closes(case: Case) -> None:
    assert case.channels == (0, 0)
    assert case.channel.is_closed
    await case.do(case.channel.close)
    case.channel = await case.do(case.line.channel)
    assert case.channels == (1, 1)
    await all_wait(case)


async def still_one_channel(case: Case) -> None:
    assert case.channels == (1, 1)


async def a_bound_exchange(case: Case) -> None:
    await case.do(lambda: case.channel.declare_exchange("x"))
    await case.do(lambda: case.channel.declare_exchange("y"))


ROWS: dict[str, tuple[Callable[[Case], Awaitable[None]], Callable[[Any], Any], Check]] = {
    "declare_queue": (nothing, lambda channel: channel.declare_queue("new"), a_new_queue),
    'declare_queue("")': (nothing, lambda channel: channel.declare_queue(""), no_new_queue),
    "delete_queue": (nothing, lambda channel: channel.delete_queue("tasks"), is_deleted),
    "purge_queue": (nothing, lambda channel: channel.purge_queue("tasks"), is_purged),
    "bind_queue": (nothing, lambda channel: channel.bind_queue("tasks", "amq.topic", "#"), all_wait),
    "unbind_queue": (nothing, lambda channel: channel.unbind_queue("tasks", "amq.topic", "#"), all_wait),
    "declare_exchange": (nothing, lambda channel: channel.declare_exchange("x"), all_wait),
    "delete_exchange": (nothing, lambda channel: channel.delete_exchange("x"), all_wait),
    "bind_exchange": (a_bound_exchange, lambda channel: channel.bind_exchange("x", "y", "#"), all_wait),
    "unbind_exchange": (a_bound_exchange, lambda channel: channel.unbind_exchange("x", "y", "#"), all_wait),
    "confirm_select": (nothing, lambda channel: channel.confirm_select(), confirms),
    "tx_select": (nothing, lambda channel: channel.tx_select(), is_in_transaction),
    "tx_commit": (a_transaction, lambda channel: channel.tx_commit(), is_committed),
    "tx_rollback": (a_transaction, lambda channel: channel.tx_rollback(), is_rolled_back),
    "qos": (nothing, lambda channel: channel.qos(1), all_wait),
    "recover": (one_fetched, lambda channel: channel.recover(), all_wait),
    "consume": (nothing, lambda channel: channel.consume("tasks"), all_wait),
    "consume(no_ack)": (nothing, lambda channel: channel.consume("tasks", no_ack=True), all_come),
    "get": (nothing, lambda channel: channel.get("tasks"), all_wait),
    "get(no_ack)": (nothing, lambda channel: channel.get("tasks", no_ack=True), all_come),
    "close": (nothing, lambda channel: channel.close(), closes),
}


@pytest.mark.parametrize("line", [AsyncLine, BlockingLine])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("row", ROWS)
async def test_what_holds_after_a_cancelled_call(row: str, moment: str, line: type[Line]) -> None:
    prepare, call, check = ROWS[row]
    case = await Case.new(line())
    await prepare(case)
    assert await case.line.cut(lambda: call(case.channel), moment) == []
    case.line.settle()
    await check(case)


@pytest.mark.parametrize("line", [AsyncLine, BlockingLine])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_consumer_whose_cancel_is_cancelled(moment: str, line: type[Line]) -> None:
    case = await Case.new(line())
    await a_consumer(case)
    cancel = case.kept.cancel if isinstance(case.line, AsyncLine) else lambda: case.channel.cancel(case.kept)
    assert await case.line.cut(cancel, moment) == []
    case.line.settle()
    await consumer_ends(case)
    (core,) = case.line.core._channels.values()
    assert not core.sinks


@pytest.mark.parametrize("line", [AsyncLine, BlockingLine])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_cancelled_channel_gives_its_number_back(moment: str, line: type[Line]) -> None:
    case = await Case.new(line())
    for _ in range(5):
        assert await case.line.cut(case.line.channel, moment) == []
    case.line.settle()
    await one_channel(case)


@pytest.mark.parametrize("line", [AsyncLine, BlockingLine])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(("reply_queue", "rounds"), [(False, 0), (False, 1), (True, 0), (True, 1), (True, 2)])
async def test_a_cancelled_caller_leaves_no_channel(
    reply_queue: bool, rounds: int, moment: str, line: type[Line]
) -> None:
    case = await Case.new(line())
    assert await case.line.cut(lambda: case.line.rpc(reply_queue), moment, rounds) == []
    case.line.settle()
    await one_channel(case)


@pytest.mark.parametrize("line", [AsyncLine, BlockingLine])
async def test_a_call_that_has_not_begun_says_nothing(line: type[Line]) -> None:
    case = await Case.new(line())
    if isinstance(case.line, AsyncLine):
        task = asyncio.ensure_future(case.channel.get("tasks", no_ack=True))
        task.cancel()
        await asyncio.wait([task])
        assert not case.line.said
        assert not case.line.hear()
    await all_wait(case)


# -- more on consumers and gets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [AsyncLine, BlockingLine])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_the_next_consumer_has_what_a_cancelled_one_was_sent(moment: str, line: type[Line]) -> None:
    """Holds under the same tag, too, and before the first consumer has ended."""
    case = await Case.new(line())
    assert await case.line.cut(lambda: case.channel.consume("tasks", True, tag="t"), moment) == []
    consumer = await case.do(lambda: case.channel.consume("tasks", True, tag="t"))
    case.channel.publish(b"4", "", "tasks")
    case.line.settle()
    if isinstance(case.line, AsyncLine):
        came = [await case.do(lambda: anext(consumer)) for _ in range(4)]
    else:
        came = case.channel.deliveries(9, 0)
    assert [(delivery.body, delivery.consumer_tag) for delivery in came] == [(b, "t") for b in [*BODIES, b"4"]]
    assert await case.info() == (0, 1)


async def test_the_same_tag_for_another_queue_has_none_of_a_cancelled_consumer() -> None:
    case = await Case.new(AsyncLine())
    await case.do(lambda: case.channel.declare_queue("others"))
    assert await case.line.cut(lambda: case.channel.consume("tasks", tag="t"), NOT_HEARD) == []
    consumer = await case.do(lambda: case.channel.consume("others", tag="t"))
    case.channel.publish(b"theirs", "", "others")
    case.line.settle()
    assert (await case.do(lambda: anext(consumer))).body == b"theirs"
    assert await case.info() == (3, 0)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_gets_in_flight_keep_the_order(moment: str) -> None:
    case = await Case.new(AsyncLine())
    assert await case.line.cut(lambda: case.channel.get("tasks", no_ack=True), moment) == []
    gets = [asyncio.ensure_future(case.channel.get("tasks", no_ack=True)) for _ in range(4)]
    while not all(get.done() for get in gets):
        await asyncio.sleep(0)
        case.line.settle()
    assert [get.result() and get.result().body for get in gets] == [*BODIES, None]


@pytest.mark.parametrize("line", [AsyncLine, BlockingLine])
async def test_what_a_cancelled_get_has_fetched_outlives_a_cancelled_consumer(line: type[Line]) -> None:
    case = await Case.new(line())
    assert await case.line.cut(lambda: case.channel.get("tasks", no_ack=True), NOT_HEARD) == []
    assert await case.line.cut(lambda: case.channel.consume("tasks", no_ack=True), NOT_HEARD) == []
    case.line.settle()
    await all_come(case)


async def test_what_nobody_asked_for_again_is_told(caplog: pytest.LogCaptureFixture) -> None:
    case = await Case.new(AsyncLine())
    assert await case.line.cut(lambda: case.channel.get("tasks", no_ack=True), ANSWERED) == []
    with caplog.at_level(logging.WARNING, "leveret.client"):
        await case.do(case.channel.close)
    assert caplog.messages[0].startswith("1 messages are lost: the broker sent them without acknowledgement")


async def test_an_answer_of_a_pseudo_queue_is_not_kept() -> None:
    case = await Case.new(AsyncLine())
    await case.do(lambda: case.channel.declare_queue("past", arguments={"x-queue-type": "stream"}))
    asking = lambda: case.channel.get("amq.leveret.stream.past", no_ack=True)  # noqa: E731
    assert await case.line.cut(asking, ANSWERED) == []
    case.channel.publish(b"x", "", "past")
    case.line.settle()
    assert b'"next_offset": 1' in (await case.do(asking)).body.replace(b'":1', b'": 1')


@pytest.mark.parametrize("is_there", [False, True])
async def test_iterating_may_be_cancelled(is_there: bool) -> None:
    case = await Case.new(AsyncLine())
    await a_consumer(case)
    if not is_there:
        await case.do(lambda: case.channel.purge_queue("tasks"))
        consumer = case.kept = await case.do(lambda: case.channel.consume("tasks", tag="second"))
        for _ in range(3):
            waiting = asyncio.ensure_future(anext(consumer))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert not consumer._waiting  # it would grow with every timeout
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0)
        consumer.deliver("a delivery")  # and cancel it in the same turn
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert await anext(consumer) == "a delivery"
    else:
        assert [(await anext(case.kept)).body for _ in range(3)] == BODIES


async def test_draining_may_be_cancelled() -> None:
    case = await Case.new(AsyncLine())
    assert isinstance(case.line, AsyncLine)
    case.line.socket.pause_writing()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(case.channel.drain(), 0.0001)
    assert not case.line.socket._resumed
    case.line.socket.resume_writing()
    await case.channel.drain()


# -- publishing --------------------------------------------------------------------------------------------------------


async def give_up(case: Case, queue: str) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(case.channel.publish(b"4", "", queue), 0)
    assert case.channel.outstanding == 1


async def test_a_cancelled_publish_is_still_waited_for() -> None:
    case = await Case.confirming(AsyncLine())
    await give_up(case, "tasks")
    waiting = [asyncio.ensure_future(case.channel.wait_for_confirms()) for _ in range(2)]
    for _ in range(9):
        await asyncio.sleep(0)
    assert not any(each.done() for each in waiting), "confirmed, though it is outstanding"
    waiting.pop().cancel()  # the other one is not disturbed
    case.line.settle()
    await waiting[0]
    assert case.channel.outstanding == 0
    assert await case.info() == (4, 0)


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_a_cancelled_publish_that_is_refused(is_waiting: bool) -> None:
    case = await Case.confirming(AsyncLine())
    await give_up(case, "full")
    waiting = asyncio.ensure_future(case.channel.wait_for_confirms())
    if is_waiting:
        await asyncio.sleep(0)
    case.line.settle()
    with pytest.raises(Nacked):
        await waiting
    await case.do(case.channel.wait_for_confirms)  # it is reported once


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_a_cancelled_publish_whose_connection_is_lost(is_waiting: bool) -> None:
    case = await Case.confirming(AsyncLine())
    assert isinstance(case.line, AsyncLine)
    await give_up(case, "tasks")
    waiting = asyncio.ensure_future(case.channel.wait_for_confirms())
    if is_waiting:
        await asyncio.sleep(0)
    case.line.socket.connection_lost(None)
    with pytest.raises(ConnectionClosed):
        await waiting


async def test_a_publish_that_is_cancelled_while_it_is_waited_for() -> None:
    case = await Case.confirming(AsyncLine())
    future = case.channel.publish(b"4", "", "full")
    waiting = asyncio.ensure_future(case.channel.wait_for_confirms())
    await asyncio.sleep(0)
    future.cancel()
    for _ in range(9):
        await asyncio.sleep(0)
    assert not waiting.done()
    case.line.settle()
    with pytest.raises(Nacked):
        await waiting


async def test_a_publish_that_is_interrupted_is_counted_before_it_is_sent() -> None:
    """Otherwise the next publish's confirm would count for it, and each message would seem confirmed one too early."""
    case = await Case.confirming(BlockingLine())
    (core,) = case.line.core._channels.values()

    class Interrupting:
        frame_max = 0

        def send(self, data: bytes) -> None:
            raise KeyboardInterrupt

    outbox, core._outbox = core._outbox, Interrupting()
    with pytest.raises(KeyboardInterrupt):
        case.channel.publish(b"4", "", "tasks")
    assert case.channel.outstanding == 1
    core._outbox = outbox


# -- RPC ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [*MOMENTS, "replied"])
async def test_a_cancelled_call_by_rpc(moment: str) -> None:
    """Its late reply is dropped, and the next call gets its own."""
    case = await Case.new(AsyncLine())
    assert isinstance(case.line, AsyncLine)
    await case.do(lambda: case.channel.declare_queue("service"))
    rpc: Rpc = await case.do(case.line.rpc)
    assert await case.line.cut(lambda: rpc.call(b"first", "", "service", timeout_s=600), moment) == []
    assert rpc.outstanding == 0
    second = asyncio.ensure_future(rpc.call(b"second", "", "service", timeout_s=600))
    await asyncio.sleep(0)
    case.line.settle()
    for body in (b"first", b"second"):
        request = await case.do(lambda: case.channel.get("service", no_ack=True))
        assert request.body == body
        reply = Properties(correlation_id=request.properties.correlation_id)
        case.channel.publish(b"re: " + body, "", request.properties.reply_to, reply)
    case.line.settle()
    assert (await second).body == b"re: second"
    assert rpc.outstanding == 0


@pytest.mark.parametrize("rounds", [1, 2, 5])
async def test_a_sender_whose_start_is_cancelled_leaves_no_channel(rounds: int) -> None:
    """Holds for an address of replies, too."""
    case = await Case.new(AsyncLine())
    assert isinstance(case.line, AsyncLine)
    starting = Sender(case.line.connection).__aenter__
    assert await case.line.cut(starting, NOT_ANSWERED, rounds) == []
    case.line.settle()
    assert case.channels == (1, 1)
    replies = Replies(case.line.connection, Topology(), "me")
    assert await case.line.cut(replies.address, NOT_ANSWERED, min(rounds, 2)) == []
    case.line.settle()
    assert case.channels == (1, 1)


# -- connections -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_cancelled_close_closes(moment: str) -> None:
    case = await Case.new(AsyncLine())
    line = case.line
    assert isinstance(line, AsyncLine)
    case.channel.publish(b"4", "", "tasks")
    await line.cut(line.connection.close, moment)  # on Python 3.11 the call sometimes ends as if it was not cancelled
    line.hear()
    assert line.connection.is_closed
    assert line.transport.is_closed
    info = line.bench.connect().call(1, grammar.QUEUE_DECLARE, queue="tasks", passive=True)
    assert info.number("message_count") == 4, "what was published before is written first"
    with pytest.raises(ConnectionClosed):
        await line.connection.channel()
    await line.connection.close()


async def test_two_may_close_at_the_same_time() -> None:
    case = await Case.new(AsyncLine())
    assert isinstance(case.line, AsyncLine)
    for close in (case.channel.close, case.line.connection.close):
        closing = [asyncio.ensure_future(close()) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        case.line.settle()
        await asyncio.gather(*closing)


@pytest.mark.parametrize("has_greeting", [False, True])
async def test_a_cancelled_connect_leaves_no_socket(has_greeting: bool) -> None:
    came: asyncio.Queue[asyncio.StreamReader] = asyncio.Queue()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        came.put_nowait(reader)

    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connecting = asyncio.create_task(connect(f"amqp://127.0.0.1:{port}", reconnect=False))
    reader = await came.get()
    if has_greeting:
        assert await reader.readexactly(8) == PROTOCOL_HEADER
    connecting.cancel()
    await asyncio.wait([connecting])
    assert connecting.cancelled()
    try:
        assert await reader.read() in (b"", PROTOCOL_HEADER)
    except ConnectionResetError:
        pass
    writers[0].close()
    server.close()


# -- at random points --------------------------------------------------------------------------------------------------

STEPS = st.sampled_from([
    "get", "get(no_ack)", "consume", "consume(no_ack)", "declare_queue", "channel", "rpc", "publish", "purge",
    "wait_for_confirms", "qos",
])  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(
    st.booleans(),
    st.lists(st.tuples(STEPS, st.sampled_from([None, *MOMENTS]), st.integers(0, 2)), min_size=1, max_size=12),
)
def test_whatever_is_cancelled_no_message_is_lost_or_comes_twice(
    is_async: bool, steps: list[tuple[str, str | None, int]]
) -> None:
    asyncio.run(at_random(AsyncLine if is_async else BlockingLine, steps))


async def at_random(line_type: type[Line], steps: list[tuple[str, str | None, int]]) -> None:
    case = await Case.confirming(line_type())
    line, channel = case.line, case.channel
    published = list(BODIES)
    got: list[bytes] = []

    def took(delivery: Any, no_ack: bool) -> None:
        if delivery is not None:
            got.append(delivery.body)
            if not no_ack:
                channel.ack(delivery.delivery_tag)

    async def taken(consumer: Any, no_ack: bool) -> None:
        """End a consumer and return what it was sent."""
        line.settle()
        if isinstance(line, AsyncLine):
            await case.do(consumer.cancel)
            deliveries = list(consumer.take_all())
        else:
            channel.cancel(consumer)
            deliveries = channel.deliveries(1000, 0) if channel.untaken else []
        for delivery in deliveries:
            took(delivery, no_ack)

    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: channel.get("tasks"),
        "get(no_ack)": lambda: channel.get("tasks", no_ack=True),
        "consume": lambda: channel.consume("tasks"),
        "consume(no_ack)": lambda: channel.consume("tasks", no_ack=True),
        "declare_queue": lambda: channel.declare_queue(""),
        "channel": line.channel,
        "rpc": lambda: line.rpc(reply_queue=True),
        "purge": lambda: channel.purge_queue("full"),
        "wait_for_confirms": channel.wait_for_confirms,
        "qos": lambda: channel.qos(2),
    }
    opened, declared = 0, 0
    for step, moment, rounds in steps:
        if step == "publish":
            published.append(b"%d" % (len(published) + 1))
            future = channel.publish(published[-1], "", "tasks")
            if moment and isinstance(line, AsyncLine):
                future.cancel()
            continue
        results = [await case.do(calls[step])] if moment is None else await line.cut(calls[step], moment, rounds)
        for result in results:
            if step.startswith("get"):
                took(result, "no_ack" in step)
            elif step.startswith("consume"):
                await taken(result, "no_ack" in step)
            opened += step in ("channel", "rpc")
            declared += step in ("rpc", "declare_queue")
    await case.do(channel.wait_for_confirms)
    line.settle()
    assert channel.outstanding == 0
    assert (await case.info())[1] == 0
    while (body := (await case.take(1))[0]) != b"":
        got.append(body)
    assert sorted(got) == sorted(published)
    assert case.channels == (1 + opened, 1 + opened)
    assert len(case.queues) == 2 + declared
    case.channel = await case.do(line.channel)  # or messages requeued when the channel closes would come here
    assert await case.take(1) == [b""]


# -- the guide ---------------------------------------------------------------------------------------------------------


def test_the_guide_has_every_call_that_waits() -> None:
    """The table of this file has them, too, except calls that have tests of their own."""
    rows = {row.split("|")[1].strip() for row in GUIDE.read_text().splitlines() if row.startswith("| `")}
    named = {name for row in rows for name in re.findall(r"`(?:\w+\.)?(\w+)", row)}
    waiting = {
        name
        for kind in (Channel, Connection, Consumer, Rpc)
        for name, member in inspect.getmembers(kind, inspect.iscoroutinefunction)
        if not name.startswith("_") and not (member.__doc__ or "").endswith("for this package.")
        and "for this package" not in (member.__doc__ or "").lower()
    }  # fmt: skip
    assert waiting - {"open"} <= named
    tested = {re.match(r"\w+", row).group() for row in ROWS}  # type: ignore[union-attr]
    own = {"cancel", "channel", "rpc", "call", "drain", "wait_for_confirms"}
    assert waiting - {"open"} <= tested | own
