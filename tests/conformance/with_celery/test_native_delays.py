"""Countdowns that the broker keeps: Celery's native delayed delivery, on leveret and on RabbitMQ alike.

A worker with quorum queues declares 28 levels of topic exchanges and queues by kombu; tasks with a countdown or an eta
wait there, so no worker holds them. These tests start their own brokers, some of which they kill.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from celery import Celery, states
from celery.exceptions import TaskRevokedError
from kombu import Exchange, Queue
from kombu.transport.native_delayed_delivery import bind_queue_to_native_delayed_delivery_exchange

from leveret.client import BlockingConnection, Properties
from leveret.delay import CELERY, CELERY_CLASSIC, Layout, received
from leveret.testing.processes import LeveretProcess, RabbitMQProcess, ServerProcess

from ...waiting import DEADLINE_S, until
from .app import APPLICATIONS, DELAYED_QUEUES
from .desk import Desk, Visit
from .processes import SOLO, Worker

QUEUES = ",".join([*DELAYED_QUEUES, "to-all"])


@dataclass
class Site:
    """A broker, a worker that consumes all queues of the application `delayed`, and its client side."""

    broker: ServerProcess
    worker: Worker
    app: Celery
    layout: Layout

    def pending(self) -> int:
        """Return how many messages wait in the levels."""
        with BlockingConnection(self.broker.url, reconnect=False) as connection:
            channel = connection.channel()
            names = [self.layout.level_name(level) for level in range(self.layout.levels)]
            return sum(channel.declare_queue(name, passive=True).message_count for name in names)

    def waiting(self, queue: str) -> int:
        """Return how many messages are ready in a queue."""
        with BlockingConnection(self.broker.url, reconnect=False) as connection:
            return connection.channel().declare_queue(queue, passive=True).message_count


BROKERS = {
    "leveret-quorum": (LeveretProcess, "delayed", CELERY),
    "leveret-classic": (LeveretProcess, "delayed_classic", CELERY_CLASSIC),
    "rabbitmq-quorum": (RabbitMQProcess, "delayed", CELERY),
}


@pytest.fixture(
    scope="module",
    params=[
        "leveret-quorum",
        "leveret-classic",
        pytest.param("rabbitmq-quorum", marks=pytest.mark.needs("rabbitmq")),
        # RabbitMQ with classic levels is left out: it loses what is due while it recovers from a kill
    ],
)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    kind, name, layout = BROKERS[request.param]
    with kind(tmp_path_factory.mktemp("broker") / "data") as broker:
        app = APPLICATIONS[name](broker.url)
        with Worker(name, broker.url, "delayed", *SOLO, "-Q", QUEUES) as worker:
            yield Site(broker, worker, app, layout)
        app.close()


def at(visit: Visit) -> float:
    """Return when the task ran, in seconds of the epoch."""
    return float(str(visit["at"]))


def later(site: Site, desk: Desk, word: str, seconds: float, queue: str = "by-topic", task: str = "visit") -> float:
    """Send a task with a countdown; return when it is due, in seconds of the epoch."""
    due = time.time() + seconds
    site.app.tasks[task].apply_async((desk.address, word), countdown=seconds, queue=queue)
    return due


@pytest.mark.parametrize("queue", ["by-topic", "by-fanout"])
def test_countdowns_wait_in_the_broker(site: Site, desk: Desk, queue: str) -> None:
    """They arrive when they are due, in that order; before that, the worker does not see them."""
    due = {word: later(site, desk, word, int(word), queue) for word in ("7", "4", "1")}  # sending may take a while
    inspect = site.app.control.inspect([site.worker.hostname], timeout=DEADLINE_S, limit=1)
    assert inspect.scheduled() == {site.worker.hostname: []}
    for word in sorted(due):
        visit = desk.next().answer()
        assert (visit["word"], visit["redelivered"]) == (word, False)
        assert at(visit) >= due[word]
        assert visit["routing_key"] == site.layout.routing_key(int(word), queue)
    assert site.pending() == 0


def test_an_eta(site: Site, desk: Desk) -> None:
    """Whole seconds of it wait in the broker, the rest in the worker."""
    eta = datetime.now(UTC) + timedelta(seconds=2.9)
    site.app.tasks["visit"].apply_async((desk.address, "eta"), eta=eta)
    site.app.tasks["visit"].apply_async((desk.address, "past"), eta=eta - timedelta(hours=1))
    assert desk.next().answer()["word"] == "past"
    visit = desk.next().answer()
    assert visit["word"] == "eta"
    assert at(visit) >= eta.timestamp()
    assert visit["routing_key"] in [site.layout.routing_key(seconds, "by-topic") for seconds in (1, 2)]


def test_retries_do_not_grow(site: Site, desk: Desk) -> None:
    """Each retry is a new message: its history has only its own hops, its key only its own delay (celery#9867)."""
    site.app.tasks["retry_later"].apply_async((desk.address, "again"), queue="by-topic")
    assert desk.next().answer("1")["deaths"] == []
    due = time.time() + 1
    for attempt, wait_s in enumerate([1, 2, 1, 3, 0, 1]):
        visit = desk.next()
        assert visit["retries"] == attempt + 1
        assert at(visit) >= due
        assert str(visit["routing_key"]).count(".") == site.layout.levels
        assert [count for _, count in visit["deaths"]] in ([1], [1, 1], []), visit["deaths"]  # type: ignore[attr-defined]
        due = time.time() + wait_s
        visit.answer(str(wait_s))
    assert desk.next().answer("enough")["retries"] == 7
    assert site.pending() == 0


def test_a_direct_exchange_is_served_by_the_worker(site: Site, desk: Desk) -> None:
    """A direct exchange cannot match the end of a key: the worker reports that and holds such tasks itself."""
    site.worker.said("Exchange by-key is a direct exchange")
    due = later(site, desk, "held", 4, "by-key")
    inspect = site.app.control.inspect([site.worker.hostname], timeout=DEADLINE_S, limit=1)
    assert [each["request"]["args"][1] for each in inspect.scheduled()[site.worker.hostname]] == ["held"]
    visit = desk.next().answer()
    assert at(visit) >= due
    assert visit["routing_key"] == "by-key"


def test_broadcasts_go_beside_them(site: Site, desk: Desk) -> None:
    """Their queues are neither durable nor quorum queues, and have no delay in the broker (celery#9140)."""
    site.app.tasks["visit"].apply_async((desk.address, "all"), exchange="to-all", queue=site.app.amqp.queues["to-all"])
    assert desk.next().answer()["word"] == "all"


@pytest.mark.parametrize("site", ["leveret-quorum", "leveret-classic"], indirect=True, scope="module")
def test_nobody_consumed_it_when_it_was_due(site: Site, desk: Desk) -> None:
    """A queue that no worker has declared or bound (celery#9912, #9960): the first worker that does so gets its tasks.

    On RabbitMQ they would then wait for three minutes.
    """
    queue = Queue("new", Exchange("new", "topic"), routing_key="new", queue_arguments={"x-queue-type": "quorum"})
    due = time.time() + 1
    site.app.tasks["visit"].apply_async((desk.address, "early bird"), countdown=1, queue=queue)
    behind = later(site, desk, "behind", 1)
    visit = desk.next().answer()
    assert visit["word"] == "behind"
    assert at(visit) >= behind
    with BlockingConnection(site.broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_exchange("new", "topic", durable=True)
        channel.declare_queue("new", durable=True, arguments={"x-queue-type": "quorum"})
        bind_queue_to_native_delayed_delivery_exchange(site.app.connection_for_write(), queue)
        channel.consume("new", no_ack=True)
        delivery = channel.next_delivery(DEADLINE_S)
        assert delivery is not None
        assert json.loads(delivery.body)[0] == [desk.address, "early bird"]
        assert time.time() >= due


def test_a_revoked_task_is_dropped_when_it_is_due(site: Site, desk: Desk) -> None:
    result = site.app.tasks["visit"].apply_async((desk.address, "revoked"), countdown=4)
    told = site.app.control.revoke(
        result.id, reply=True, timeout=DEADLINE_S, limit=1, destination=[site.worker.hostname])
    assert told
    later(site, desk, "kept", 4)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=DEADLINE_S)
    assert result.state == states.REVOKED
    assert desk.next().answer()["word"] == "kept"


def test_nobody_works_when_they_are_due(site: Site, desk: Desk) -> None:
    """They wait in their queues for the worker, which finds the levels declared already."""
    site.worker.stop()
    due = {word: later(site, desk, word, int(word)) for word in ("1", "2")}
    until(lambda: site.waiting("by-topic") == 2)
    assert time.time() >= max(due.values())
    site.worker.start()
    assert [visit["word"] for visit in desk.take(2)] == ["1", "2"]


@pytest.mark.parametrize("site", ["leveret-quorum", "leveret-classic"], indirect=True, scope="module")
def test_a_killed_broker(site: Site, desk: Desk) -> None:
    """Delays continue: nothing is lost, early or twice. A busy RabbitMQ sometimes loses one."""
    due = {str(seconds): later(site, desk, str(seconds), seconds) for seconds in range(1, 9)}
    site.broker.kill()
    killed = time.time()
    site.broker.start()
    seen = Counter[str]()
    while seen.keys() != due.keys():
        visit = desk.next(DEADLINE_S).answer()
        assert at(visit) >= due[str(visit["word"])]
        seen[str(visit["word"])] += 1
    # what was on its way to the worker when the broker died may arrive twice; what was waiting must not
    assert all(seen[word] == 1 for word in due if due[word] > killed)
    assert site.pending() == 0


def test_a_crowd(site: Site) -> None:
    """Four hundred countdowns of one to four seconds, read by leveret's client: none early, none lost, none twice."""
    queue = Queue("crowd", Exchange("crowd", "topic"), routing_key="crowd", queue_arguments={"x-queue-type": "quorum"})
    with BlockingConnection(site.broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_queue("crowd", durable=True, arguments={"x-queue-type": "quorum"})
        site.layout.bind_destination_blocking(channel, "crowd")
        due: dict[str, float] = {}
        with site.app.producer_pool.acquire(block=True) as producer:
            for number in range(400):
                seconds = 1 + number % 4
                due[str(number)] = time.time() + seconds
                options = {"task_id": str(number), "countdown": seconds, "queue": queue, "producer": producer}
                site.app.send_task("any", (number,), **options)
        channel.consume("crowd", no_ack=True)
        seen = set()
        while seen != due.keys():
            delivery = channel.next_delivery(DEADLINE_S)
            assert delivery is not None, f"{len(due.keys() - seen)} are missing"
            task_id = str((delivery.properties.headers or {})["id"])
            assert time.time() >= due[task_id]
            assert task_id not in seen
            seen.add(task_id)
        channel.delete_queue("crowd")
    assert site.pending() == 0


def test_our_delayed_message_is_a_task(site: Site, desk: Desk) -> None:
    """A task in Celery's protocol, sent by leveret's client with its layout."""
    task_id = str(uuid.uuid4())
    headers = {"lang": "py", "task": "visit", "id": task_id, "root_id": task_id, "parent_id": None, "group": None}
    properties = Properties(
        content_type="application/json", content_encoding="utf-8", correlation_id=task_id, headers=headers)
    body = json.dumps([[desk.address, "from us"], {}, {"callbacks": None, "errbacks": None, "chain": None}]).encode()
    with BlockingConnection(site.broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        site.layout.declare_blocking(channel)
        sent_at = time.time()
        site.layout.publish_blocking(channel, body, "by-topic", timedelta(seconds=1.5), properties)
        channel.wait_for_confirms(DEADLINE_S)
    visit = desk.next().answer()
    assert visit["word"] == "from us"
    assert at(visit) >= sent_at + 2  # its units are seconds: rounded up
    assert visit["routing_key"] == site.layout.routing_key(2, "by-topic")


def test_what_celery_delayed_can_be_read(site: Site) -> None:
    """A leveret endpoint, bound as any destination, receives it without traces of the levels."""
    queue = "read-by-us"
    due = time.time() + 1
    with BlockingConnection(site.broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_queue(queue, auto_delete=True, durable=False)
        site.layout.bind_destination_blocking(channel, queue)
        ours = Queue(queue, Exchange(queue, "topic"), routing_key=queue)
        sent = site.app.send_task("anything", (1, "two"), countdown=1, queue=ours)
        channel.consume(queue, no_ack=True)
        delivery = channel.next_delivery(DEADLINE_S)
        assert delivery is not None
        assert time.time() >= due
        properties = received(delivery.properties)
        assert "x-death" in (delivery.properties.headers or {})
        headers = properties.headers or {}
        assert not [name for name in headers if name.startswith("x-")]
        assert (headers["task"], headers["id"]) == ("anything", sent.id)
        assert json.loads(delivery.body)[0] == [1, "two"]
        assert delivery.routing_key == site.layout.routing_key(1, queue)
