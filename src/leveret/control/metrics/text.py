"""Formats rows of metrics for Prometheus: text format 0.0.4, and OpenMetrics 1.0.0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from leveret.control.metrics.metric import COUNTER, DETAILED, HISTOGRAM, RABBITMQS, Metric, MetricGroup
from leveret.control.metrics.table import BY_NAME

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# lines made at a time
LINES: Final = 2000
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def exposition(items: Sequence[Any], is_open: bool = False, is_detailed: bool = False) -> Iterator[str]:
    """Yield the text in pieces.

    `items` are (group, labels, values) as the command `metrics` answers. `is_open` selects OpenMetrics, `is_detailed`
    the names of RabbitMQ's /metrics/detailed for objects.
    """
    rows: dict[str, list[Any]] = {}
    for group, labels, values in items:
        rows.setdefault(group, []).append((labels, values))
    for name, found in rows.items():
        group = BY_NAME[name]
        texts = [_labels(group, labels) for labels, _ in found]
        for index, metric in enumerate(group.metrics):
            shown = _shown(metric.name, group, is_detailed)
            family = shown.removesuffix("_total") if is_open and metric.kind == COUNTER else shown
            lines = [f"# HELP {family} {_help(metric.help)}", f"# TYPE {family} {metric.kind}"]
            for text, (_, values) in zip(texts, found, strict=True):
                value = values[index]
                if metric.kind == HISTOGRAM:
                    lines += _buckets(shown, metric, text, value)
                elif value is not None:
                    lines.append(f"{shown}{{{text}}} {number(value)}" if text else f"{shown} {number(value)}")
                if len(lines) >= LINES:
                    yield "\n".join(lines) + "\n"
                    lines = []
            if lines:
                yield "\n".join(lines) + "\n"
    if is_open:
        yield "# EOF\n"


def _shown(name: str, group: MetricGroup, is_detailed: bool) -> str:
    if not (is_detailed and group.of_objects) or name.startswith("rabbitmq_cluster_"):
        return name
    return DETAILED + name.removeprefix(RABBITMQS) if name.startswith(RABBITMQS) else name


def _labels(group: MetricGroup, values: Sequence[str]) -> str:
    """Format labels; a row of sums has none of them."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(group.labels, values, strict=False))


def _buckets(name: str, metric: Metric, text: str, value: Sequence[int]) -> list[str]:
    *counts, total = value
    lines, below, before = [], 0, text + "," if text else ""
    for bound, count in zip(metric.bounds, counts, strict=False):
        below += count
        lines.append(f'{name}_bucket{{{before}le="{number(bound / metric.scale)}"}} {below}')
    below += counts[-1]
    lines.append(f'{name}_bucket{{{before}le="+Inf"}} {below}')
    after = f"{{{text}}}" if text else ""
    return [*lines, f"{name}_sum{after} {number(total / metric.scale)}", f"{name}_count{after} {below}"]


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def number(value: float) -> str:
    """Format whole numbers without fraction and exponent: 1e+06 would be valid, but hard to read."""
    return str(int(value)) if value == int(value) else repr(float(value))
