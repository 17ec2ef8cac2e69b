"""Countdowns without native delayed delivery: the worker gets such tasks at once and holds them unacknowledged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from celery import Celery

from leveret.client import BlockingConnection
from leveret.testing.processes import LeveretProcess, ServerProcess

from ...waiting import DEADLINE_S, until
from ..test_consumer_timeout import TIMEOUT_MS, ImpatientRabbitMQ
from .desk import Desk
from .processes import SOLO, Worker

Client = Callable[[str, str], Celery]


def scheduled(app: Celery, worker: Worker) -> int:
    """Return how many tasks the worker holds."""
    inspect = app.control.inspect([worker.hostname], timeout=DEADLINE_S, limit=1)
    return len((inspect.scheduled() or {}).get(worker.hostname, []))


@pytest.mark.parametrize("stop", ["kill", "stop"])
def test_they_outlive_a_broker(mortal: ServerProcess, client: Client, desk: Desk, stop: str) -> None:
    """After a restart each task is delivered again, to any worker, and runs when it is due; none is lost."""
    app = client("stock", mortal.url)
    app.conf.broker_transport_options = {"confirm_publish": True}
    eta = datetime.now(UTC) + timedelta(seconds=8)
    with Worker("stock", mortal.url, "holding", *SOLO) as worker:
        words = {str(number) for number in range(12)}  # more than the worker prefetches at its start
        for word in words:
            app.tasks["visit"].apply_async((desk.address, word), eta=eta)
        until(lambda: scheduled(app, worker) == len(words))
        getattr(mortal, stop)()
        mortal.start()
        seen = Counter[str]()
        while seen.keys() != words:
            visit = desk.next(DEADLINE_S).answer()
            assert float(str(visit["at"])) >= eta.timestamp()
            seen[str(visit["word"])] += 1
        assert set(seen.values()) == {1}  # the worker dropped what the broker requeued
        worker.idle(client("stock", mortal.url))


@pytest.fixture(params=["leveret", pytest.param("rabbitmq", marks=pytest.mark.needs("rabbitmq"))])
def impatient(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A broker that requeues what a consumer has held for TIMEOUT_MS."""
    if request.param == "rabbitmq":
        broker: ServerProcess = ImpatientRabbitMQ()
    else:
        broker = LeveretProcess(arguments=["--consumer-timeout-ms", str(TIMEOUT_MS)])
    with broker:
        yield broker


def test_held_for_too_long(impatient: ServerProcess, client: Client, desk: Desk) -> None:
    """The broker's consumer timeout closes the worker's channel, and requeues the task for another worker.

    That is why long countdowns need native delayed delivery: Celery's manual says to raise the timeout otherwise.
    """
    app = client("stock", impatient.url)
    app.tasks["visit"].apply_async((desk.address, "held"), countdown=3600)
    with Worker("stock", impatient.url, "late", *SOLO) as worker:
        said = worker.said("PRECONDITION_FAILED", DEADLINE_S)
        assert f"timed out. Timeout value used: {TIMEOUT_MS} ms." in said
        worker.kill()
    with BlockingConnection(impatient.url, reconnect=False) as connection:
        channel = connection.channel()
        delivery = until(partial(channel.get, "celery", no_ack=True))
        assert delivery.redelivered
        assert (delivery.properties.headers or {})["task"] == "visit"
