"""FastStream on leveret's client, and its RabbitBroker unpatched: the same tests, on leveret and RabbitMQ."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pytest
from faststream import AckPolicy, BaseMiddleware, Context, Depends, FastStream, PublishCommand
from faststream import Path as PathParameter
from faststream.message import StreamMessage
from faststream.rabbit import (
    Channel,
    ExchangeType,
    QueueType,
    RabbitBroker,
    RabbitExchange,
    RabbitMessage,
    RabbitQueue,
    RabbitResponse,
    RabbitRouter,
    TestApp,
)
from pydantic import BaseModel

from leveret.client import Channel as ClientChannel
from leveret.client import Unroutable, connect
from leveret.frameworks.faststream_broker import LeveretBroker, TestLeveretBroker
from leveret.testing.processes import LeveretProcess, RabbitMQProcess, ServerProcess

from ..waiting import DEADLINE_S

ROOT = Path(__file__).parents[2]


class Order(BaseModel):
    number: int
    item: str


class Invoice(BaseModel):
    order: int
    text: str


@pytest.fixture
def name() -> str:
    """A name that no other test uses, for queues and exchanges, and as the beginning of other names."""
    return f"stream-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def channel(url: str) -> AsyncIterator[ClientChannel]:
    """A channel to look at the broker with."""
    async with await connect(url, reconnect=False) as connection, await connection.channel() as channel:
        yield channel


@pytest.fixture(params=[LeveretBroker, RabbitBroker])
async def faststream(request: pytest.FixtureRequest, url: str) -> AsyncIterator[RabbitBroker]:
    """A broker that the test starts."""
    broker: RabbitBroker = request.param(url)
    yield broker
    await broker.stop()


@pytest.fixture
async def ours(url: str) -> AsyncIterator[LeveretBroker]:
    """A broker on leveret's client that the test starts."""
    broker = LeveretBroker(url)
    yield broker
    await broker.stop()


