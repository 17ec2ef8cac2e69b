"""Queues and routes of several kinds, broadcasts, and priorities."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from celery import Celery

from ...waiting import DEADLINE_S
from .desk import Desk
from .processes import SOLO, Worker


@pytest.fixture(scope="module")
def pair(broker_url: str) -> Iterator[list[Worker]]:
    """Two workers with one process each; a broadcast reaches both."""
    options = [*SOLO, "-Q", "feeds,videos,everybody"]
    with (
        Worker("routed", broker_url, "first", *options) as first,
        Worker("routed", broker_url, "second", *options) as second,
    ):
        yield [first, second]


@pytest.fixture
def routed(client: Callable[[str, str], Celery], broker_url: str) -> Celery:
    return client("routed", broker_url)


@pytest.mark.usefixtures("pair")
def test_routes(routed: Celery, desk: Desk) -> None:
    visit, late = routed.tasks["visit"], routed.tasks["visit_late"]
    for given, exchange, key in [
        ({}, "kinds", "feed.#"),
        ({"routing_key": "feed.news.sport"}, "kinds", "feed.news.sport"),
        ({"queue": "videos"}, "", "videos"),
        ({"exchange": "videos", "routing_key": "video"}, "videos", "video"),
    ]:
        visit.apply_async((desk.address, ""), **given)
        [visit_] = desk.take(1)
        assert (visit_["exchange"], visit_["routing_key"]) == (exchange, key)
    late.delay(desk.address, "by its name")
    assert desk.next().answer()["routing_key"] == "videos"
    assert routed.tasks["add"].delay(1, 1).get(timeout=DEADLINE_S) == 2


def test_broadcast(routed: Celery, pair: list[Worker], desk: Desk) -> None:
    """Each worker has its own queue, which is deleted with it."""
    routed.tasks["visit"].apply_async((desk.address, "all"), queue="everybody")
    assert {str(each["hostname"]) for each in desk.take(2)} == {each.hostname for each in pair}


def test_priorities(routed: Celery, broker_url: str, desk: Desk) -> None:
    """Waiting tasks are taken by priority; a task that another one calls inherits its priority."""
    urgent = routed.amqp.queues["urgent"]
    with routed.connection_for_write() as connection:
        urgent(connection.default_channel).declare()
    for priority in (3, 9, None, 0, 5, 20, 8):
        task = routed.tasks["visit_parent" if priority == 5 else "visit"]
        task.apply_async((desk.address, f"{priority}"), queue="urgent", priority=priority)
    with Worker("routed", broker_url, "urgent", *SOLO, "-Q", "urgent"):
        visits = {str(each["word"]): each for each in desk.take(8)}
    order = list(visits)
    # it is published on another connection than the one that consumes, so its position is not certain
    assert visits["5-child"]["priority"] == 5
    order.remove("5-child")
    # a priority above the maximum counts as the maximum, a missing one as 0, and equal ones keep their order
    assert order == ["20", "9", "8", "5", "3", "None", "0"]


def test_stock_priority_setting(client: Callable[[str, str], Celery], broker_url: str) -> None:
    """`task_queue_max_priority` is an argument of the queue: another value needs another queue."""
    app = client("stock", broker_url)
    app.conf.update(task_queue_max_priority=10, task_default_priority=5, task_default_queue="levelled")
    levelled = app.amqp.queues["levelled"]
    app.tasks["add"].delay(1, 1)
    with app.connection_for_write() as connection:
        message = levelled(connection.default_channel).get(accept=["json"])
        assert message.properties["priority"] == 5
        message.ack()
        levelled(connection.default_channel).delete()
