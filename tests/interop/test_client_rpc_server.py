"""RpcServer with the client's Rpc, on leveret and on RabbitMQ, also over connections that break."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import uuid
from collections.abc import AsyncIterator

import msgspec
import pytest

from leveret.client import (
    JSON,
    BlockingConnection,
    BlockingRpcServer,
    Channel,
    ChannelClosed,
    Connection,
    ConsumerCancelled,
    Delivery,
    Properties,
    Reconnect,
    RpcServer,
    RpcTimeout,
    connect,
    msgspec_struct,
)

from ..cutting_proxy import CuttingProxy

SOON = Reconnect(first_delay_s=0.0, max_delay_s=0.05)


class Numbers(msgspec.Struct):
    values: list[int]


class Sum(msgspec.Struct):
    value: int


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Connection]:
    async with await connect(url, reconnect=False) as connection:
        yield connection


@pytest.fixture
async def channel(connection: Connection) -> Channel:
    return await connection.channel(confirms=True)


@pytest.fixture
async def queue(channel: Channel) -> AsyncIterator[str]:
    """A queue whose dead letters go to the queue of the same name with `.dead`."""
    name = f"server.{uuid.uuid4().hex[:12]}"
    await channel.declare_queue(f"{name}.dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
    await channel.declare_queue(name, arguments=arguments)
    yield name
    for each in (name, f"{name}.dead"):
        await channel.delete_queue(each)


async def dead_letter(channel: Channel, queue: str) -> Delivery:
    return await anext(await channel.consume(f"{queue}.dead", no_ack=True))


async def ready(channel: Channel, queue: str) -> int:
    return (await channel.declare_queue(queue, passive=True)).message_count


@pytest.mark.parametrize("reply_queue", [False, True])
async def test_requests_are_answered(connection: Connection, channel: Channel, queue: str, reply_queue: bool) -> None:
    server = RpcServer(connection)

    @server.serve(queue)
    async def shout(request: Delivery) -> bytes:
        return request.body.upper()

    async with server, await connection.rpc(reply_queue) as rpc:
        replies = await asyncio.gather(*(rpc.call(b"a%d" % number, "", queue) for number in range(50)))
    assert [reply.body for reply in replies] == [b"A%d" % number for number in range(50)]
    assert await ready(channel, queue) == 0


async def test_objects_go_in_and_out(connection: Connection, queue: str) -> None:
    server = RpcServer(connection)
    numbers, sums = msgspec_struct(Numbers), msgspec_struct(Sum)

    @server.serve(queue, codec=numbers, reply_codec=sums)
    async def add(numbers: Numbers) -> Sum:
        return Sum(sum(numbers.values))

    async with server, await connection.rpc() as rpc:
        reply = await rpc.call(numbers.encode(Numbers([1, 2, 3])), "", queue)
    assert reply.decode(sums) == Sum(6)
    assert reply.content_type == "application/json"


async def test_the_reply_of_a_codec_is_encoded_by_it(connection: Connection, queue: str) -> None:
    server = RpcServer(connection)

    @server.serve(queue, codec=JSON)
    async def nothing(request: object) -> object:
        return None if request == "null" else [request]

    async with server, await connection.rpc() as rpc:
        assert (await rpc.call(JSON.encode("null"), "", queue)).body == b"null"
        assert (await rpc.call(JSON.encode(1), "", queue)).json() == [1]


async def test_a_request_without_reply_to_is_carried_out(connection: Connection, channel: Channel, queue: str) -> None:
    server = RpcServer(connection)
    done: asyncio.Queue[bytes] = asyncio.Queue()

    @server.serve(queue)
    async def keep(request: Delivery) -> None:
        done.put_nowait(request.body)

    async with server:
        await channel.publish(b"x", "", queue)
        assert await done.get() == b"x"
    assert await ready(channel, queue) == 0


async def test_requests_are_handled_concurrently_up_to_the_prefetch(
    connection: Connection, channel: Channel, queue: str
) -> None:
    server = RpcServer(connection)
    begun: asyncio.Queue[None] = asyncio.Queue()
    go_on = asyncio.Event()

    @server.serve(queue, prefetch=3)
    async def wait(request: Delivery) -> None:
        begun.put_nowait(None)
        await go_on.wait()

    for _ in range(5):
        await channel.publish(b"x", "", queue)
    async with server:
        for _ in range(3):
            await begun.get()
        assert await ready(channel, queue) == 2
        assert begun.empty()
        go_on.set()
        for _ in range(2):
            await begun.get()
    assert await ready(channel, queue) == 0


async def test_a_request_that_fails_is_rejected_and_logged(
    connection: Connection, channel: Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = RpcServer(connection)

    @server.serve(queue, codec=JSON)
    async def fail(request: object) -> object:
        if request == "cancelled":
            raise asyncio.CancelledError
        raise ZeroDivisionError

    async with server, await connection.rpc() as rpc:
        for body in (JSON.encode("x"), JSON.encode("cancelled"), b"{"):
            with pytest.raises(RpcTimeout):
                await rpc.call(body, "", queue, timeout_s=0)
        dead = await channel.consume(f"{queue}.dead", no_ack=True)
        assert {(await anext(dead)).body for _ in range(3)} == {b'"x"', b'"cancelled"', b"{"}
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert {type((record.exc_info or (None, None))[1]).__name__ for record in errors} == {
        "CancelledError",
        "UndecodableBody",
        "ZeroDivisionError",
    }
    assert all("has failed and is rejected without requeue: it is dead-lettered" in each.message for each in errors)


async def test_a_request_that_fails_may_be_requeued(connection: Connection, channel: Channel, queue: str) -> None:
    server = RpcServer(connection)

    @server.serve(queue, requeue=True)
    async def second(request: Delivery) -> bytes:
        if not request.redelivered:
            raise ConnectionError("not yet")
        return b"now"

    async with server, await connection.rpc() as rpc:
        assert (await rpc.call(b"x", "", queue)).body == b"now"


async def test_the_end_waits_for_handlers_and_returns_what_is_late(
    connection: Connection, channel: Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    begun: asyncio.Queue[bytes] = asyncio.Queue()
    go_on = asyncio.Event()

    async def handle(request: Delivery) -> None:
        begun.put_nowait(request.body)
        await go_on.wait()

    patient, hasty = RpcServer(connection), RpcServer(connection, stop_timeout_s=0)
    for server, body in ((patient, b"patient"), (hasty, b"hasty")):
        server.serve(queue)(handle)
        await channel.publish(body, "", queue)
        running = asyncio.create_task(server.run())
        assert await begun.get() == body
        running.cancel()
        if server is patient:
            go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        go_on.clear()
    again = await anext(await channel.consume(queue, no_ack=True))
    assert (again.body, again.redelivered) == (b"hasty", True)
    assert begun.empty()
    assert "requests were not finished within 0 s" in caplog.text


async def test_run_raises_what_ends_a_consumer(connection: Connection, channel: Channel, queue: str) -> None:
    server = RpcServer(connection)
    begun = asyncio.Event()

    @server.serve(queue)
    async def handle(request: Delivery) -> None:
        begun.set()

    await channel.publish(b"x", "", queue)
    running = asyncio.create_task(server.run())
    await begun.wait()
    await channel.delete_queue(queue)
    with pytest.raises(ConsumerCancelled):
        await running
    with pytest.raises(ChannelClosed, match="404"):
        await server.run()


async def test_a_reply_to_a_caller_that_is_gone_is_dropped(
    connection: Connection, channel: Channel, queue: str, url: str
) -> None:
    server = RpcServer(connection)
    async with await connect(url, reconnect=False) as other:
        asking = await other.channel(confirms=True)
        await asking.consume("amq.rabbitmq.reply-to", no_ack=True)
        await asking.publish(b"x", "", queue, Properties(reply_to="amq.rabbitmq.reply-to", correlation_id="1"))
    await channel.publish(b"y", "", queue, Properties(reply_to=f"{queue}.missing"))
    done: asyncio.Queue[bytes] = asyncio.Queue()

    @server.serve(queue, prefetch=1)
    async def handle(request: Delivery) -> bytes:
        done.put_nowait(request.body)
        return b"reply"

    async with server:
        assert [await done.get(), await done.get()] == [b"x", b"y"]
    assert await ready(channel, queue) == 0


async def test_over_a_line_that_breaks_everything_is_answered(url: str, connection: Connection, queue: str) -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    for seed in range(4):
        async with (
            CuttingProxy(url, random.Random(seed), 6, 8_000) as proxy,
            await connect(proxy.url, reconnect=SOON, heartbeat_s=1) as served,
        ):
            server = RpcServer(served)
            server.serve(queue, codec=JSON)(double)
            async with server, await connection.rpc() as rpc:
                calls = [rpc.call(JSON.encode(number), "", queue, timeout_s=120) for number in range(200)]
                assert [reply.json() for reply in await asyncio.gather(*calls)] == [2 * n for n in range(200)], seed


async def test_a_handler_outlives_a_lost_connection_and_its_request_comes_again(
    url: str, connection: Connection, channel: Channel, queue: str
) -> None:
    begun: asyncio.Queue[bool] = asyncio.Queue()
    go_on = asyncio.Event()
    async with CuttingProxy(url, random.Random(0)) as proxy, await connect(proxy.url, reconnect=SOON) as served:
        server = RpcServer(served)

        @server.serve(queue)
        async def handle(request: Delivery) -> bytes:
            begun.put_nowait(request.redelivered)
            await go_on.wait()
            return b"done"

        async with server, await connection.rpc() as rpc:
            call = asyncio.create_task(rpc.call(b"x", "", queue))
            assert not await begun.get()
            proxy.cut()
            assert await begun.get()  # the same request
            go_on.set()
            assert (await call).body == b"done"
    assert await ready(channel, queue) == 0


class TestWrongUse:
    async def test_no_handlers(self, connection: Connection) -> None:
        with pytest.raises(ValueError, match=r"add them with @server\.serve"):
            await RpcServer(connection).run()

    async def test_a_plain_function(self, connection: Connection) -> None:
        with pytest.raises(TypeError, match="write async def"):
            RpcServer(connection).serve("q")(lambda request: b"")  # type: ignore[arg-type,return-value]

    @pytest.mark.parametrize("prefetch", [0, 65536])
    async def test_a_prefetch_out_of_range(self, connection: Connection, prefetch: int) -> None:
        with pytest.raises(ValueError, match="1 to 65535"):
            RpcServer(connection).serve("q", prefetch=prefetch)


# -- without asyncio ---------------------------------------------------------------------------------------------------


async def test_functions_answer_requests(url: str, connection: Connection, channel: Channel, queue: str) -> None:
    with BlockingConnection(url, reconnect=False) as blocking:
        server = BlockingRpcServer(blocking)
        numbers, sums = msgspec_struct(Numbers), msgspec_struct(Sum)

        @server.serve(queue, codec=numbers, reply_codec=sums, prefetch=20)
        def add(numbers: Numbers) -> Sum:
            return Sum(sum(numbers.values))

        @server.serve(f"{queue}.dead")
        def shout(request: Delivery) -> bytes | None:
            return None if request.body == b"nothing" else request.body.upper()

        running = asyncio.create_task(asyncio.to_thread(server.run))
        async with await connection.rpc() as rpc:
            calls = [rpc.call(numbers.encode(Numbers([1, each])), "", queue) for each in range(50)]
            assert [reply.decode(sums).value for reply in await asyncio.gather(*calls)] == list(range(1, 51))
            bodies = [(await rpc.call(body, "", f"{queue}.dead")).body for body in (b"x", b"nothing")]
            assert bodies == [b"X", b""]
        server.stop()
        await running
    assert await ready(channel, queue) == 0


async def test_a_function_that_fails_rejects_the_request_and_one_that_stops_is_the_last(
    url: str, channel: Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    with BlockingConnection(url, reconnect=False) as blocking:
        server = BlockingRpcServer(blocking)
        handled: list[object] = []

        @server.serve(queue, codec=JSON)
        def fail(request: object) -> object:
            handled.append(request)
            if request == "stop":
                server.stop()
            raise ZeroDivisionError

        for body in (b'"x"', b"{", b'"stop"', b'"later"'):
            await channel.publish(body, "", queue)
        await asyncio.to_thread(server.run)
    dead = await channel.consume(f"{queue}.dead", no_ack=True)
    assert [(await anext(dead)).body for _ in range(3)] == [b'"x"', b"{", b'"stop"']
    assert handled == ["x", "stop"]
    assert await ready(channel, queue) == 1
    assert caplog.text.count("has failed and is rejected without requeue: it is dead-lettered") == 3


async def test_functions_answer_over_a_reconnect(url: str, connection: Connection, queue: str) -> None:
    async with CuttingProxy(url, random.Random(0)) as proxy:
        blocking = await asyncio.to_thread(BlockingConnection, proxy.url, reconnect=SOON)
        server = BlockingRpcServer(blocking)

        @server.serve(queue)
        def cut(request: Delivery) -> bytes:
            if not request.redelivered:
                is_cut = threading.Event()
                loop.call_soon_threadsafe(lambda: (proxy.cut(), is_cut.set()))
                is_cut.wait()
            return request.body

        loop = asyncio.get_running_loop()
        running = asyncio.create_task(asyncio.to_thread(server.run))
        async with await connection.rpc() as rpc:
            for number in range(3):
                assert (await rpc.call(b"%d" % number, "", queue)).body == b"%d" % number
        server.stop()
        await running
        await asyncio.to_thread(blocking.close)


def test_functions_cannot_serve_what_is_not_there(url: str) -> None:
    with BlockingConnection(url, reconnect=False) as blocking:
        server = BlockingRpcServer(blocking)
        with pytest.raises(ValueError, match="no handlers"):
            server.run()
        with pytest.raises(ValueError, match="1 to 65535, not 0"):
            server.serve("q", prefetch=0)

        async def answer(request: Delivery) -> None:
            """Do nothing."""

        with pytest.raises(TypeError, match="use RpcServer"):
            server.serve("q")(answer)
        server.serve("no such queue")(lambda request: b"")
        with pytest.raises(ChannelClosed, match="404"):
            server.run()
