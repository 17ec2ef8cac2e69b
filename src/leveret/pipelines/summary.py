"""The results of a pipeline, for people and programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

Value = int | float | str | None


@dataclass(frozen=True)
class Table:
    """Rows of a summary, each with one value per column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class Summary:
    """What a run has done, or would do.

    Attributes:
        job: the pipeline's name, such as ``archive``.
        figures: counts and measurements by name, units last (``seconds``, ``rows_per_second``), in reading order.
        tables: details in rows.
        notes: sentences for the user: what to do next, where the results are.
        adds_up: false if the run finished and found something wrong; the exit status is then 1.
        is_dry: whether this describes a dry run, which changed nothing.
    """

    job: str
    figures: dict[str, Value]
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    adds_up: bool = True
    is_dry: bool = field(default=False)

    def document(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        return asdict(self)
