"""The kills of a run, and the arrows and guarantees of each flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .on_path.leveret_failpoints import PLANNED, UNPLANNED

STREAM: Final = "stream-to-parquet"
STAGED: Final = "stream-to-leveret"
QUEUE: Final = "queue-to-parquet"
SPOOL: Final = "spool-to-parquet"
FLOWS: Final = (STREAM, STAGED, QUEUE, SPOOL)
EXACT: Final = (STREAM, STAGED, SPOOL)
"""Flows in which no kill may cause duplicates."""

ON_FILES: Final = ("write", "write-end", "committed")
"""Arrows of Parquet's sink, between calls of the JVM, detected by the files that appear."""

EVERYWHERE: Final = ("latest", "offsets", "read", "read-end", "write", "write-end", "committed", "commits")
ARROWS: Final = {
    STREAM: EVERYWHERE,
    STAGED: (*EVERYWHERE, "commit"),
    QUEUE: (*EVERYWHERE, "ack", "acked"),
    SPOOL: (*EVERYWHERE, "spool", "spooled", "ack", "acked"),
}
IN_TASKS: Final = ("read", "read-end", "write", "write-end")
"""Arrows at which there is an executor's Python process to kill."""


@dataclass(frozen=True)
class Step:
    """Kill ``victim`` when ``flow`` passes ``arrow``, after passing it ``skip`` times unharmed."""

    flow: str
    arrow: str
    victim: str
    skip: int = 1

    def __str__(self) -> str:
        return f"{self.victim} at {self.arrow} of {self.flow}"

    @property
    def is_planned(self) -> bool | None:
        """Whether the batch is then in the offset log, but not in the commit log; None: unknown."""
        if self.arrow in PLANNED:
            return True
        return False if self.arrow in UNPLANNED or self.flow == QUEUE else None

    @property
    def is_on_files(self) -> bool:
        """Whether the harness detects this arrow by files."""
        return self.flow != STAGED and self.arrow in ON_FILES


def every_step() -> list[Step]:
    """Return each arrow of each flow with each victim that can die there."""
    steps = []
    for flow, arrows in ARROWS.items():
        for arrow in arrows:
            steps += [Step(flow, arrow, "broker"), Step(flow, arrow, "driver")]
            step = Step(flow, arrow, "executor")
            if arrow in IN_TASKS and not step.is_on_files:
                steps.append(step)
    return steps
