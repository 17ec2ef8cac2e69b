"""Draws the charts of an audit's report as SVG. Needs matplotlib, but no display."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from leveret.pipelines.audits.figures import BINS_PER_DECADE

if TYPE_CHECKING:
    from leveret.pipelines.audits.report import Pictures

SIZE: Final = (7.2, 3.0)
GROUPS_MAX: Final = 8
"""Most lines in a chart, to keep them distinguishable; the largest groups are drawn."""

INTERVALS_MAX: Final = 5000

_NAMES: Final = {1: "second", 60: "minute", 3600: "hour"}
_STYLES: Final = {"publish": "-", "deliver": ":"}


def draw(pictures: Pictures) -> list[tuple[str, str]]:
    """Return titles and SVG of the charts that have data."""
    drawn = []
    if pictures.intervals:
        title = f"Messages per {_NAMES.get(pictures.width_s, 'interval')}, by broker"
        drawn.append((title, _svg(over_time(pictures.intervals, pictures.width_s))))
    for title, axis, bins in (
        ("Lateness of delayed messages", "late by (ms)", pictures.lateness),
        ("Round trips of requests, by exchange", "until the reply (ms)", pictures.replies),
        ("Federation links: from publish to publish", "crossing time (ms)", pictures.crossings),
    ):
        if bins:
            drawn.append((title, _svg(histogram(bins, axis))))
    return drawn


def over_time(rows: Sequence[tuple[str, str, int, int]], width_s: int) -> Figure:
    """Draw lines of the messages published in each interval, and dotted lines of those delivered."""
    figure, axes = _axes()
    brokers = sorted({broker for broker, *_ in rows})[:GROUPS_MAX]
    counts = {(broker, kind, begin): count for broker, kind, begin, count in rows}
    first, last = (choose(begin for _, _, begin, _ in rows) for choose in (min, max))
    # intervals without events are drawn as zero, unless the time is too long for that
    whole = (last - first) // width_s <= INTERVALS_MAX
    grid = list(range(first, last + width_s, width_s)) if whole else sorted({row[2] for row in rows})
    times = [datetime.fromtimestamp(begin, UTC) for begin in grid]
    for number, broker in enumerate(brokers):
        for kind, style in _STYLES.items():
            values = [counts.get((broker, kind, begin), 0) for begin in grid]
            label = f"{broker} {'published' if kind == 'publish' else 'delivered'}"
            marker = "o" if len(grid) < 40 else ""
            axes.plot(times, values, style, color=f"C{number}", label=label, marker=marker, markersize=3, linewidth=1.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("UTC")
    axes.legend(fontsize=7, ncols=2)
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]  # matplotlib.dates has no types
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    return figure


def histogram(bins: Sequence[tuple[str, int, int]], axis: str) -> Figure:
    """Draw steps over logarithmic bins, one line per group."""
    figure, axes = _axes()
    totals: dict[str, int] = {}
    for group, _, count in bins:
        totals[group] = totals.get(group, 0) + count
    groups = sorted(totals, key=lambda group: (-totals[group], group))[:GROUPS_MAX]
    places = [place for _, place, _ in bins]
    span = range(min(places), max(places) + 1)
    edges = [10 ** (place / BINS_PER_DECADE) for place in [*span, span[-1] + 1]]
    for number, group in enumerate(groups):
        found = {place: count for name, place, count in bins if name == group}
        heights = [found.get(place, 0) for place in span]
        label = f"{group or '(default exchange)'}: {totals[group]:,}"
        axes.stairs(heights, edges, label=label, color=f"C{number}", fill=len(groups) == 1, linewidth=1.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}" if len(span) < BINS_PER_DECADE else NullFormatter())
    axes.set_xlabel(axis)
    axes.set_ylabel("messages")
    axes.legend(fontsize=7)
    return figure


def _axes() -> tuple[Figure, Any]:
    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    # text stays text: a tenth of the size, and searchable
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]