class Received:
    """What handlers got, in order."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, value: Any) -> None:
        self._queue.put_nowait(value)

    async def next(self) -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await self._queue.get()

    async def take(self, count: int) -> list[Any]:
        return [await self.next() for _ in range(count)]


@pytest.fixture
def received() -> Received:
    return Received()


def brief(name: str, **options: Any) -> RabbitQueue:
    """Return a queue that the broker deletes after the test."""
    return RabbitQueue(name, auto_delete=True, durable=False, **options)


# what both do alike


async def test_models_dependencies_and_a_chain_of_handlers(
    faststream: RabbitBroker, name: str, received: Received
) -> None:
    async def greeting(order: Order) -> str:
        return f"thank you for {order.item}"

    @faststream.subscriber(brief(f"{name}.orders"))
    @faststream.publisher(brief(f"{name}.invoices"))
    async def invoice(order: Order, text: Annotated[str, Depends(greeting)]) -> Invoice:
        return Invoice(order=order.number, text=text)

    @faststream.subscriber(brief(f"{name}.invoices"))
    async def file(given: Invoice, message: RabbitMessage) -> None:
        received.put((given, message.content_type))

    await faststream.start()
    await faststream.publish(Order(number=1, item="tea"), f"{name}.orders")
    assert await received.next() == (Invoice(order=1, text="thank you for tea"), "application/json")


@pytest.mark.parametrize(
    ("type", "keys", "sent", "receivers"),
    [
        (ExchangeType.DIRECT, ("a", "b"), "b", {1}),
        (ExchangeType.TOPIC, ("*.info", "logs.#"), "logs.info", {0, 1}),
        (ExchangeType.FANOUT, ("a", "b"), "", {0, 1}),
    ],
)
async def test_exchanges(
    faststream: RabbitBroker,
    name: str,
    received: Received,
    type: ExchangeType,
    keys: tuple[str, ...],
    sent: str,
    receivers: set[int],
) -> None:
    exchange = RabbitExchange(name, type, auto_delete=True, durable=False)

    def subscribe(number: int, key: str) -> None:
        @faststream.subscriber(brief(f"{name}.{number}", routing_key=key), exchange)
        async def take(text: str) -> None:
            received.put(number)

    for number, key in enumerate(keys):
        subscribe(number, key)
    await faststream.start()
    await faststream.publish("text", exchange=exchange, routing_key=sent)
    assert set(await received.take(len(receivers))) == receivers


async def test_a_headers_exchange(faststream: RabbitBroker, name: str, received: Received) -> None:
    exchange = RabbitExchange(name, ExchangeType.HEADERS, auto_delete=True, durable=False)
    every = {"x-match": "all", "colour": "red", "size": 2}
    either = {"x-match": "any", "colour": "red", "size": 2}

    @faststream.subscriber(brief(f"{name}.all", bind_arguments=every), exchange)
    async def all_of_them(text: str) -> None:
        received.put(("all", text))

    @faststream.subscriber(brief(f"{name}.any", bind_arguments=either), exchange)
    async def any_of_them(text: str) -> None:
        received.put(("any", text))

    await faststream.start()
    await faststream.publish("one", exchange=exchange, headers={"colour": "red"})
    assert await received.next() == ("any", "one")
    await faststream.publish("both", exchange=exchange, headers={"colour": "red", "size": 2})
    assert sorted(await received.take(2)) == [("all", "both"), ("any", "both")]


async def test_exchanges_bound_to_each_other(faststream: RabbitBroker, name: str, received: Received) -> None:
    outer = RabbitExchange(f"{name}.outer", ExchangeType.FANOUT, auto_delete=True, durable=False)
    inner = RabbitExchange(name, ExchangeType.FANOUT, auto_delete=True, durable=False, bind_to=outer)

    @faststream.subscriber(brief(f"{name}.queue"), inner)
    async def take(text: str) -> None:
        received.put(text)

    await faststream.start()
    await faststream.publish("through both", exchange=outer)
    assert await received.next() == "through both"


async def test_requests_and_replies(faststream: RabbitBroker, name: str) -> None:
    @faststream.subscriber(brief(name))
    async def upper(text: str) -> RabbitResponse:
        return RabbitResponse(text.upper(), headers={"length": len(text)})

    await faststream.start()
    words = ["one", "two", "three"]
    replies = await asyncio.gather(*(faststream.request(word, name, timeout=DEADLINE_S) for word in words))
    assert [await reply.decode() for reply in replies] == ["ONE", "TWO", "THREE"]
    assert [reply.headers["length"] for reply in replies] == [3, 3, 5]


async def test_a_request_without_an_answer_times_out(faststream: RabbitBroker, name: str) -> None:
    await faststream.start()
    with pytest.raises(TimeoutError):
        await faststream.request("anybody?", name, timeout=0.05)


async def test_replies_to_a_queue(faststream: RabbitBroker, name: str, received: Received) -> None:
    @faststream.subscriber(brief(name))
    async def upper(text: str) -> str:
        return text.upper()

    @faststream.subscriber(brief(f"{name}.replies"))
    async def reply(text: str, correlation_id: Annotated[str, Context("message.correlation_id")]) -> None:
        received.put((text, correlation_id))

    await faststream.start()
    await faststream.publish("text", name, reply_to=f"{name}.replies", correlation_id="17")
    assert await received.next() == ("TEXT", "17")


async def test_all_properties_arrive(faststream: RabbitBroker, name: str, received: Received) -> None:
    sent = {
        "persist": True,
        "headers": {"text": "é", "number": 7, "nested": {"list": [1, "two", 3.5, True, None]}},
        "content_type": "application/x-own",
        "content_encoding": "utf-8",
        "priority": 3,
        "correlation_id": "correlated",
        "reply_to": "",
        "expiration": 60.0,
        "message_id": "m-1",
        "timestamp": datetime(2026, 11, 28, 12, 30, 15, tzinfo=UTC),
        "message_type": "order",
        "user_id": "guest",
    }

    @faststream.subscriber(brief(name))
    async def take(message: RabbitMessage) -> None:
        received.put(message.raw_message)

    await faststream.start()
    await faststream.publish(b"bytes", name, **sent)
    raw = await received.next()
    assert raw.info() == {
        "headers": sent["headers"],
        "content_type": "application/x-own",
        "content_encoding": "utf-8",
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "correlated",
        "reply_to": None,
        "expiration": 60.0,
        "message_id": "m-1",
        "timestamp": sent["timestamp"],
        "type": "order",
        "user_id": "guest",
        "app_id": raw.app_id,
        "body_size": 5,
        "cluster_id": raw.cluster_id,
        "consumer_tag": raw.consumer_tag,
        "delivery_tag": 1,
        "exchange": "",
        "redelivered": False,
        "routing_key": name,
    }
    assert raw.body == b"bytes"


@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL])
async def test_a_nacked_message_is_delivered_again(
    faststream: RabbitBroker, name: str, received: Received, policy: AckPolicy
) -> None:
    @faststream.subscriber(brief(name), ack_policy=policy)
    async def take(text: str, message: RabbitMessage) -> None:
        received.put(message.raw_message.redelivered)
        if policy is AckPolicy.MANUAL:
            await (message.ack() if message.raw_message.redelivered else message.nack())
        elif not message.raw_message.redelivered:
            raise RuntimeError("an error that the policy expects")

    await faststream.start()
    await faststream.publish("text", name)
    assert await received.take(2) == [False, True]


async def test_a_rejected_message_is_dead_lettered(faststream: RabbitBroker, name: str, received: Received) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}

    @faststream.subscriber(brief(name, arguments=dead), ack_policy=AckPolicy.REJECT_ON_ERROR)
    async def take(text: str) -> None:
        raise RuntimeError("an error that the policy expects")

    @faststream.subscriber(brief(f"{name}.dead"))
    async def dead_letter(text: str) -> None:
        received.put(text)

    await faststream.start()
    await faststream.publish("text", name)
    assert await received.next() == "text"


async def test_without_acknowledgements(faststream: RabbitBroker, name: str, received: Received) -> None:
    @faststream.subscriber(brief(name), ack_policy=AckPolicy.ACK_FIRST)
    async def take(text: str) -> None:
        received.put(text)
        raise RuntimeError("an error after which nothing is delivered again")

    await faststream.start()
    for text in ("one", "two"):
        await faststream.publish(text, name)
    assert await received.take(2) == ["one", "two"]


async def test_the_prefetch_count_limits_concurrency(
    faststream: RabbitBroker, name: str, received: Received, channel: ClientChannel
) -> None:
    gate = asyncio.Event()

    @faststream.subscriber(RabbitQueue(name, durable=True), channel=Channel(prefetch_count=3))
    async def take(number: int) -> None:
        received.put(number)
        await gate.wait()

    await channel.declare_queue(name, arguments={"x-queue-type": "classic"})
    await channel.confirm_select()
    for number in range(12):
        await channel.publish(b"%d" % number, routing_key=name)
    await faststream.start()
    assert await received.take(3) == [0, 1, 2]
    assert (await channel.declare_queue(name, passive=True)).message_count == 9
    gate.set()
    assert await received.take(9) == list(range(3, 12))
    await faststream.stop()
    await channel.delete_queue(name)


async def test_middlewares_see_both_directions(faststream: RabbitBroker, name: str, received: Received) -> None:
    class Counting(BaseMiddleware):
        async def consume_scope(
            self, call_next: Callable[[StreamMessage[Any]], Awaitable[Any]], msg: StreamMessage[Any]
        ) -> Any:
            received.put(("consumed", msg.headers["step"]))
            return await call_next(msg)

        async def publish_scope(
            self, call_next: Callable[[PublishCommand], Awaitable[Any]], cmd: PublishCommand
        ) -> Any:
            cmd.headers["step"] = 1
            received.put(("published", cmd.destination))
            return await call_next(cmd)

    faststream.add_middleware(Counting)

    @faststream.subscriber(brief(name))
    async def take(text: str) -> None: ...

    await faststream.start()
    await faststream.publish("text", name)
    assert await received.take(2) == [("published", name), ("consumed", 1)]


async def test_routers_and_parts_of_the_routing_key(faststream: RabbitBroker, name: str, received: Received) -> None:
    router = RabbitRouter(prefix=f"{name}.")
    exchange = RabbitExchange(name, ExchangeType.TOPIC, auto_delete=True, durable=False)

    @router.subscriber(brief("logs", routing_key="logs.{level}"), exchange)
    async def take(text: str, level: Annotated[str, PathParameter()]) -> None:
        received.put((level, text))

    faststream.include_router(router)
    await faststream.start()
    await faststream.publish("it rains", exchange=exchange, routing_key=f"{name}.logs.warning")
    assert await received.next() == ("warning", "it rains")


async def test_single_messages_and_iteration(faststream: RabbitBroker, name: str) -> None:
    single = faststream.subscriber(brief(f"{name}.single"))
    many = faststream.subscriber(brief(f"{name}.many"))
    await faststream.start()
    await faststream.publish("one", f"{name}.single")
    message = await single.get_one(timeout=DEADLINE_S)
    assert message is not None
    assert await message.decode() == "one"
    for number in range(3):
        await faststream.publish(number, f"{name}.many")
    numbers = []
    async with asyncio.timeout(DEADLINE_S):
        async for message in many:
            numbers.append(await message.decode())
            await message.ack()
            if len(numbers) == 3:
                break
    assert numbers == [0, 1, 2]


async def test_a_stream(faststream: RabbitBroker, name: str, received: Received, channel: ClientChannel) -> None:
    queue = RabbitQueue(name, QueueType.STREAM, durable=True)

    @faststream.subscriber(queue, channel=Channel(prefetch_count=10), consume_args={"x-stream-offset": "first"})
    async def take(number: int) -> None:
        received.put(number)

    await channel.declare_queue(name, arguments={"x-queue-type": "stream"})
    await channel.confirm_select()
    for number in range(3):
        await channel.publish(b"%d" % number, routing_key=name)
    await faststream.start()
    assert await received.take(3) == [0, 1, 2]
    await faststream.stop()
    await channel.delete_queue(name)


async def test_an_unroutable_message_is_no_error_by_default(faststream: RabbitBroker, name: str) -> None:
    await faststream.start()
    await faststream.publish("text", f"{name}.nowhere")
    assert await faststream.ping(DEADLINE_S)


# what only leveret's client does


async def test_an_unroutable_message_is_an_error_if_asked_for(url: str, name: str) -> None:
    async with LeveretBroker(url, default_channel=Channel(on_return_raises=True)) as broker:
        await broker.start()
        with pytest.raises(Unroutable, match="NO_ROUTE"):
            await broker.publish("text", f"{name}.nowhere")


async def test_publishing_without_confirms(url: str, name: str, received: Received) -> None:
    broker = LeveretBroker(url, default_channel=Channel(publisher_confirms=False))

    @broker.subscriber(brief(name))
    async def take(text: str) -> None:
        received.put(text)

    async with broker:
        await broker.start()
        await broker.publish("text", name)
        assert await received.next() == "text"


async def test_an_error_of_a_publisher_ends_neither_it_nor_consumers(
    ours: LeveretBroker, name: str, received: Received
) -> None:
    """The broker closes the channel on which a message is published to a missing exchange."""

    @ours.subscriber(brief(name))
    async def take(text: str) -> None:
        received.put(text)

    await ours.start()
    with pytest.raises(Exception, match="NOT_FOUND"):
        await ours.publish("text", exchange=RabbitExchange(f"{name}.missing", declare=False))
    await ours.publish("next", name)
    assert await received.next() == "next"


async def test_a_channel_that_the_broker_closes_is_opened_again(
    ours: LeveretBroker, name: str, received: Received, channel: ClientChannel
) -> None:
    """As it is after a delivery acknowledgement timeout: all unacknowledged messages are delivered again."""

    @ours.subscriber(RabbitQueue(name), ack_policy=AckPolicy.MANUAL)
    async def take(text: str, message: RabbitMessage) -> None:
        raw = message.raw_message
        received.put((text, raw.redelivered))
        if raw.redelivered:
            await message.ack()
        else:
            await raw.channel.basic_ack(delivery_tag=12345)

    await ours.start()
    await ours.publish("text", name)
    assert await received.take(2) == [("text", False), ("text", True)]
    await ours.stop()
    await channel.delete_queue(name)


@pytest.fixture(params=[LeveretProcess, pytest.param(RabbitMQProcess, marks=pytest.mark.needs("rabbitmq"))])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker for one test, which may stop it and start it again."""
    with request.param(tmp_path / "data") as process:
        yield process


