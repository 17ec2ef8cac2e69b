"""Taskiq on leveret's client, and taskiq-aio-pika unpatched: the same tests for both, on leveret and RabbitMQ."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import aio_pika
import pytest
import taskiq_aio_pika
from taskiq import AckableMessage, AsyncBroker, BrokerMessage, SendTaskError, SimpleRetryMiddleware
from taskiq.receiver import Receiver
from taskiq.utils import maybe_awaitable

from leveret.client import Channel, ChannelClosed, ConsumerCancelled, Delivery, Unroutable, connect
from leveret.delay import Layout
from leveret.frameworks.taskiq_broker import LeveretBroker, TaskExchange, TaskQueue
from leveret.testing.processes import LeveretProcess, RabbitMQProcess, ServerProcess

from ..waiting import DEADLINE_S

ROOT = Path(__file__).parents[2]
LEVERET, AIO_PIKA = "leveret's client", "taskiq-aio-pika"
LEVELS = Layout("taskiq-test", unit_ms=1, levels=22)
LONG_S = 3600.0


def exchange(kind: str, name: str, type: str = "topic", **options: Any) -> Any:
    if kind == LEVERET:
        return TaskExchange(name, type, **options)
    return taskiq_aio_pika.Exchange(name, aio_pika.ExchangeType(type), **options)


def queue(kind: str, name: str, **options: Any) -> Any:
    if kind == LEVERET:
        return TaskQueue(name, **{"type": "classic", **options})
    return taskiq_aio_pika.Queue(name=name, **{"type": taskiq_aio_pika.QueueType.CLASSIC, **options})


@pytest.fixture
def name() -> str:
    """A name that no other test uses, for the exchange, the queue, and as the beginning of other names."""
    return f"tasks-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def channel(url: str) -> AsyncIterator[Channel]:
    """A channel to look at the broker with."""
    async with await connect(url, reconnect=False) as connection, await connection.channel() as channel:
        yield channel


@pytest.fixture
async def made(url: str, name: str, channel: Channel) -> AsyncIterator[Callable[..., Any]]:
    """Makes brokers of either kind with one exchange, and started if not told otherwise."""
    async with AsyncExitStack() as stack:

        async def make(kind: str, *queues: Any, type: str = "topic", is_started: bool = True, **options: Any) -> Any:
            queues = queues or (queue(kind, name),)
            if kind == LEVERET:
                options = {"delay_layout": LEVELS, **options}
            broker = {LEVERET: LeveretBroker, AIO_PIKA: taskiq_aio_pika.AioPikaBroker}[kind](
                url,
                exchange=options.pop("exchange", None) or exchange(kind, name, type),
                task_queues=list(queues),
                dead_letter_queue=queue(kind, f"{name}.dead"),
                **options,
            )
            broker.is_worker_process = True
            for one in queues:
                stack.push_async_callback(channel.delete_queue, one.name)
            if is_started:
                await broker.startup()
            stack.push_async_callback(broker.shutdown)
            return broker

        yield make
        stack.push_async_callback(channel.delete_exchange, name)
        stack.push_async_callback(channel.delete_queue, f"{name}.dead")


@pytest.fixture(params=[LEVERET, AIO_PIKA])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def task(body: bytes = b"a task", **labels: Any) -> BrokerMessage:
    return BrokerMessage(task_id=uuid.uuid4().hex, task_name="name", message=body, labels=labels)


async def listened(broker: AsyncBroker, count: int = 1) -> list[bytes]:
    """Listen until there are so many tasks; acknowledge and return them in the order in which they came."""
    bodies = []
    async with asyncio.timeout(DEADLINE_S), aclosing(broker.listen()) as messages:
        async for message in messages:
            assert isinstance(message, AckableMessage)
            await maybe_awaitable(message.ack())
            bodies.append(message.data)
            if len(bodies) == count:
                break
    return bodies


async def fetched(channel: Channel, name: str) -> Delivery:
    """Return the first message of a queue as soon as there is one."""
    consumer = await channel.consume(name, no_ack=True)
    async with asyncio.timeout(DEADLINE_S):
        delivery = await anext(consumer)
    await consumer.cancel()
    return delivery


async def length(channel: Channel, name: str) -> int:
    return (await channel.declare_queue(name, passive=True)).message_count


# what both do alike


async def test_a_task_is_sent_and_received(made: Any, kind: str) -> None:
    broker = await made(kind)
    await broker.kick(task(b"hello"))
    assert await listened(broker) == [b"hello"]


async def test_labels_are_headers_and_tasks_are_persistent(made: Any, kind: str, channel: Channel, name: str) -> None:
    broker = await made(kind)
    sent = task(b"hello", colour="red", priority="7")
    await broker.kick(sent)
    delivery = await fetched(channel, name)
    properties = delivery.properties
    assert properties.headers == {"task_id": sent.task_id, "task_name": "name", "colour": "red", "priority": "7"}
    assert (properties.delivery_mode, properties.priority) == (2, 7)
    assert (delivery.exchange, delivery.routing_key) == (name, name)


async def test_priorities_decide_the_order(made: Any, kind: str, name: str) -> None:
    broker = await made(kind, queue(kind, name, max_priority=10), qos=1)
    for priority in (1, 9, 5):
        await broker.kick(task(b"%d" % priority, priority=priority))
    assert await listened(broker, 3) == [b"9", b"5", b"1"]


async def test_a_rejected_task_goes_to_the_dead_letter_queue(made: Any, kind: str, channel: Channel, name: str) -> None:
    broker = await made(kind)
    await broker.kick(task(b"rejected"))
    consumer = await channel.consume(name)
    channel.reject((await anext(consumer)).delivery_tag, requeue=False)
    assert (await fetched(channel, f"{name}.dead")).body == b"rejected"


@pytest.mark.parametrize(
    ("type", "keys", "sent_to", "receivers"),
    [
        ("topic", ("a.*", "a.b"), "a.b", (0, 1)),
        ("topic", ("a.*", "a.b"), "a.c", (0,)),
        ("direct", ("one", "two"), "two", (1,)),
        ("fanout", ("one", "two"), "one", (0, 1)),
    ],
)
async def test_the_label_is_the_routing_key_if_there_are_several_queues(
    made: Any,
    kind: str,
    channel: Channel,
    name: str,
    type: str,
    keys: tuple[str, str],
    sent_to: str,
    receivers: tuple[int, ...],
) -> None:
    names = [f"{name}.{number}" for number in range(2)]
    queues = [queue(kind, one, routing_key=key) for one, key in zip(names, keys, strict=True)]
    broker = await made(kind, *queues, type=type)
    await broker.kick(task(queue_name=sent_to))
    assert [number for number in range(2) if await length(channel, names[number])] == list(receivers)


async def test_a_worker_takes_tasks_from_all_queues(made: Any, kind: str, name: str) -> None:
    names = [f"{name}.{number}" for number in range(3)]
    broker = await made(kind, *(queue(kind, one) for one in names))
    for one in names:
        await broker.kick(task(one.encode(), queue_name=one))
    assert sorted(await listened(broker, 3)) == [one.encode() for one in names]


async def test_qos_limits_what_a_worker_holds(made: Any, kind: str, channel: Channel, name: str) -> None:
    broker = await made(kind, qos=3)
    for _ in range(5):
        await broker.kick(task())
    messages = broker.listen()
    async with asyncio.timeout(DEADLINE_S):
        first = await anext(messages)
        assert await length(channel, name) == 2  # all deliveries were sent before this answer
        await maybe_awaitable(first.ack())
        for _ in range(4):
            await maybe_awaitable((await anext(messages)).ack())
    await messages.aclose()


@pytest.mark.parametrize("missing", ["exchange", "queue"])
async def test_what_may_not_be_declared_must_exist(made: Any, kind: str, name: str, missing: str) -> None:
    if missing == "exchange":
        broker = await made(kind, is_started=False, exchange=exchange(kind, f"{name}.missing", declare=False))
    else:
        broker = await made(kind, queue(kind, f"{name}.missing", declare=False), is_started=False)
    with pytest.raises(Exception, match=rf"{name}\.missing"):
        await broker.startup()


async def test_a_worker_that_stops_finishes_its_tasks(made: Any, kind: str, channel: Channel, name: str) -> None:
    broker = await made(kind)
    begun, may_end, ended, finish = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    @broker.task(f"{name}:work")  # type: ignore[untyped-decorator]
    async def work() -> None:
        begun.set()
        await may_end.wait()
        ended.set()

    await work.kiq()
    receiver = asyncio.create_task(Receiver(broker, max_async_tasks=10, run_startup=False).listen(finish))
    async with asyncio.timeout(DEADLINE_S):
        await begun.wait()
        finish.set()
        may_end.set()
        await receiver
    await broker.shutdown()
    assert ended.is_set()
    assert await length(channel, name) == 0


@pytest.mark.parametrize(("sender", "worker"), [(LEVERET, AIO_PIKA), (AIO_PIKA, LEVERET)])
async def test_both_kinds_work_together(made: Any, sender: str, worker: str) -> None:
    """Exchange, queues and their arguments are the same, so that one can be replaced by the other, also in parts."""
    first, second = await made(sender), await made(worker)
    await first.kick(task(b"from one to the other"))
    assert await listened(second) == [b"from one to the other"]


async def test_taskiqs_middlewares_and_dependencies(made: Any, kind: str, name: str) -> None:
    """A task that fails is sent again by SimpleRetryMiddleware until it succeeds."""
    broker = await made(kind)
    broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=3))
    attempts: list[int] = []
    succeeded, finish = asyncio.Event(), asyncio.Event()

    @broker.task(f"{name}:flaky", retry_on_error=True)  # type: ignore[untyped-decorator]
    async def flaky(number: int) -> None:
        attempts.append(number)
        if len(attempts) < 3:
            raise RuntimeError("an error that the middleware expects")
        succeeded.set()

    await flaky.kiq(7)
    receiver = asyncio.create_task(Receiver(broker, max_async_tasks=1, run_startup=False).listen(finish))
    async with asyncio.timeout(DEADLINE_S):
        await succeeded.wait()
        finish.set()
        await receiver
    assert attempts == [7, 7, 7]


# delays


async def test_the_delay_queue_of_taskiq_aio_pika(made: Any, channel: Channel, name: str) -> None:
    """A task waits in the delay queue with its expiration, and is dead-lettered to the exchange."""
    delays = f"{name}.delay"
    broker = await made(AIO_PIKA, delay_queue=queue(AIO_PIKA, delays))
    started_s = time.monotonic()
    await broker.kick(task(b"later", delay="0.2"))
    delivery = await fetched(channel, name)
    assert time.monotonic() - started_s >= 0.2
    assert delivery.body == b"later"
    deaths = (delivery.properties.headers or {})["x-death"]
    assert isinstance(deaths, list)
    assert isinstance(deaths[0], dict)
    assert (deaths[0]["queue"], deaths[0]["reason"]) == (delays, "expired")
    await channel.delete_queue(delays)


@pytest.mark.parametrize("type", ["topic", "direct"])
async def test_a_delay_is_never_short_and_delays_nothing_else(made: Any, name: str, type: str) -> None:
    broker = await made(LEVERET, type=type)
    await broker.kick(task(b"much later", delay=LONG_S))
    started_s = time.monotonic()
    await broker.kick(task(b"later", delay="0.2"))
    await broker.kick(task(b"now", delay="None"))  # what Taskiq makes of delay=None
    assert await listened(broker, 2) == [b"now", b"later"]
    assert time.monotonic() - started_s >= 0.2


@pytest.mark.parametrize(
    ("type", "keys", "sent_to", "receivers"),
    [
        ("topic", ("a.*", "a.b", "b", "#"), "a.b", (0, 1, 3)),
        ("topic", ("a.*", "a.b", "b", "#.c"), "a.c", (0, 3)),
        ("topic", ("b", "{name}.b"), "{name}.b", (1,)),
        ("fanout", ("one", "two"), "one", (0, 1)),
    ],
)
async def test_a_delayed_task_reaches_the_same_queues(
    made: Any, channel: Channel, name: str, type: str, keys: tuple[str, ...], sent_to: str, receivers: tuple[int, ...]
) -> None:
    names = [f"{name}.{number}" for number in range(len(keys))]
    queues = [queue(LEVERET, one, routing_key=key.format(name=name)) for one, key in zip(names, keys, strict=True)]
    broker = await made(LEVERET, *queues, type=type)
    # another application, with the same keys in an exchange of its own
    other = await made(LEVERET, queue(LEVERET, f"{name}.other"), exchange=TaskExchange(f"{name}.other", "fanout"))
    await broker.kick(task(b"later", delay=0.01, queue_name=sent_to.format(name=name)))
    for number in receivers:
        assert (await fetched(channel, names[number])).body == b"later"
    assert [await length(channel, one) for one in (*names, f"{name}.other")] == [0] * (len(names) + 1)
    await other.shutdown()
    await channel.delete_exchange(f"{name}.other")


@pytest.mark.parametrize(
    ("labels", "options", "text"),
    [
        ({"delay": "soon"}, {}, "the label 'delay' of task name must be a number, not 'soon'"),
        ({"delay": -1}, {}, "must not be negative"),
        ({"delay": 1e9}, {}, "too long"),
        ({"priority": "high"}, {}, "the label 'priority' of task name must be a number, not 'high'"),
        ({"delay": 1}, {"delay_layout": None}, "cannot delay tasks"),
        ({"delay": 1}, {"type": "headers"}, "cannot delay tasks.*not headers"),
    ],
)
async def test_wrong_labels_are_refused(
    made: Any, labels: dict[str, Any], options: dict[str, Any], text: str, channel: Channel, name: str
) -> None:
    broker = await made(LEVERET, **options)
    with pytest.raises(ValueError, match=text):
        await broker.kick(task(**labels))
    assert await length(channel, name) == 0


# what only leveret's client does


async def test_what_was_not_taken_is_delivered_again(made: Any) -> None:
    """At once when listen() ends, although the worker still finishes its tasks and keeps the channel."""
    broker = await made(LEVERET)
    for number in range(5):
        await broker.kick(task(b"%d" % number))
    assert await listened(broker) == [b"0"]
    assert sorted(await listened(broker, 4)) == [b"1", b"2", b"3", b"4"]


async def test_a_task_that_no_queue_takes_is_an_error(made: Any, name: str) -> None:
    broker = await made(LEVERET)
    broker.with_queues(TaskQueue(f"{name}.1"), TaskQueue(f"{name}.2"))
    work = broker.register_task(lambda: None, f"{name}:work", queue_name="nowhere")
    with pytest.raises(SendTaskError) as error:
        await work.kiq()
    assert isinstance(error.value.__cause__, Unroutable)


async def test_a_deleted_exchange_is_declared_again(made: Any, channel: Channel, name: str) -> None:
    """The task that was sent to the missing exchange fails; the broker has closed the channel, and the next one works.

    """
    broker = await made(LEVERET)
    await channel.delete_exchange(name)
    with pytest.raises(ChannelClosed, match="NOT_FOUND"):
        await broker.kick(task())
    await broker.kick(task(b"next"))
    assert await listened(broker) == [b"next"]


async def test_a_deleted_queue_ends_the_worker_with_an_error(made: Any, channel: Channel, name: str) -> None:
    """`taskiq worker` then starts the worker again, which declares the queue."""
    broker = await made(LEVERET)
    await broker.kick(task())
    messages = broker.listen()
    await anext(messages)
    await channel.delete_queue(name)
    with pytest.raises(ConsumerCancelled):
        await anext(messages)


async def test_it_must_be_started(url: str) -> None:
    broker = LeveretBroker(url)
    with pytest.raises(RuntimeError, match="not connected"):
        await broker.kick(task())
    with pytest.raises(RuntimeError, match="not connected"):
        await anext(broker.listen())
    await broker.shutdown()


async def test_default_names_are_those_of_taskiq_aio_pika(url: str, channel: Channel) -> None:
    """Quorum queues, too: both declare them with the same arguments."""
    async with AsyncExitStack() as stack:
        for kind in (taskiq_aio_pika.AioPikaBroker, LeveretBroker):
            broker = kind(url)
            await broker.startup()
            stack.push_async_callback(broker.shutdown)
        await broker.kick(task(b"by default"))
        assert await listened(broker) == [b"by default"]
    for name in ("taskiq", "taskiq.dead_letter"):
        await channel.delete_queue(name)
    await channel.delete_exchange("taskiq")


# a broker that restarts, and a worker that dies


@pytest.fixture(params=[LeveretProcess, pytest.param(RabbitMQProcess, marks=pytest.mark.needs("rabbitmq"))])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker for one test, which may stop it and start it again."""
    with request.param(tmp_path / "data") as process:
        yield process


