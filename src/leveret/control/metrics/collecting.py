"""Collects the rows of groups of metrics, in slices, as there may be 50,000 queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.control.metrics.metric import Row, Value
from leveret.control.metrics.of_features import FEATURE_ROWS, RowsWithPauses
from leveret.control.metrics.of_node import NODE_ROWS, OF_SUMS
from leveret.control.metrics.of_objects import OBJECT_ROWS, SUMMED, Rows
from leveret.control.metrics.scope import Scope
from leveret.control.metrics.table import BY_NAME
from leveret.control.sliced import Steps

ROWS: Final[dict[str, Rows | RowsWithPauses]] = OBJECT_ROWS | NODE_ROWS | FEATURE_ROWS
# rows added up without a pause: estimating the size of a queue's messages means looking at some of them
ROWS_MAX: Final = 16

Item = tuple[str, tuple[str, ...], tuple[Value, ...]]
"""A group's name, and a row of the group."""


def collect(scope: Scope, groups: list[str]) -> Steps[Iterator[Item]]:
    """Collect the rows of these groups. In detail, rows of objects are made while they are sent."""
    is_summed = not scope.is_detailed and not SUMMED.keys().isdisjoint(groups)
    if is_summed or not OF_SUMS.isdisjoint(groups):
        yield from scope.add_up()
    found: list[Item] = []
    later: list[str] = []
    for name in groups:
        if not BY_NAME[name].of_objects:
            for row in ROWS[name](scope):
                if row is None:
                    yield
                else:
                    found.append((name, *row))
        elif scope.is_detailed:
            later.append(name)
        elif name in SUMMED:
            found.append((name, (), SUMMED[name](scope.sums)))
        else:
            found.append((name, (), (yield from _sum(name, scope))))
        yield
    return _one_after_the_other(found, later, scope)


def _one_after_the_other(found: list[Item], later: list[str], scope: Scope) -> Iterator[Item]:
    yield from found
    for name in later:
        for row in OBJECT_ROWS[name](scope):
            yield (name, *row)


def _sum(name: str, scope: Scope) -> Steps[tuple[Value, ...]]:
    total = [0.0] * len(BY_NAME[name].metrics)
    rows: Iterator[Row] = OBJECT_ROWS[name](scope)
    for count, (_, values) in enumerate(rows):
        for index, value in enumerate(values):
            if isinstance(value, int | float):
                total[index] += value
        if count % ROWS_MAX == ROWS_MAX - 1:
            yield
    return tuple(total)
