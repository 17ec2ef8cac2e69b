"""Filters that Spark offers, as what statistics of row groups can tell: rows that can't be wanted need not be read."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from leveret.spark.segments.columns import LEAVES

PRUNED: Final = ("offset", "arrived", "exchange", "routing_key")
"""Columns whose statistics are asked."""
OFFSET_MAX: Final = (1 << 63) - 1
_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass(frozen=True)
class Span:
    """Values from `low` to `high`, both inclusive; None = no limit."""

    low: Any = None
    high: Any = None

    def meet(self, other: Span) -> Span:
        """Values that are in both."""
        lows = [each for each in (self.low, other.low) if each is not None]
        highs = [each for each in (self.high, other.high) if each is not None]
        return Span(max(lows, default=None), min(highs, default=None))

    def touches(self, low: Any, high: Any) -> bool:
        """Whether a value from low to high may be in it."""
        return (self.low is None or high >= self.low) and (self.high is None or low <= self.high)


@dataclass(frozen=True)
class Pruning:
    """Spans of values outside of which no row is wanted, by column. first, end: the offsets that may be wanted."""

    spans: dict[str, Span] = field(default_factory=dict)

    @property
    def first(self) -> int:
        low = self.spans.get("offset", Span()).low
        return 0 if low is None else max(0, low)

    @property
    def end(self) -> int:
        high = self.spans.get("offset", Span()).high
        return OFFSET_MAX if high is None else high + 1

    def may_want(self, group: dict[str, Any]) -> bool:
        """Whether a row group, by the metadata of its leaves, may have a row that is wanted."""
        for name, span in self.spans.items():
            column = group.get(LEAVES[name][0])
            statistics = None if column is None else column.statistics
            if statistics is not None and statistics.has_min_max and not span.touches(statistics.min, statistics.max):
                return False
        return True


EVERYTHING: Final = Pruning()


def pruning_of(filters: Iterable[Filter]) -> Pruning:
    """What these filters, all of which hold, say of the columns in PRUNED. Spark must apply all of them nevertheless: a
    row group is left out whole, or read."""
    found = EVERYTHING
    for each in filters:
        name, span = _span_of(each)
        if span is not None:
            known = found.spans.get(name, Span())
            found = replace(found, spans={**found.spans, name: known.meet(span)})
    return found


def is_offered() -> bool:
    """Whether Spark asks for filters in this process: it starts one of its own for that, and only where
    spark.sql.python.filterPushdown.enabled is true. Elsewhere a reader that could take filters is an error."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or (main is not None and main.name == _WORKER)


def _span_of(each: Filter) -> tuple[str, Span | None]:
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    name = attribute[0] if len(attribute) == 1 else ""
    value = getattr(each, "value", None)
    if name not in PRUNED or value is None:
        return name, None
    if isinstance(each, In):
        values = [_comparable(item) for item in value if item is not None]
        return name, Span(min(values), max(values)) if values else None
    value = _comparable(value)
    if isinstance(each, EqualTo):
        return name, Span(value, value)
    # a limit that is not itself wanted makes no difference to whole row groups, but to offsets, which are numbers
    step = 1 if name == "offset" else 0
    if isinstance(each, GreaterThan):
        return name, Span(value + step if step else value, None)
    if isinstance(each, GreaterThanOrEqual):
        return name, Span(value, None)
    if isinstance(each, LessThan):
        return name, Span(None, value - step if step else value)
    if isinstance(each, LessThanOrEqual):
        return name, Span(None, value)
    return name, None


def _comparable(value: Any) -> Any:
    """Statistics of times are in UTC."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return value
