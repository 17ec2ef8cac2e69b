"""The delay scenario: messages with random delays through delay levels of their own; measures how late they arrive."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Final

from leveret.cli.bench.frames import sampled
from leveret.cli.bench.job import BenchJob
from leveret.cli.bench.worker import IDLE_S, Report, Signals, Worker
from leveret.client import BlockingChannel, Properties
from leveret.client.protocol.publishing import PublishEncoder
from leveret.delay import Layout
from leveret.delay.topology import ExchangeDeclaration, QueueDeclaration

CONFIRMS: Final = 1000
SEED: Final = 7


def layout(job: BenchJob) -> Layout:
    """Return a layout in milliseconds, with as many levels as the longest delay needs."""
    return Layout(job.name, unit_ms=1, levels=max(1, int(job.delay_s * 1000).bit_length()))


def declare(job: BenchJob, channel: BlockingChannel) -> None:
    """Declare the delay levels and the destination queue's binding."""
    layout(job).declare_blocking(channel)
    layout(job).bind_destination_blocking(channel, job.queue(0))


def remove(job: BenchJob, channel: BlockingChannel) -> None:
    """Delete the delay levels."""
    for one in layout(job).topology():
        if isinstance(one, QueueDeclaration):
            channel.delete_queue(one.name)
        elif isinstance(one, ExchangeDeclaration):
            channel.delete_exchange(one.name)


def delayer(job: BenchJob, signals: Signals, index: int, number: int, pipe: Pipe) -> Report:
    """Publish messages with random delays up to delay_s, in confirm mode; each body starts with its due time."""
    worker = Worker(job, signals, index, "publisher")
    worker.channel.confirm_select()
    levels, units_max = layout(job), int(job.delay_s * 1000)
    chance = random.Random(SEED + number)
    properties = Properties(delivery_mode=2 if job.persistent else 1)
    encode = PublishEncoder(worker.channel.number, worker.connection.core.frame_max).encode
    filler = bytes(job.size - 8)
    worker.began(pipe)
    goal = job.messages // job.publishers + (number < job.messages % job.publishers) if job.messages else 1 << 62
    interval_ns = int(job.publishers / job.rate * 1e9) if job.rate else 0
    due_ns, sent = time.monotonic_ns(), 0
    while sent < goal and time.monotonic_ns() < worker.end_ns and not signals.stop.is_set():
        while (wait_ns := due_ns - time.monotonic_ns()) > 0 or sent - worker.scanner.confirmed >= CONFIRMS:
            worker.pump(max(wait_ns, 0) / 1e9 or IDLE_S)
        units = chance.randint(0, units_max)
        now_ns = time.monotonic_ns()
        body = (now_ns + units * 1_000_000).to_bytes(8) + filler
        key = levels.routing_key(units, job.queue(0))
        worker.connection.core.send(encode(body, levels.entrance(units), key, properties, False))
        sent += 1
        worker.counted(1, now_ns)
        due_ns += interval_ns
    while worker.scanner.confirmed < sent and not signals.stop.is_set():
        worker.pump(0.1)
    report = worker.ended()
    worker.connection.close()
    return report


def late_consumer(job: BenchJob, signals: Signals, index: int, number: int, pipe: Pipe) -> Report:
    """Consume the messages, and record by how much each one missed its due time."""

    def came(data: bytes, start: int, stride: int, count: int) -> None:
        now_ns = time.monotonic_ns()
        worker.counted(count, now_ns)
        for due_ns, times in sampled(data, start, stride, count):
            worker.report.times.add((now_ns - due_ns) // 1000, times)

    worker = Worker(job, signals, index, "consumer", came)
    worker.channel.consume(job.queue(0), no_ack=True, deliver=worker.scanner.took)
    worker.began(pipe)
    while not signals.stop.is_set():
        worker.pump(IDLE_S)
    report = worker.ended()
    worker.connection.close()
    return report


ROLES: Final[dict[str, Callable[[BenchJob, Signals, int, int, Pipe], Report]]] = {
    "delayer": delayer,
    "late_consumer": late_consumer,
}