async def test_handlers_survive_a_restart_of_the_broker(mortal: ServerProcess, received: Received) -> None:
    """The message that was being handled is delivered again; requests work as before."""
    broker = LeveretBroker(mortal.url, reconnect_interval=0.1)
    restarted = asyncio.Event()

    @broker.subscriber(RabbitQueue("words", durable=True))
    async def upper(text: str, message: RabbitMessage) -> str:
        received.put((text, message.raw_message.redelivered))
        if text == "first":
            await restarted.wait()
        return text.upper()

    async with asyncio.timeout(DEADLINE_S), broker:
        await broker.start()
        await broker.publish("first", "words", persist=True)
        assert await received.next() == ("first", False)
        await asyncio.to_thread(mortal.stop)
        while await broker.ping(0.01):  # noqa: ASYNC110 - it notices soon, and reconnects later
            await asyncio.sleep(0)
        publishing = asyncio.create_task(broker.publish("second", "words"))
        await asyncio.to_thread(mortal.start)
        await publishing
        restarted.set()
        assert sorted(await received.take(2)) == [("first", True), ("second", False)]
        assert await (await broker.request("third", "words", timeout=DEADLINE_S)).decode() == "THIRD"
        assert await broker.ping(DEADLINE_S)


async def test_it_stops_while_the_broker_is_away(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as process:
        broker = LeveretBroker(process.url)

        @broker.subscriber(brief("words"))
        async def take(text: str) -> None: ...

        await broker.start()
        await asyncio.to_thread(process.stop)
        async with asyncio.timeout(DEADLINE_S):
            await broker.stop()
        process.start()


async def test_wrong_options_are_refused(url: str) -> None:
    for options in ({"fail_fast": False}, {"on_close": [print]}):
        with pytest.raises(ValueError, match=f"{next(iter(options))}: leveret's client has no such option"):
            await LeveretBroker(url, **options).connect()  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="channel_number"):
        await LeveretBroker(url, default_channel=Channel(channel_number=7)).start()


