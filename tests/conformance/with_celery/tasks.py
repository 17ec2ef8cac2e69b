"""The tasks of the test application. Those that a test must see at work report to a Desk."""

from __future__ import annotations

import signal
import time

from celery import Task, shared_task
from celery.exceptions import Reject, SoftTimeLimitExceeded

from .desk import report


class Flawed(Exception):
    """The exception of tasks that fail on purpose."""


def _report(task: Task, desk: str, word: str) -> str:
    request = task.request
    where = request.delivery_info
    return report(
        desk,
        word=word,
        at=time.time(),
        retries=request.retries,
        redelivered=where["redelivered"],
        exchange=where["exchange"],
        routing_key=where["routing_key"],
        priority=where["priority"],
        hostname=request.hostname,
        deaths=[[each["queue"], each["count"]] for each in (request.headers or {}).get("x-death", [])],
    )


@shared_task(name="add")
def add(one: int, other: int) -> int:
    return one + other


@shared_task(name="total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@shared_task(name="fail")
def fail(word: str) -> None:
    raise Flawed(word)


@shared_task(name="visit", bind=True)
def visit(self: Task, desk: str, word: str) -> str:
    """Report, and return the desk's answer."""
    return _report(self, desk, word)


@shared_task(name="visit_late", bind=True, acks_late=True, reject_on_worker_lost=True)
def visit_late(self: Task, desk: str, word: str) -> str:
    """Report, and return the desk's answer; the message is acknowledged after that."""
    return _report(self, desk, word)


@shared_task(name="visit_parent", bind=True)
def visit_parent(self: Task, desk: str, word: str) -> str:
    """Report, and call a task, which inherits the priority if the settings say so."""
    answer = _report(self, desk, word)
    self.app.send_task("visit", (desk, f"{word}-child"), queue=self.request.delivery_info["routing_key"])
    return answer


@shared_task(name="reject", bind=True, acks_late=True)
def reject(self: Task, desk: str, word: str) -> str:
    """Report; then keep, requeue or drop the message, depending on the desk's answer."""
    answer = _report(self, desk, word)
    if answer != "keep":
        raise Reject("as told", requeue=answer == "requeue")
    return answer


@shared_task(name="back_off", bind=True, autoretry_for=(Flawed,), retry_backoff=1, retry_jitter=False, max_retries=2)
def back_off(self: Task, desk: str) -> None:
    """Fail three times: at once, after a second, after two more seconds."""
    raise Flawed(_report(self, desk, "attempt"))


@shared_task(name="retry_by_hand", bind=True, max_retries=5)
def retry_by_hand(self: Task, desk: str) -> int:
    """Retry at once until the desk answers "enough"; return the number of retries."""
    if _report(self, desk, "attempt") != "enough":
        raise self.retry(countdown=0)
    return int(self.request.retries)


@shared_task(name="retry_later", bind=True, max_retries=50)
def retry_later(self: Task, desk: str, word: str) -> str:
    """Retry after the seconds that the desk answers, until it answers "enough"."""
    answer = _report(self, desk, word)
    if answer != "enough":
        raise self.retry(countdown=int(answer))
    return word


@shared_task(name="long", soft_time_limit=1, time_limit=20)
def long(_: str) -> str:
    try:
        while True:
            signal.pause()
    except SoftTimeLimitExceeded:
        return "soft limit"


@shared_task(name="stubborn", time_limit=1)
def stubborn() -> None:
    while True:
        signal.pause()


@shared_task(name="step", bind=True)
def step(self: Task, steps: int) -> int:
    """Report progress by custom states."""
    for number in range(steps):
        self.update_state(state="PROGRESS", meta={"step": number})
    return steps
