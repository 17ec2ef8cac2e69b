"""What a pipeline has done, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

Value = int | float | str | None


@dataclass(frozen=True)
class Table:
    """Rows of a summary, all with as many values as there are columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class Summary:
    """What a run has done, or would do.

    Attributes:
        job: the pipeline's name, ``archive``.
        figures: what it counted and measured, by name, units last (``seconds``, ``rows_per_second``), in the order in
            which people read them.
        tables: more of it in rows.
        notes: sentences for people: what to do next, where the results are.
        adds_up: false where the run has done its work and found something wrong, which the exit status 1 tells.
        is_dry: it says what would be done, and nothing was changed.
    """

    job: str
    figures: dict[str, Value]
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    adds_up: bool = True
    is_dry: bool = field(default=False)

    def document(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        return asdict(self)
