"""What happens to tasks when workers and brokers die, stop and come back."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from celery import Celery
from click.testing import CliRunner

from leveret.cli.ctl.group import command
from leveret.testing.processes import RabbitMQProcess, ServerProcess

from ...waiting import DEADLINE_S, until
from .desk import Desk
from .processes import SOLO, Worker


def delete(app: Celery, queue: str) -> None:
    """Delete a queue, with messages that a stopped worker had no time to acknowledge."""
    with app.connection_for_write() as connection:
        app.amqp.queues[queue](connection.default_channel).delete()


def test_acks_late_and_a_killed_worker(app: Celery, broker_url: str, desk: Desk) -> None:
    """No task of a killed worker is lost: the next worker gets it, marked as redelivered."""
    options = [*SOLO, "-Q", "fragile"]
    result = app.tasks["visit_late"].apply_async((desk.address, "first"), queue="fragile")
    waiting = app.tasks["visit_late"].apply_async((desk.address, "second"), queue="fragile")
    with Worker("stock", broker_url, "killed", *options) as doomed:
        assert (desk.next()["word"], doomed.kill()) == ("first", None)
        with Worker("stock", broker_url, "heir", *options):
            again, second = desk.next().answer("done"), desk.next().answer("done")
            assert [(each["word"], each["redelivered"]) for each in (again, second)] == [
                ("first", True), ("second", True)]
            assert [each.get(timeout=DEADLINE_S) for each in (result, waiting)] == ["done", "done"]
    delete(app, "fragile")


@pytest.mark.usefixtures("worker")
def test_reject_and_requeue(app: Celery, desk: Desk) -> None:
    result = app.tasks["reject"].delay(desk.address, "rejected")
    assert desk.next().answer("requeue")["redelivered"] is False
    assert desk.next().answer("requeue")["redelivered"] is True
    assert desk.next().answer("keep")["redelivered"] is True
    assert result.get(timeout=DEADLINE_S) == "keep"
    app.tasks["reject"].delay(desk.address, "dropped")
    desk.next().answer("drop")
    app.tasks["reject"].delay(desk.address, "the next")
    assert desk.next().answer("keep")["word"] == "the next"


def _is_acknowledged(app: Celery, worker: str) -> bool:
    """Return whether the worker has acknowledged the one task that it runs."""
    active = (app.control.inspect([worker], timeout=DEADLINE_S, limit=1).active() or {}).get(worker, [])
    return [task["acknowledged"] for task in active] == [True]


def test_warm_shutdown(app: Celery, broker_url: str, desk: Desk) -> None:
    """SIGTERM: the running task is finished and its result is sent; prefetched tasks are requeued."""
    results = [app.tasks["visit"].apply_async((desk.address, str(number)), queue="handed-over") for number in range(3)]
    with ExitStack() as stack:
        first = stack.enter_context(Worker("stock", broker_url, "retiring", "--concurrency", "1", "-Q", "handed-over"))
        running = desk.next()
        # otherwise the signal may come before the worker knows that its child works, and the task would run twice
        until(lambda: _is_acknowledged(app, first.hostname))
        first.retire()
        until(lambda: "Warm shutdown" in first.output)
        running.answer("finished")
        assert first.stop() == 0
        assert results[0].get(timeout=DEADLINE_S) == "finished"
        stack.enter_context(Worker("stock", broker_url, "following", *SOLO, "-Q", "handed-over"))
        assert [each["word"] for each in desk.take(2)] == ["1", "2"]
    delete(app, "handed-over")


def test_a_killed_broker(mortal: ServerProcess, client: Callable[[str, str], Celery], desk: Desk) -> None:
    """Tasks survive the broker; worker, clients and remote control reconnect by themselves."""
    app = client("stock", mortal.url)
    app.conf.broker_transport_options = {"confirm_publish": True}
    visit = app.tasks["visit"]
    with Worker("stock", mortal.url, "patient", "--concurrency", "1") as worker:
        app.tasks["visit_late"].delay(desk.address, "running")
        for number in range(10):
            visit.delay(desk.address, str(number))
        visit.apply_async((desk.address, "later"), countdown=1)
        running = desk.next()
        mortal.kill()
        until(lambda: "Connection to broker lost" in worker.output)
        mortal.start()
        running.answer("too late: its acknowledgement belongs to a connection that is gone")
        # some were prefetched before, and are delivered again
        seen = Counter[str]()
        while seen.keys() != {"running", "later", *map(str, range(10))}:
            seen[str(desk.next().answer()["word"])] += 1
        assert seen["running"] >= 1
        assert app.tasks["add"].delay(1, 2).get(timeout=DEADLINE_S) == 3
        worker.idle(client("stock", mortal.url))


def close_connections(broker: ServerProcess) -> None:
    """Close all connections, as an operator does."""
    arguments = ["close_all_connections", "an operator wanted it"]
    if isinstance(broker, RabbitMQProcess):
        program = Path(broker.program() or "").with_name("rabbitmqctl")
        subprocess.run([program, *arguments], env={**os.environ, **broker.environment()}, check=True)
    else:
        done = CliRunner().invoke(command, arguments, env={"LEVERET_DATA_DIR": str(broker.data_dir)})
        assert done.exit_code == 0, done.output


def test_connections_that_an_operator_closes(
    mortal: ServerProcess, client: Callable[[str, str], Celery], desk: Desk
) -> None:
    """Worker and client connect again; the task that ran is delivered again, as its acknowledgement came too late."""
    app = client("stock", mortal.url)
    with Worker("stock", mortal.url, "cut-off", "--concurrency", "1") as worker:
        app.tasks["visit_late"].delay(desk.address, "running")
        running = desk.next()
        close_connections(mortal)
        until(lambda: "Connection to broker lost" in worker.output)
        running.answer("too late")
        app.tasks["visit"].delay(desk.address, "next")
        seen = {str(desk.next().answer()["word"]) for _ in range(2)}
        assert seen == {"running", "next"}
        assert app.tasks["add"].delay(1, 2).get(timeout=DEADLINE_S) == 3
        worker.idle(client("stock", mortal.url))
