"""Metrics: name, type and meaning; and the values that the broker hands to whatever formats them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

RABBITMQS: Final = "rabbitmq_"
# RabbitMQ's prefix of names in /metrics/detailed
DETAILED: Final = "rabbitmq_detailed_"


@dataclass(frozen=True, slots=True)
class Metric:
    """The definition of a metric."""

    name: str  # units last; ..._total for counters
    kind: str  # COUNTER, GAUGE or HISTOGRAM
    help: str  # one sentence
    bounds: tuple[int, ...] = ()  # of a histogram's buckets
    scale: int = 1  # values are divided by it to get the unit of the name


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """Metrics with the same labels that are requested together."""

    name: str  # the family in RabbitMQ's /metrics/detailed
    labels: tuple[str, ...]  # those of the details, if it is summed up
    metrics: tuple[Metric, ...]
    of_objects: bool = False  # one row for each object of clients, so rows are summed up unless details are requested


# values of a group's labels, then one value for each of its metrics; None: no value. A histogram's value is a list: the
# counts of its buckets, then their sum
Value = float | list[int] | None
Row = tuple[tuple[str, ...], tuple[Value, ...]]


def counter(name: str, help: str) -> Metric:
    return Metric(name, COUNTER, help)


def gauge(name: str, help: str) -> Metric:
    return Metric(name, GAUGE, help)


def histogram(name: str, help: str, bounds: tuple[int, ...], scale: int = 1) -> Metric:
    return Metric(name, HISTOGRAM, help, bounds, scale)


def sums(group: MetricGroup, rows: list[Any]) -> tuple[Value, ...]:
    """Add up all rows of a group; metrics without values are 0."""
    return tuple(sum(row[1][index] for row in rows if row[1][index] is not None) for index in range(len(group.metrics)))