async def test_a_worker_survives_a_restart_of_the_broker(mortal: ServerProcess) -> None:
    """The task that was running is delivered again, and its first acknowledgement counts for nothing."""
    broker = LeveretBroker(mortal.url, task_queues=[TaskQueue("one"), TaskQueue("two")])
    runs: asyncio.Queue[int] = asyncio.Queue()
    may_end, finish = asyncio.Event(), asyncio.Event()

    async def run(number: int) -> None:
        runs.put_nowait(number)
        await may_end.wait()

    task = broker.register_task(run, "run", queue_name="one")
    await broker.startup()
    receiver = asyncio.create_task(Receiver(broker, max_async_tasks=10, run_startup=False).listen(finish))
    async with asyncio.timeout(DEADLINE_S):
        await task.kiq(1)
        assert await runs.get() == 1
        await asyncio.to_thread(mortal.stop)
        sending = asyncio.create_task(task.kicker().with_labels(queue_name="two").kiq(2))
        await asyncio.to_thread(mortal.start)
        await sending
        assert sorted([await runs.get(), await runs.get()]) == [1, 2]
        may_end.set()
        finish.set()
        await receiver
    await broker.shutdown()
    async with await connect(mortal.url, reconnect=False) as connection, await connection.channel() as channel:
        assert [await length(channel, name) for name in ("one", "two")] == [0, 0]


