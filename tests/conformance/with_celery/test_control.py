"""Remote control of running workers by a fanout exchange and reply queues, and the output of Celery's commands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from celery import Celery, states
from celery.exceptions import TaskRevokedError

from ...waiting import DEADLINE_S, until
from .desk import Desk
from .processes import Worker, celery


def asked(app: Celery, worker: Worker, question: str, *arguments: object, **more: object) -> Any:
    """Return this worker's answer to a query."""
    replies = getattr(app.control.inspect([worker.hostname], timeout=DEADLINE_S, limit=1), question)(*arguments, **more)
    assert list(replies) == [worker.hostname]
    return replies[worker.hostname]


def told(app: Celery, worker: Worker, command: str, *arguments: object, **more: object) -> Any:
    """Return this worker's answer to a command."""
    more |= {"destination": [worker.hostname], "reply": True, "timeout": DEADLINE_S, "limit": 1}
    [reply] = getattr(app.control, command)(*arguments, **more)
    return reply[worker.hostname]


def test_ping(app: Celery, worker: Worker) -> None:
    assert asked(app, worker, "ping") == {"ok": "pong"}
    [reply] = app.control.ping([worker.hostname], timeout=DEADLINE_S, limit=1)
    assert reply == {worker.hostname: {"ok": "pong"}}


def test_inspect(app: Celery, worker: Worker, transport: str) -> None:
    stats = asked(app, worker, "stats")
    assert (stats["broker"]["transport"], len(stats["pool"]["processes"])) == (transport, 2)
    assert "add" in asked(app, worker, "registered")
    [queue] = asked(app, worker, "active_queues")
    assert (queue["name"], queue["exchange"]["type"], queue["durable"]) == ("celery", "direct", True)
    assert asked(app, worker, "conf")["result_backend"] == "rpc://"


def test_active_reserved_scheduled(app: Celery, worker: Worker, desk: Desk) -> None:
    visit = app.tasks["visit"]
    results = [visit.delay(desk.address, str(number)) for number in range(3)]
    prefetch = asked(app, worker, "stats")["prefetch_count"]
    later = visit.apply_async((desk.address, "later"), countdown=3600)
    running = [desk.next(), desk.next()]
    assert {each["id"] for each in asked(app, worker, "active")} <= {each.id for each in results}
    until(lambda: later.id in [each["request"]["id"] for each in asked(app, worker, "scheduled")])
    assert asked(app, worker, "stats")["prefetch_count"] == prefetch + 1
    [found] = asked(app, worker, "query_task", later.id).values()
    assert found[0] == "scheduled"
    later.revoke()
    for each in running:
        each.answer()
    desk.take(1)
    for result in results:
        result.get(timeout=DEADLINE_S)
    assert later.id in asked(app, worker, "revoked")


def test_revoke_before_and_while_it_runs(app: Celery, worker: Worker, desk: Desk) -> None:
    never = app.tasks["visit"].apply_async((desk.address, "never"), countdown=2)
    never.revoke()
    running = app.tasks["visit"].delay(desk.address, "killed")
    visit = desk.next()
    assert visit["word"] == "killed"
    running.revoke(terminate=True, signal="SIGKILL")
    with pytest.raises(TaskRevokedError, match="terminated"):
        running.get(timeout=DEADLINE_S)
    with pytest.raises(TaskRevokedError, match="revoked"):
        never.get(timeout=DEADLINE_S)
    assert running.state == never.state == states.REVOKED


def test_add_and_cancel_consumer(app: Celery, worker: Worker, desk: Desk) -> None:
    queue = "added-later"
    result = app.tasks["visit"].apply_async((desk.address, "waits for a worker"), queue=queue)
    assert told(app, worker, "add_consumer", queue) == {"ok": f"add consumer {queue}"}
    assert desk.next().answer("came")["routing_key"] == queue
    assert result.get(timeout=DEADLINE_S) == "came"
    assert [each["name"] for each in asked(app, worker, "active_queues")] == ["celery", queue]
    assert told(app, worker, "cancel_consumer", queue) == {"ok": f"no longer consuming from {queue}"}
    with app.connection_for_write() as connection:
        declared = app.amqp.queues[queue](connection.default_channel)
        # the worker answers before it cancels its consumer
        until(lambda: declared.queue_declare(passive=True).consumer_count == 0, "it still consumes")
        waits = app.tasks["visit"].apply_async((desk.address, "stays"), queue=queue)
        assert app.tasks["add"].delay(1, 1).get(timeout=DEADLINE_S) == 2
        assert waits.state == states.PENDING
        assert app.amqp.queues[queue](connection.default_channel).delete() == 1


def test_rate_limit_and_time_limit(app: Celery, worker: Worker) -> None:
    """A rate-limited task waits unacknowledged in the worker until it may run."""
    assert told(app, worker, "rate_limit", "add", "2/s") == {"ok": "new rate limit set successfully"}
    results = [app.tasks["add"].delay(number, 0) for number in range(4)]
    assert [each.get(timeout=DEADLINE_S) for each in results] == [0, 1, 2, 3]
    assert told(app, worker, "rate_limit", "add", 0) == {"ok": "rate limit disabled successfully"}
    assert told(app, worker, "time_limit", "add", 30, 60) == {"ok": "time limits set successfully"}


def test_pool_grows_and_shrinks(app: Celery, worker: Worker) -> None:
    """The channel's prefetch count follows the number of processes, and the channel stays open."""

    def prefetch() -> int:
        return int(asked(app, worker, "stats")["prefetch_count"])

    before = prefetch()
    assert told(app, worker, "pool_grow", 1) == {"ok": "pool will grow"}
    assert prefetch() == before + 4
    assert app.tasks["add"].delay(1, 1).get(timeout=DEADLINE_S) == 2
    worker.idle(app)  # the result arrives before the worker knows that its process is idle
    assert told(app, worker, "pool_shrink", 1) == {"ok": "pool will shrink"}
    assert prefetch() == before


def test_commands(worker: Worker, broker_url: str) -> None:
    only = ["--destination", worker.hostname, "--timeout", "10"]
    replies = json.loads(celery("stock", broker_url, "inspect", *only, "--json", "ping"))
    assert replies == {worker.hostname: {"ok": "pong"}}
    assert f"->  {worker.hostname}: OK" in celery("stock", broker_url, "status", *only)


def test_purge(app: Celery, broker_url: str) -> None:
    for number in range(3):
        app.tasks["add"].apply_async((number, 0), queue="to-purge")
    assert "Purged 3 messages from 1 known task queue." in celery("stock", broker_url, "purge", "-f", "-Q", "to-purge")
    with app.connection_for_write() as connection:
        assert app.amqp.queues["to-purge"](connection.default_channel).delete() == 0
