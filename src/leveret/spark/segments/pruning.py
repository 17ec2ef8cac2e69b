"""Spark's filters applied to statistics of row groups, so that groups without matching rows are not read."""

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
"""Columns whose statistics are compared."""
OFFSET_MAX: Final = (1 << 63) - 1
_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass(frozen=True)
class ValueSpan:
    """Values from `low` to `high`, both inclusive; None for no limit."""

    low: Any = None
    high: Any = None

    def meet(self, other: ValueSpan) -> ValueSpan:
        """Return the values in both spans."""
        lows = [each for each in (self.low, other.low) if each is not None]
        highs = [each for each in (self.high, other.high) if each is not None]
        return ValueSpan(max(lows, default=None), min(highs, default=None))

    def touches(self, low: Any, high: Any) -> bool:
        """Whether the span overlaps the range from low to high."""
        return (self.low is None or high >= self.low) and (self.high is None or low <= self.high)


@dataclass(frozen=True)
class Pruning:
    """For each column, the span outside of which no row is wanted; `first` and `end` bound the offsets."""

    spans: dict[str, ValueSpan] = field(default_factory=dict)

    @property
    def first(self) -> int:
        low = self.spans.get("offset", ValueSpan()).low
        return 0 if low is None else max(0, low)

    @property
    def end(self) -> int:
        high = self.spans.get("offset", ValueSpan()).high
        return OFFSET_MAX if high is None else high + 1

    def may_want(self, group: dict[str, Any]) -> bool:
        """Whether a row group may have wanted rows, by the metadata of its leaves."""
        for name, span in self.spans.items():
            column = group.get(LEAVES[name][0])
            statistics = None if column is None else column.statistics
            if statistics is not None and statistics.has_min_max and not span.touches(statistics.min, statistics.max):
                return False
        return True


EVERYTHING: Final = Pruning()


def pruning_of(filters: Iterable[Filter]) -> Pruning:
    """Return the limits that these filters, combined by AND, set on the columns in PRUNED. Spark must still apply the
    filters, since row groups are read or skipped as a whole."""
    found = EVERYTHING
    for each in filters:
        name, span = _span_of(each)
        if span is not None:
            known = found.spans.get(name, ValueSpan())
            found = replace(found, spans={**found.spans, name: known.meet(span)})
    return found


def is_offered() -> bool:
    """Whether Spark asks for filters in this process: a worker of its own that it starts only if
    spark.sql.python.filterPushdown.enabled is true. Elsewhere Spark rejects a reader with pushFilters."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or (main is not None and main.name == _WORKER)


def _span_of(each: Filter) -> tuple[str, ValueSpan | None]:
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    name = attribute[0] if len(attribute) == 1 else ""
    value = getattr(each, "value", None)
    if name not in PRUNED or value is None:
        return name, None
    if isinstance(each, In):
        values = [_comparable(item) for item in value if item is not None]
        return name, ValueSpan(min(values), max(values)) if values else None
    value = _comparable(value)
    if isinstance(each, EqualTo):
        return name, ValueSpan(value, value)
    # excluding the limit itself makes no difference for row groups, but it does for offsets, which are whole numbers
    step = 1 if name == "offset" else 0
    if isinstance(each, GreaterThan):
        return name, ValueSpan(value + step if step else value, None)
    if isinstance(each, GreaterThanOrEqual):
        return name, ValueSpan(value, None)
    if isinstance(each, LessThan):
        return name, ValueSpan(None, value - step if step else value)
    if isinstance(each, LessThanOrEqual):
        return name, ValueSpan(None, value)
    return name, None


def _comparable(value: Any) -> Any:
    """Return times in UTC, like those of statistics."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return value
