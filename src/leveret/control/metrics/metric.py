"""What a metric is: its name, its type, its meaning; and how numbers travel from the broker to who writes them down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

RABBITMQS: Final = "rabbitmq_"
# what RabbitMQ puts before the names of /metrics/detailed
DETAILED: Final = "rabbitmq_detailed_"


@dataclass(frozen=True, slots=True)
class Metric:
    """name: units last, ..._total for what only grows; kind: COUNTER, GAUGE or HISTOGRAM; help: one sentence.

    bounds: of a histogram's buckets; scale: what its numbers are divided by to be in the unit of the name.
    """

    name: str
    kind: str
    help: str
    bounds: tuple[int, ...] = ()
    scale: int = 1


@dataclass(frozen=True, slots=True)
class Group:
    """Metrics with the same labels, which are asked for together. name: the family of RabbitMQ's /metrics/detailed.

    of_objects: there is a row for each object that clients make, so it is summed up unless details are asked for;
    labels are then those of the details. keeps: labels that stay in the sums.
    """

    name: str
    labels: tuple[str, ...]
    metrics: tuple[Metric, ...]
    of_objects: bool = False


# of a group: values of its labels, then a value for each of its metrics; None: there is nothing to say. A histogram's
# value is a list: how many in each bucket, then their sum
Value = float | list[int] | None
Row = tuple[tuple[str, ...], tuple[Value, ...]]


def counter(name: str, help: str) -> Metric:
    return Metric(name, COUNTER, help)


def gauge(name: str, help: str) -> Metric:
    return Metric(name, GAUGE, help)


def histogram(name: str, help: str, bounds: tuple[int, ...], scale: int = 1) -> Metric:
    return Metric(name, HISTOGRAM, help, bounds, scale)


def sums(group: Group, rows: list[Any]) -> tuple[Value, ...]:
    """All rows of a group as one; what no row has a value for is 0."""
    return tuple(sum(row[1][index] for row in rows if row[1][index] is not None) for index in range(len(group.metrics)))
