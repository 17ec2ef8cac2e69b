"""Tasks and their results by rpc://."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from celery import Celery, chain, group, states
from celery.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from ...waiting import DEADLINE_S, until
from .desk import Desk

pytestmark = pytest.mark.usefixtures("worker")


def test_a_result(app: Celery) -> None:
    assert app.tasks["add"].delay(2, 3).get(timeout=DEADLINE_S) == 5


def test_many_results_come_to_their_callers(app: Celery) -> None:
    """One reply queue serves all callers; results are read in another order than the tasks were sent."""
    asked = [(number, app.tasks["add"].delay(number, number)) for number in range(200)]
    for number, result in reversed(asked):
        assert result.get(timeout=DEADLINE_S) == 2 * number


def test_group_and_chain(app: Celery) -> None:
    add, total = app.tasks["add"], app.tasks["total"]
    together = group(add.s(number, 1) for number in range(20)).apply_async()
    assert together.get(timeout=DEADLINE_S) == [number + 1 for number in range(20)]
    in_turn = chain(add.s(1, 2), add.s(10), add.s(100)).apply_async()
    assert in_turn.get(timeout=DEADLINE_S) == 113
    assert [each.get(timeout=DEADLINE_S) for each in (in_turn.parent, in_turn.parent.parent)] == [13, 3]
    assert total.delay([1, 2, 3]).get(timeout=DEADLINE_S) == 6


def test_failure(app: Celery) -> None:
    result = app.tasks["fail"].delay("as told")
    with pytest.raises(Exception, match="as told") as failure:
        result.get(timeout=DEADLINE_S)
    assert (type(failure.value).__name__, result.state) == ("Flawed", states.FAILURE)
    assert "raise Flawed(word)" in result.traceback


def test_progress(app: Celery) -> None:
    """Each state is a separate message; they arrive in order."""
    seen: list[dict[str, object]] = []
    assert app.tasks["step"].delay(3).get(timeout=DEADLINE_S, on_message=seen.append) == 3
    assert [(each["status"], each["result"]) for each in seen] == [
        *(("PROGRESS", {"step": number}) for number in range(3)), (states.SUCCESS, 3)]


def test_results_are_asked_for_by_polling(client: Callable[[str, str], Celery], broker_url: str, desk: Desk) -> None:
    """A caller that never waits does not consume its reply queue, but reads it by basic.get."""
    app = client("stock", broker_url)
    result = app.tasks["visit"].delay(desk.address, "hello")
    visit = desk.next()
    assert result.state == states.PENDING
    visit.answer("good bye")
    until(lambda: result.state == states.SUCCESS)
    assert result.result == "good bye"


@pytest.mark.parametrize(
    ("name", "arguments", "outcome"), [("long", [""], SoftTimeLimitExceeded), ("stubborn", [], TimeLimitExceeded)])
def test_time_limits(app: Celery, name: str, arguments: list[str], outcome: type[Exception]) -> None:
    """A soft limit raises an exception in the task; a hard one kills the process, and the worker continues."""
    result = app.tasks[name].apply_async(arguments)
    if outcome is SoftTimeLimitExceeded:
        assert result.get(timeout=DEADLINE_S) == "soft limit"
    else:
        with pytest.raises(outcome):
            result.get(timeout=DEADLINE_S)
    assert app.tasks["add"].delay(1, 1).get(timeout=DEADLINE_S) == 2


def test_a_big_message(app: Celery) -> None:
    numbers = list(range(200_000))  # more than a megabyte of JSON, ten frames
    assert app.tasks["total"].delay(numbers).get(timeout=DEADLINE_S) == sum(numbers)
