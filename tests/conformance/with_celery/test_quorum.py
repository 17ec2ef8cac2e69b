"""Celery on quorum queues: static prefetch counts, and countdowns kept by the broker in 28 levels of delay queues."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from celery import Celery

from ...waiting import DEADLINE_S
from .desk import Desk
from .processes import SOLO, Worker


@pytest.fixture(scope="module")
def worker(broker_url: str) -> Iterator[Worker]:
    with Worker("quorum", broker_url, "quorum", *SOLO) as process:
        yield process


@pytest.fixture
def quorum(client: Callable[[str, str], Celery], broker_url: str) -> Celery:
    return client("quorum", broker_url)


def test_countdown_in_the_broker(quorum: Celery, worker: Worker, desk: Desk) -> None:
    """The message waits in the levels of the bits of its countdown: the worker does not see it before its time."""
    assert "Global QoS is disabled. Prefetch count is now static." in worker.output
    sent_at = time.time()
    result = quorum.tasks["visit"].apply_async((desk.address, "later"), countdown=3)
    quorum.tasks["visit"].delay(desk.address, "now")
    inspect = quorum.control.inspect([worker.hostname], timeout=DEADLINE_S, limit=1)
    assert desk.next().answer()["word"] == "now"
    assert inspect.scheduled() == {worker.hostname: []}
    visit = desk.next().answer("done")
    assert (visit["word"], float(str(visit["at"])) >= sent_at + 3) == ("later", True)
    assert str(visit["routing_key"]).endswith(".1.1.tasks-quorum")
    assert result.get(timeout=DEADLINE_S) == "done"


def test_retries_with_back_off(quorum: Celery, worker: Worker, desk: Desk) -> None:
    """Each retry is a countdown, and passes through the levels again."""
    result = quorum.tasks["back_off"].delay(desk.address)
    attempts = desk.take(3)
    at = [float(str(each["at"])) for each in attempts]
    assert [each["retries"] for each in attempts] == [0, 1, 2]
    assert at[1] - at[0] >= 1
    assert at[2] - at[1] >= 2
    with pytest.raises(Exception, match=r"^$"):
        result.get(timeout=DEADLINE_S)
    assert worker.output.count("Retry in 1s") == worker.output.count("Retry in 2s") == 1
