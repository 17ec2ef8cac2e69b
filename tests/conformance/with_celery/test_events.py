"""The events of workers and tasks, by a topic exchange, which Flower and similar tools need."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from queue import Queue

import pytest
from celery import Celery
from celery.events import EventReceiver

from ...waiting import DEADLINE_S
from .processes import SOLO, Worker


class Events:
    """An event receiver with its own thread, because it blocks."""

    def __init__(self, app: Celery) -> None:
        self._connection = app.connection_for_read()
        self._seen: Queue[dict[str, object]] = Queue()
        self._receiver: EventReceiver = app.events.Receiver(self._connection, handlers={"*": self._seen.put})
        self._thread = threading.Thread(target=self._receiver.capture, name="events")
        self._thread.start()

    def wait(self, *kinds: str, **told: object) -> list[dict[str, object]]:
        """Return the next event of each of these kinds with these fields, and skip others.

        They may arrive in any order, because sender and worker use separate connections.
        """
        found: dict[str, dict[str, object]] = {}
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < len(kinds):  # or queue.Empty at the deadline
            event = self._seen.get(timeout=max(deadline - time.monotonic(), 0))
            kind = str(event["type"])
            if kind in kinds and told.items() <= event.items():
                found.setdefault(kind, event)
        return [found[kind] for kind in kinds]

    def close(self) -> None:
        self._receiver.should_stop = True
        self._thread.join()
        self._connection.release()


def told(app: Celery, worker: Worker, command: str) -> object:
    [reply] = app.control.broadcast(command, destination=[worker.hostname], reply=True, timeout=DEADLINE_S, limit=1)
    return reply[worker.hostname]


@pytest.fixture
def events(app: Celery, worker: Worker) -> Iterator[Events]:
    """The events of all workers; `worker` also sends events of its tasks, which is off by default."""
    assert told(app, worker, "enable_events") == {"ok": "task events enabled"}
    events = Events(app)
    # a receiver starts by asking all workers for a heartbeat; after one has arrived it sees everything
    events.wait("worker-heartbeat", hostname=worker.hostname)
    yield events
    events.close()
    told(app, worker, "disable_events")


def test_a_task_from_its_sender_to_its_end(
    client: Callable[[str, str], Celery], broker_url: str, worker: Worker, events: Events
) -> None:
    app = client("stock", broker_url)
    app.conf.task_send_sent_event = True
    result = app.tasks["add"].delay(1, 2)
    sent, *done = events.wait("task-sent", "task-received", "task-started", "task-succeeded", uuid=result.id)
    assert (sent["name"], sent["queue"], sent["args"]) == ("add", "celery", "(1, 2)")
    assert {each["hostname"] for each in done} == {worker.hostname}
    succeeded = done[-1]
    assert succeeded["result"] == "3"


def test_failed_and_revoked(app: Celery, events: Events) -> None:
    failed = app.tasks["fail"].delay("as told")
    [event] = events.wait("task-failed", uuid=failed.id)
    assert event["exception"] == "Flawed('as told')"
    revoked = app.tasks["add"].apply_async((1, 1), countdown=0.2)
    revoked.revoke()
    events.wait("task-revoked", uuid=revoked.id)


def test_workers_come_and_go(broker_url: str, events: Events) -> None:
    with Worker("stock", broker_url, "guest", "-E", *SOLO) as guest:
        events.wait("worker-online", hostname=guest.hostname)
        guest.stop()
        events.wait("worker-offline", hostname=guest.hostname)


def test_events_of_tasks_switched_off_and_on(app: Celery, worker: Worker, events: Events) -> None:
    assert told(app, worker, "disable_events") == {"ok": "task events disabled"}
    assert app.tasks["add"].delay(1, 1).get(timeout=DEADLINE_S) == 2
    assert told(app, worker, "enable_events") == {"ok": "task events enabled"}
    seen = app.tasks["add"].delay(2, 2)
    [received] = events.wait("task-received")
    assert received["uuid"] == seen.id