async def test_in_memory(received: Received) -> None:
    """FastStream's test broker calls handlers without a broker."""
    broker = LeveretBroker("amqp://nobody:nothing@127.0.0.1:1/")

    @broker.subscriber("orders")
    @broker.publisher("invoices")
    async def invoice(order: Order) -> Invoice:
        return Invoice(order=order.number, text=order.item)

    @broker.subscriber("upper")
    async def upper(text: str) -> str:
        return text.upper()

    async with TestLeveretBroker(broker) as test_broker:
        await test_broker.publish(Order(number=1, item="tea"), "orders")
        assert invoice.mock is not None
        invoice.mock.assert_called_once_with({"number": 1, "item": "tea"})
        assert await (await test_broker.request("text", "upper")).decode() == "TEXT"


async def test_an_application_in_memory(received: Received) -> None:
    broker = LeveretBroker("amqp://nobody:nothing@127.0.0.1:1/")
    app = FastStream(broker)

    @app.after_startup
    async def begin() -> None:
        await broker.publish("begun", "events")

    @broker.subscriber("events")
    async def take(text: str) -> None:
        received.put(text)

    async with TestLeveretBroker(broker), TestApp(app):
        assert await received.next() == "begun"


async def test_the_message_of_a_killed_application_is_delivered_again(
    url: str, name: str, channel: ClientChannel
) -> None:
    for queue in (name, f"{name}.reports"):
        await channel.declare_queue(queue, arguments={"x-queue-type": "classic"})
    reports = await channel.consume(f"{name}.reports", no_ack=True)

    async def run() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.interop.faststream_app", url, name),
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            cwd=ROOT,
            stderr=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )

    channel.publish(b"wait", routing_key=name)
    pids = []
    for _ in range(2):
        process = await run()
        async with asyncio.timeout(DEADLINE_S):
            pids.append(int((await anext(reports)).body))
        assert pids[-1] == process.pid
        process.kill()
        await process.wait()
    for queue in (name, f"{name}.reports"):
        await channel.delete_queue(queue)