async def test_a_worker_stops_while_the_broker_is_away(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as process:
        broker = LeveretBroker(process.url)
        await broker.startup()
        await broker.kick(task())
        messages = broker.listen()
        await anext(messages)
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.to_thread(process.stop)
        async with asyncio.timeout(DEADLINE_S):
            waiting.cancel()
            await asyncio.wait([waiting])
            await messages.aclose()
            await broker.shutdown()
        process.start()


async def test_the_task_of_a_killed_worker_is_delivered_again(
    url: str, channel: Channel, name: str, tmp_path: Path
) -> None:
    """`taskiq worker` starts a new process for the one that was killed, and this one gets the task."""
    reports, killed = f"{name}.reports", tmp_path / "killed"
    await channel.declare_queue(reports)
    environment = {"TASKIQ_URL": url, "TASKIQ_NAME": name, "TASKIQ_REPORTS": reports, "TASKIQ_KILLED": str(killed)}
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "taskiq", "worker", "--workers", "1", "tests.interop.taskiq_worker:broker"),
        env={**os.environ, **environment, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        cwd=ROOT,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        sender = LeveretBroker(
            url,
            exchange=TaskExchange(name),
            task_queues=[TaskQueue(name, type="classic")],
            dead_letter_queue=TaskQueue(f"{name}.dead", type="classic"),
        )
        await sender.startup()
        await sender.register_task(lambda is_hanging: None, "report").kiq(True)
        first = int((await fetched(channel, reports)).body)
        killed.touch()
        os.kill(first, signal.SIGKILL)
        second = int((await fetched(channel, reports)).body)
        assert second != first
        await sender.shutdown()
    finally:
        worker.terminate()
        await worker.wait()
    assert await length(channel, name) == 0
    for one in (name, reports, f"{name}.dead"):
        await channel.delete_queue(one)
    await channel.delete_exchange(name)
