"""Dramatiq unpatched, with its RabbitmqBroker on pika, on leveret and RabbitMQ."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import dramatiq
import pika
import pytest
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.middleware import Retries
from pika.adapters.blocking_connection import BlockingChannel

from ..waiting import DEADLINE_S, until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def name() -> str:
    """The name of a task queue that no other test uses."""
    return f"dramatiq-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def channel(url: str, name: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        yield channel
        for suffix in ("", ".DQ", ".XQ", ".reports"):
            channel.queue_delete(name + suffix)


@pytest.fixture
def tasks(url: str) -> Iterator[RabbitmqBroker]:
    broker = RabbitmqBroker(url=url, confirm_delivery=True, max_priority=10, middleware=[Retries(min_backoff=1)])
    yield broker
    broker.close()


@pytest.fixture
def worker(tasks: RabbitmqBroker) -> Iterator[dramatiq.Worker]:
    """A worker with one thread; the test starts it."""
    worker = dramatiq.Worker(tasks, worker_threads=1)
    yield worker
    worker.stop()


def test_tasks_run(tasks: RabbitmqBroker, worker: dramatiq.Worker, name: str, channel: BlockingChannel) -> None:
    results: queue.Queue[int] = queue.Queue()
    square = dramatiq.actor(lambda number: results.put(number**2), actor_name=name, queue_name=name, broker=tasks)
    for number in range(10):
        square.send(number)
    worker.start()
    assert sorted(results.get(timeout=DEADLINE_S) for _ in range(10)) == [number**2 for number in range(10)]


def test_a_delayed_task_is_held_by_the_worker(
    tasks: RabbitmqBroker, worker: dramatiq.Worker, name: str, channel: BlockingChannel
) -> None:
    """Delayed tasks go to a queue NAME.DQ; workers take them at once and hold them until they are due."""
    results: queue.Queue[float] = queue.Queue()
    late = dramatiq.actor(lambda: results.put(time.time()), actor_name=name, queue_name=name, broker=tasks)
    sent_s = time.time()
    late.send_with_options(delay=200)
    assert channel.queue_declare(f"{name}.DQ", passive=True).method.message_count == 1
    worker.start()
    assert results.get(timeout=DEADLINE_S) >= sent_s + 0.199  # its clock has whole milliseconds


def test_a_task_that_fails_is_retried_and_then_dead_lettered(
    tasks: RabbitmqBroker, worker: dramatiq.Worker, name: str, channel: BlockingChannel
) -> None:
    attempts: queue.Queue[int] = queue.Queue()

    def fail() -> None:
        attempts.put(1)
        raise RuntimeError("an error that the test expects")

    dramatiq.actor(fail, actor_name=name, queue_name=name, broker=tasks, max_retries=2, max_backoff=1).send()
    worker.start()
    assert [attempts.get(timeout=DEADLINE_S) for _ in range(3)] == [1, 1, 1]
    dead = until(lambda: channel.basic_get(f"{name}.XQ", auto_ack=True)[1])
    assert dead.headers["x-death"][0]["reason"] == "rejected"


def test_priorities(tasks: RabbitmqBroker, worker: dramatiq.Worker, name: str, channel: BlockingChannel) -> None:
    results: queue.Queue[int] = queue.Queue()
    take = dramatiq.actor(results.put, actor_name=name, queue_name=name, broker=tasks)
    for priority in (1, 9, 5):
        take.send_with_options(args=(priority,), broker_priority=priority)
    worker.start()
    assert [results.get(timeout=DEADLINE_S) for _ in range(3)] == [9, 5, 1]


def test_the_task_of_a_killed_worker_is_delivered_again(url: str, name: str, channel: BlockingChannel) -> None:
    channel.queue_declare(f"{name}.reports", durable=True)
    broker = RabbitmqBroker(url=url, confirm_delivery=True, middleware=[])
    report = dramatiq.actor(lambda is_hanging: None, actor_name="report", queue_name=name, broker=broker)
    report.send(True)
    broker.close()
    pids = []
    for _ in range(2):
        command = [sys.executable, "-m", "dramatiq", "-p", "1", "-t", "1", "tests.interop.dramatiq_app"]
        given = {"DRAMATIQ_URL": url, "DRAMATIQ_NAME": name, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        with subprocess.Popen(
            command, env={**os.environ, **given}, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
        ) as process:
            pids.append(int(until(lambda: channel.basic_get(f"{name}.reports", auto_ack=True)[2])))
            os.killpg(process.pid, signal.SIGKILL)
    assert pids[0] != pids[1]
