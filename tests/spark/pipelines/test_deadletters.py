"""Nonsensical requests on dead letters are refused before Spark or a broker is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leveret.endpoint import headers
from leveret.pipelines import PipelineError
from leveret.pipelines.dead import letters
from leveret.pipelines.dead.deadletters import deadletters
from leveret.pipelines.dead.sending import home

SENDING: dict[str, Any] = {"queues": ["q"], "where": "true", "checkpoint": "/nowhere"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name either queues of dead letters or a lake"),
        ({"queues": ["q"], "lake": "l"}, "name either queues of dead letters or a lake"),
        ({"queues": ["q", "q"]}, "name each queue once"),
        ({"queues": [""]}, "name each queue once"),
        ({"lake": "l", "send_back": True}, "send them with leveret spark replay"),
        ({**SENDING, "send_back": True, "to_exchange": ""}, "use only one of send back, to exchange and to queue"),
        ({**SENDING, "to_queue": "q"}, "the queue to send to, 'q', is the queue that already holds them"),
        ({**SENDING, "where": None, "send_back": True}, "choose the messages to send with where; 'true' means all"),
        ({**SENDING, "checkpoint": None, "send_back": True}, "sending needs a checkpoint"),
        ({**SENDING, "messages_max": 5, "send_back": True}, "a limit is only for viewing"),
        ({**SENDING, "batch_rows": 0, "send_back": True}, "a micro-batch must have at least 1 message, not 0"),
    ],
)
def test_wrong_arguments(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        deadletters(None, **given)  # type: ignore[arg-type]


def test_what_endpoints_say_of_a_failure_is_known_here() -> None:
    names = [value for name, value in vars(headers).items() if name.isupper() and isinstance(value, str)]
    assert {name for name in names if headers.is_of_failure(name)} - {headers.EXCEPTION} <= set(letters.OF_FAILURE)
    assert letters.EXCEPTION == headers.EXCEPTION_TYPE


@pytest.mark.parametrize("queue", ["..", "a/b", ".", "flights.dead"])
def test_each_queue_has_a_directory_of_its_own(queue: str) -> None:
    found = home(Path("/data"), queue)
    assert found.parent == Path("/data")
    assert found.name not in (".", "..")
