"""When tasks run: countdown, eta, expiry, retries, beat."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from celery import Celery, states
from celery.exceptions import TaskRevokedError

from ...waiting import DEADLINE_S, until
from .desk import Desk
from .processes import Beat

pytestmark = pytest.mark.usefixtures("worker")


def test_countdown_and_eta(app: Celery, desk: Desk) -> None:
    """The worker holds such tasks unacknowledged, and prefetches one more for each, so others overtake them."""
    visit = app.tasks["visit"]
    eta = datetime.now(UTC) + timedelta(seconds=1)
    visit.apply_async((desk.address, "eta"), eta=eta)
    sent_at = time.time()
    visit.apply_async((desk.address, "countdown"), countdown=1.5)
    # as many again as the worker's prefetch count at its start, which is 8
    for number in range(8):
        visit.apply_async((desk.address, f"much later {number}"), countdown=3600)
    visit.delay(desk.address, "now")
    at = {visit["word"]: float(str(visit["at"])) for visit in desk.take(3)}
    assert set(at) == {"now", "eta", "countdown"}
    assert at["eta"] >= eta.timestamp()
    assert at["countdown"] >= sent_at + 1.5
    app.control.purge()


def test_expired_tasks_are_not_run(app: Celery) -> None:
    """`expires` is also the message's expiration: the broker drops it if no worker takes it in time."""
    add, nobody = app.tasks["add"], "nobody-looks"
    assert add.apply_async((1, 1), expires=60).get(timeout=DEADLINE_S) == 2
    for expires in (0, 600):
        add.apply_async((1, 1), queue=nobody, expires=expires)
    with app.connection_for_write() as connection:
        queue = app.amqp.queues[nobody](connection.default_channel)
        message = until(queue.get)
        assert message.properties["expiration"] == "600000"
        message.ack()
        assert queue.delete() == 0


def test_expired_on_arrival(app: Celery) -> None:
    """A task that reaches the worker too late is revoked, and its caller is told."""
    result = app.tasks["add"].apply_async((1, 1), countdown=0.5, expires=datetime.now(UTC) + timedelta(seconds=0.4))
    with pytest.raises(TaskRevokedError, match="expired"):
        result.get(timeout=DEADLINE_S)


def test_retries_with_back_off(app: Celery, desk: Desk) -> None:
    result = app.tasks["back_off"].delay(desk.address)
    attempts = desk.take(3)
    with pytest.raises(Exception, match=r"^$"):
        result.get(timeout=DEADLINE_S)
    assert result.state == states.FAILURE
    assert [each["retries"] for each in attempts] == [0, 1, 2]
    at = [float(str(each["at"])) for each in attempts]
    assert at[1] - at[0] >= 1
    assert at[2] - at[1] >= 2


def test_retry_by_hand(app: Celery, desk: Desk) -> None:
    result = app.tasks["retry_by_hand"].delay(desk.address)
    for number in range(3):
        attempt = desk.next()
        assert attempt["retries"] == number
        attempt.answer("enough" if number == 2 else "again")
    assert result.get(timeout=DEADLINE_S) == 2


def test_beat(broker_url: str, desk: Desk) -> None:
    """Three times, so that it is a schedule; after a restart, beat continues with the same file."""
    with Beat(broker_url, desk.address) as beat:
        at = [float(str(each["at"])) for each in desk.take(3)]
        assert at[2] - at[0] >= 0.5
        beat.stop()
        beat.start()
        assert desk.next().answer()["word"] == "tick"
