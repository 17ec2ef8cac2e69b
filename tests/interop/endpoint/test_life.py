"""Starting, stopping, and surviving the loss of the broker or the queue."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from leveret.client import Channel, ChannelClosed, ConnectionClosed, connect
from leveret.delay import RoutingTopology
from leveret.endpoint import Context, Endpoint
from leveret.testing.processes import LeveretProcess, free_port

from .support import OrderPlaced, PlaceOrder, endpoint, program, within


async def test_starting_again_changes_nothing(url: str, name: str, routing: RoutingTopology, channel: Channel) -> None:
    for _ in range(2):
        async with endpoint(name, url, routing) as node:
            with pytest.raises(RuntimeError, match="already been started"):
                await node.start()
    assert (await channel.declare_queue(name, passive=True)).message_count == 0
    with pytest.raises(RuntimeError, match="already been started"):
        await node.start()


async def test_quorum_queues_and_an_error_queue_of_another_type(url: str, name: str, channel: Channel) -> None:
    """Endpoints share the error queue; one of them may have declared it with arguments that another would not use."""
    await channel.declare_queue(f"{name}.error")
    async with endpoint(name, url, queue_type="quorum") as node:
        await node.send_local(PlaceOrder(1))
        with pytest.raises(ChannelClosed) as refused:
            async with endpoint(name, url):
                pass
        assert refused.value.code == 406


async def test_a_broker_that_is_not_there(name: str) -> None:
    with pytest.raises(ConnectionClosed, match="cannot connect"):
        await endpoint(name, f"amqp://127.0.0.1:{free_port()}").start()


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"prefetch": 0}, {"prefetch": 65536}])
def test_numbers_out_of_range(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least one message"):
        Endpoint("e", "amqp://localhost", **options)  # type: ignore[arg-type]


def test_names_that_are_none() -> None:
    for names in ({"name": ""}, {"name": "e", "error_queue": ""}):
        with pytest.raises(ValueError, match="needs a name"):
            Endpoint(url="amqp://localhost", **names)


async def test_running_handlers_end_and_the_rest_is_given_back(url: str, name: str, channel: Channel) -> None:
    may_end = [asyncio.Event(), asyncio.Event()]
    begun, ended = asyncio.Semaphore(0), asyncio.Semaphore(0)
    node = endpoint(name, url, concurrency=2, prefetch=5)
    handled: list[int] = []

    @node.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        begun.release()
        if order.order < 2:
            await may_end[order.order].wait()
        handled.append(order.order)
        ended.release()

    await node.start()
    for number in range(5):
        await node.send_local(PlaceOrder(number))
    for _ in may_end:
        await within(begun.acquire())
    stopping = asyncio.create_task(node.stop())
    may_end[0].set()
    await within(ended.acquire())
    await channel.declare_queue(name, passive=True)  # now another message may start, and has time to
    may_end[1].set()
    await within(stopping)
    assert handled == [0, 1]
    bodies = []
    while (delivery := await channel.get(name, no_ack=True)) is not None:
        bodies.append(delivery.body)
    assert bodies == [b'{"order":%d}' % number for number in range(2, 5)]


async def test_a_handler_that_does_not_end_is_cancelled_and_its_message_given_back(
    url: str, name: str, channel: Channel
) -> None:
    begun = asyncio.Event()
    node = endpoint(name, url)

    @node.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        context.publish(OrderPlaced(1))
        begun.set()
        await asyncio.Event().wait()

    await node.start()
    await node.send_local(PlaceOrder(1))
    await within(begun.wait())
    await node.stop(timeout_s=0.01)
    delivery = await channel.get(name, no_ack=True)
    assert delivery is not None
    assert delivery.redelivered


async def test_as_many_at_a_time_as_allowed(url: str, name: str) -> None:
    node = endpoint(name, url, concurrency=3)
    running: set[int] = set()
    peak: list[int] = []
    done, full = asyncio.Semaphore(0), asyncio.Event()

    @node.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        running.add(order.order)
        peak.append(len(running))
        if len(running) == 3:
            full.set()
        await full.wait()  # until the maximum runs
        for _ in range(20):
            await asyncio.sleep(0)
        running.remove(order.order)
        done.release()

    async with node:
        await asyncio.gather(*(node.send_local(PlaceOrder(number)) for number in range(30)))
        for _ in range(30):
            await within(done.acquire())
    assert max(peak) == 3


async def test_a_deleted_queue_is_declared_again(
    url: str, name: str, routing: RoutingTopology, channel: Channel
) -> None:
    node = endpoint(name, url, routing)
    seen: asyncio.Queue[int] = asyncio.Queue()

    @node.event_handler
    async def placed(event: OrderPlaced, context: Context) -> None:
        await seen.put(event.order)

    async with node:
        await node.publish(OrderPlaced(1))
        assert await within(seen.get()) == 1
        await channel.delete_queue(name)
        for number in range(2, 1000):
            await node.publish(OrderPlaced(number))  # waits for the connection, once its loss is known
            try:
                assert await asyncio.wait_for(seen.get(), 0.05) > 1
                break
            except TimeoutError:
                continue
        await node.send_local(PlaceOrder(1), delay=timedelta(milliseconds=1))


async def test_what_is_being_sent_while_the_queue_is_deleted_is_confirmed(
    url: str, name: str, routing: RoutingTopology, channel: Channel
) -> None:
    """The endpoint then closes its connection and opens another, but not while senders wait for confirms."""
    node = endpoint(name, url, routing)

    @node.event_handler
    async def placed(event: OrderPlaced, context: Context) -> None:
        pass

    async with node:
        await node.publish(OrderPlaced(0))
        deleted = asyncio.ensure_future(channel.delete_queue(name))
        number = 0
        while not deleted.done():  # some are under way whenever the broker cancels the consumer
            await asyncio.gather(*(node.publish(OrderPlaced(number + i)) for i in range(50)))
            number += 50
        await asyncio.gather(*(node.publish(OrderPlaced(number + i)) for i in range(200)))


async def test_the_broker_is_killed_and_comes_back(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "leveret.endpoint")
    seen: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
    begun, may_end = asyncio.Event(), asyncio.Event()
    with LeveretProcess() as broker:
        node = endpoint(name, broker.url)

        @node.handler
        async def order(order: PlaceOrder, context: Context) -> None:
            if order.order == 1 and not begun.is_set():
                begun.set()
                await may_end.wait()
            await seen.put((order.order, context.message_id))

        async with node:
            await node.send_local(PlaceOrder(2), delay=timedelta(milliseconds=700))
            await node.send_local(PlaceOrder(1))
            await within(begun.wait())
            broker.kill()
            may_end.set()  # the handler ends while no broker can take its acknowledgement
            await within(seen.get())
            broker.start()
            await node.send_local(PlaceOrder(3))
            again = {await within(seen.get()) for _ in range(3)}
            assert {number for number, _ in again} == {1, 2, 3}
    assert "has reconnected" in caplog.text


async def test_sending_gives_up_when_the_broker_stays_away(name: str) -> None:
    with LeveretProcess() as broker:
        async with endpoint(name, broker.url, patience_s=0.05) as node:
            broker.kill()
            for _ in range(2):
                with pytest.raises(ConnectionClosed):
                    await node.send_local(PlaceOrder(1))
            broker.start()


SCRIPT = """
import asyncio, logging, sys
from leveret.endpoint import Endpoint
logging.basicConfig(level=logging.INFO)
node = Endpoint(sys.argv[1], sys.argv[2], folder=sys.argv[3])
asyncio.run(node.run())
"""


async def test_run_ends_at_a_signal_and_keeps_timeouts_unless_told_otherwise(
    url: str, name: str, tmp_path: Path
) -> None:
    async with (
        program("-c", SCRIPT, name, url, str(tmp_path), stderr=subprocess.PIPE) as process,
        await connect(url, reconnect=False) as connection,
    ):
        assert process.stderr is not None
        while b"is running" not in await within(process.stderr.readline()):
            pass
        channel = await connection.channel()
        while (await channel.declare_queue(f"{name}.Timeouts", passive=True)).consumer_count != 1:
            continue  # the program starts beside the endpoint; the test's timeout ends this loop
        assert f"{name}.timeouts.sqlite" in os.listdir(tmp_path)
        process.send_signal(signal.SIGTERM)
        assert await within(process.wait()) == 0
        assert (await channel.declare_queue(name, passive=True)).consumer_count == 0
