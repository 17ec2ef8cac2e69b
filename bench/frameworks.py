#!/usr/bin/env python3
"""How fast Taskiq and FastStream are on leveret's client, compared with aio-pika, on leveret and on RabbitMQ.

    bench/frameworks.py [--tasks 5000] [--rounds 3] [--without-rabbitmq]

Each round sends the tasks, 100 at a time, and then runs them in a worker in this process; the clients take turns.
Prints tasks per second, medians of the rounds, and the ratio. Queues are durable and classic, tasks persistent.
"""

import argparse
import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from statistics import median

import taskiq_aio_pika
from faststream.rabbit import Channel, RabbitBroker
from taskiq import AsyncBroker
from taskiq.receiver import Receiver

from leveret.client import BlockingConnection
from leveret.frameworks import faststream_broker, taskiq_broker
from leveret.testing.processes import LeveretProcess, RabbitMQProcess

WINDOW = 100
PREFETCH = 100


async def in_windows(send: Callable[[int], Awaitable[object]], count: int) -> float:
    """Call `send` for each number, a window at a time; return calls per second."""
    start_s = time.perf_counter()
    for first in range(0, count, WINDOW):
        await asyncio.gather(*(send(number) for number in range(first, min(first + WINDOW, count))))
    return count / (time.perf_counter() - start_s)


class Countdown:
    """Is over when it was called `count` times."""

    def __init__(self, count: int) -> None:
        self.over = asyncio.Event()
        self._left = count

    def __call__(self) -> None:
        self._left -= 1
        if not self._left:
            self.over.set()


async def taskiq(broker: AsyncBroker, count: int) -> tuple[float, float]:
    """Return the rates of sending and of running tasks."""
    countdown, finish = Countdown(count), asyncio.Event()

    async def run(number: int) -> None:
        countdown()

    task = broker.register_task(run, "bench:run")
    await broker.startup()
    sent = await in_windows(task.kiq, count)
    start_s = time.perf_counter()
    receiver = Receiver(broker, max_async_tasks=PREFETCH, run_startup=False)
    working = asyncio.create_task(receiver.listen(finish))
    await countdown.over.wait()
    ran = count / (time.perf_counter() - start_s)
    finish.set()
    await working
    await broker.shutdown()
    return sent, ran


def taskiq_on_leveret(url: str, name: str) -> AsyncBroker:
    queue = taskiq_broker.TaskQueue(name, type="classic")
    exchange, dead = taskiq_broker.TaskExchange(name), taskiq_broker.TaskQueue(f"{name}.dead", type="classic")
    return taskiq_broker.LeveretBroker(
        url, qos=PREFETCH, exchange=exchange, task_queues=[queue], dead_letter_queue=dead
    )


def taskiq_on_aio_pika(url: str, name: str) -> AsyncBroker:
    classic = taskiq_aio_pika.QueueType.CLASSIC
    queue, dead = (taskiq_aio_pika.Queue(name=each, type=classic) for each in (name, f"{name}.dead"))
    exchange = taskiq_aio_pika.Exchange(name)
    broker = taskiq_aio_pika.AioPikaBroker(
        url, qos=PREFETCH, exchange=exchange, task_queues=[queue], dead_letter_queue=dead
    )
    broker.is_worker_process = True
    return broker


async def faststream(broker: RabbitBroker, name: str, count: int) -> tuple[float, float]:
    """Return the rates of publishing and of handling messages."""
    countdown = Countdown(count)
    async with broker:
        await broker.connect()
        sent = await in_windows(lambda number: broker.publish(number, name), count)

        @broker.subscriber(name, channel=Channel(prefetch_count=PREFETCH))
        async def run(number: int) -> None:
            countdown()

        start_s = time.perf_counter()
        await broker.start()
        await countdown.over.wait()
        return sent, count / (time.perf_counter() - start_s)


RUNS: dict[str, list[Callable[[str, str, int], Awaitable[tuple[float, float]]]]] = {
    "Taskiq": [
        lambda url, name, count: taskiq(taskiq_on_leveret(url, name), count),
        lambda url, name, count: taskiq(taskiq_on_aio_pika(url, name), count),
    ],
    "FastStream": [
        lambda url, name, count: faststream(faststream_broker.LeveretBroker(url, logger=None), name, count),
        lambda url, name, count: faststream(RabbitBroker(url, logger=None), name, count),
    ],
}
"""By framework: a run with leveret's client, and one with aio-pika."""


def measure(server: str, url: str, framework: str, count: int, rounds: int) -> None:
    """Run all rounds and print a line for sending and one for running."""
    name = f"bench-{framework}"
    with BlockingConnection(url, reconnect=False) as connection:
        connection.channel().declare_queue(name, arguments={"x-queue-type": "classic"})
        if framework == "Taskiq":  # which declares its own, with a dead-letter queue
            connection.channel().delete_queue(name)
    rates = [[asyncio.run(run(url, name, count)) for run in RUNS[framework]] for _ in range(rounds)]
    for index, what in enumerate(("sent/s", "run/s")):
        ours, theirs = (median(each[client][index] for each in rates) for client in range(2))
        ratio = median(each[0][index] / each[1][index] for each in rates)
        print(f"{server:9} {framework:11} {what:7} {ours:13,.0f} {theirs:10,.0f} {ratio:6.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-rabbitmq", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    print(f"{'broker':9} {'framework':11} {'':7} {'leveret.client':>13} {'aio-pika':>10} {'ratio':>5}")
    with ExitStack() as stack:
        servers = {"leveret": stack.enter_context(LeveretProcess()).url}
        if not options.without_rabbitmq:
            servers["RabbitMQ"] = stack.enter_context(RabbitMQProcess()).url
        for framework in RUNS:
            for server, url in servers.items():
                measure(server, url, framework, options.tasks, options.rounds)


if __name__ == "__main__":
    main()
