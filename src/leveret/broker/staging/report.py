"""What queries tell the broker of their progress: kept in memory only, for people and metrics."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

REPORTS_MAX: Final = 1000
"""Of one virtual host; the one that was renewed longest ago goes first."""
STREAMS_MAX: Final = 100
TEXT_MAX: Final = 1000
NUMBER_MAX: Final = (1 << 63) - 1


class QueryReport:
    """The progress of a query after its last batch.

    Attributes:
        owner: The user who reported it.
        title: What the query calls itself, "" if nothing.
        checkpoint: Where it keeps its offsets, "" if unknown.
        batch: Number of the batch, -1 if unknown.
        rows: Rows of that batch, -1 if unknown.
        streams: For each stream that it reads, the offset of the first unread message.
        reported_us: When it was reported, in the broker's time.
    """

    def __init__(
        self, owner: str, title: str, checkpoint: str, batch: int, rows: int, streams: dict[str, int], reported_us: i64
    ) -> None:
        self.owner = owner
        self.title = title
        self.checkpoint = checkpoint
        self.batch = batch
        self.rows = rows
        self.streams = streams
        self.reported_us = reported_us


def read_report(fields: dict[str, object], owner: str, now_us: i64) -> QueryReport:
    """Return the report in the fields of an order. Raises ValueError, whose text names the wrong field."""
    streams = fields.get("streams", {})
    if not isinstance(streams, dict) or len(streams) > STREAMS_MAX:
        raise ValueError(f"streams must be an object of at most {STREAMS_MAX} offsets")
    offsets = {
        _text(name, "a name of streams"): _number(offset, "an offset of streams", 0) for name, offset in streams.items()
    }
    return QueryReport(
        owner,
        _text(fields.get("title", ""), "title"),
        _text(fields.get("checkpoint", ""), "checkpoint"),
        _number(fields.get("batch", -1), "batch", -1),
        _number(fields.get("rows", -1), "rows", -1),
        offsets,
        now_us,
    )


def keep(reports: dict[str, QueryReport], name: str, report: QueryReport) -> None:
    """Replace a query's report. The dictionary is in order of the reports' times."""
    reports.pop(name, None)
    reports[name] = report
    if len(reports) > REPORTS_MAX:
        del reports[next(iter(reports))]


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or len(value) > TEXT_MAX:
        raise ValueError(f"{what} must be a string of at most {TEXT_MAX} characters")
    return value


def _number(value: object, what: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= NUMBER_MAX:
        raise ValueError(f"{what} must be an integer from {least} to 2^63-1")
    return value
