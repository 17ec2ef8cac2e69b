"""No kill loses a message; nor does one duplicate messages in flows that are exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from .kills.plan import QUEUE, SPOOL, STAGED, STREAM, Step
from .kills.run import Run

pytestmark = [pytest.mark.spark, pytest.mark.needs("minutes"), pytest.mark.timeout(1800)]

# a kill also affects the other flows, at whatever arrow they are
STREAMS = [
    Step(STREAM, "read", "executor"),
    Step(STREAM, "latest", "driver"),
    Step(STAGED, "write", "executor"),
    Step(STREAM, "offsets", "driver"),
    Step(STAGED, "write-end", "broker"),
    Step(STREAM, "write-end", "driver"),
    Step(STAGED, "commit", "driver"),
    Step(STREAM, "read-end", "broker"),
    Step(STAGED, "committed", "driver"),
]
QUEUES = [
    Step(QUEUE, "read-end", "executor"),
    Step(SPOOL, "spool", "driver"),
    Step(QUEUE, "committed", "driver"),
    Step(SPOOL, "acked", "broker"),
    Step(QUEUE, "commits", "driver"),
    Step(QUEUE, "ack", "broker"),
    Step(SPOOL, "ack", "driver"),
    Step(SPOOL, "read", "executor"),
    Step(QUEUE, "acked", "driver"),
]


@pytest.mark.parametrize("steps", [STREAMS, QUEUES], ids=["streams", "queues"])
def test_each_failpoint_once(tmp_path: Path, steps: list[Step]) -> None:
    Run(tmp_path, sorted({step.flow for step in steps}), steps).execute()
