"""Pictures of measured points: SVG that is readable on light and dark pages, with text as text."""

import io
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

PANEL_INCHES = (7.6, 3.0)
GREY = "#7a8594"
"""Legible on white and on black."""
COLOURS = ("#3b82f6", "#e8710a", "#1a9c50", "#b45cf0", "#e5484d", "#0d9fb0", "#a87f00", "#7a8594")
STYLES = {"leveret": ("-", "o"), "leveret-interpreted": ("-.", "s"), "rabbitmq": (":", "^")}
"""Line style and marker of each broker."""


class Point(NamedTuple):
    curve: str
    broker: str
    series: str
    x: float
    y: float
    panel: str  # the label of the y axis


def newest(points: Iterable[Point]) -> list[Point]:
    """Return the last point measured at each place, in the order of the first ones."""
    found = {(point.curve, point.broker, point.panel, point.series, point.x): point for point in points}
    return list(found.values())


def draw(points: list[Point], axis: str) -> str:
    """Return the SVG of one curve: a panel for each unit, a colour for each series and a style for each broker.

    Values of 0 and below (less memory than before) do not fit a logarithmic axis, and are left out.
    """
    points = [point for point in points if point.y > 0]
    panels = list(dict.fromkeys(point.panel for point in points))
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "leveret"
    figure = Figure(figsize=(PANEL_INCHES[0], PANEL_INCHES[1] * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, number + 1)
        _fill(axes, [point for point in points if point.panel == panel])
        axes.set_ylabel(panel, color=GREY)
        axes.set_xlabel(axis, color=GREY)
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _fill(axes: Axes, points: list[Point]) -> None:
    series = list(dict.fromkeys(point.series for point in points))
    brokers = sorted({point.broker for point in points})
    for broker in brokers:
        for name in series:
            mine = sorted((point.x, point.y) for point in points if (point.broker, point.series) == (broker, name))
            if mine:
                axes.plot(*zip(*mine, strict=True), color=_colour(series, name), **_style(broker))
    for name in series:
        axes.plot([], [], color=_colour(series, name), label=name)
    for broker in brokers if len(brokers) > 1 else ():
        axes.plot([], [], color=GREY, label=broker, **_style(broker))
    if any(point.x == 0 for point in points):
        axes.set_xscale("symlog", linthresh=1.0)
    else:
        axes.set_xscale("log")
    axes.set_yscale("log")
    # whole decades, so that small changes look small
    low, high = (math.log10(choose(point.y for point in points)) for choose in (min, max))
    axes.set_ylim(10 ** math.floor(low), 10 ** math.ceil(high + 1e-9))
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))
        side.set_minor_formatter(NullFormatter())
    axes.tick_params(colors=GREY, which="both", labelsize=8)
    axes.grid(color=GREY, alpha=0.25, linewidth=0.6)
    for spine in axes.spines.values():
        spine.set_color(GREY)
    legend = axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
    for text in legend.get_texts():
        text.set_color(GREY)


def _colour(series: list[str], name: str) -> str:
    return COLOURS[series.index(name) % len(COLOURS)]


def _style(broker: str) -> dict[str, Any]:
    line, mark = STYLES.get(broker, ("--", "x"))
    return {"linestyle": line, "marker": mark, "markersize": 3.5, "linewidth": 1.4}


def number_text(value: float) -> str:
    """Return a tick's label, such as 1,000, 10 M or 0.1."""
    if value >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
