"""Rows of metrics as tests look at them: one row for each number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leveret.control.metrics.table import BY_NAME


def samples(items: list[Any]) -> Iterator[tuple[str, dict[str, str], Any]]:
    """Yield the name, labels and value of each number."""
    for name, labels, values in items:
        group = BY_NAME[name]
        for metric, value in zip(group.metrics, values, strict=True):
            if value is not None:
                yield metric.name, dict(zip(group.labels, labels, strict=False)), value
