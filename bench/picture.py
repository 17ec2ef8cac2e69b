"""The picture of docs/internals/performance.md: each broker's figures as multiples of RabbitMQ's, by scenario. SVG,
with text as text."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter

from goals import LAVINMQ, Figure

# colours readable on white and on black, as the page's background may be either
INK = "#80868b"
GRID = "#80868b44"
MARKS = {
    "leveret": ("o", "#1a9988", "leveret, compiled"),
    "leveret-interpreted": ("s", "#c77d1e", "leveret, interpreted"),
    "garagemq": ("^", "#8f6fd1", "GarageMQ"),
    "lavinmq": ("D", "none", "LavinMQ 2.9.1, from another run"),
}
ROW_INCHES = 0.27
RATIO_MIN = 0.01


def gains(figure: Figure, ratio: Callable[[Figure, str], float | None]) -> dict[str, float]:
    """Return how many times better than RabbitMQ each broker is; for latencies and memory the ratio is inverted."""
    found = {name: ratio(figure, name) for name in MARKS if name != "lavinmq"}
    found["lavinmq"] = LAVINMQ.get((figure.scenario, figure.path))
    sound = {name: value for name, value in found.items() if value is not None and value > 0}
    return {name: 1 / value if figure.is_less_better else value for name, value in sound.items()}


def aim(figure: Figure) -> float | None:
    """Return the compiled core's goal as a multiple of RabbitMQ's figure, if the goal is such a ratio."""
    bounds = [goal.bound for goal in figure.goals if (goal.of, goal.broker) == ("rabbitmq", "leveret")]
    return None if not bounds else 1 / bounds[0] if figure.is_less_better else bounds[0]


def draw(path: Path, figures: Sequence[Figure], ratio: Callable[[Figure, str], float | None]) -> None:
    """Write the picture: a row for each figure that leveret has, a mark for each broker."""
    rows = [(figure, found) for figure in figures if "leveret" in (found := gains(figure, ratio))]
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "leveret", "font.family": "sans-serif"}):
        drawing = Drawing(figsize=(9, 1.3 + ROW_INCHES * len(rows)), layout="constrained")
        FigureCanvasAgg(drawing)
        axes = drawing.add_subplot()
        for name, (marker, colour, label) in MARKS.items():
            places = [(max(found[name], RATIO_MIN), at) for at, (_, found) in enumerate(rows) if name in found]
            axes.scatter(
                [x for x, _ in places], [y for _, y in places], marker=marker, s=34, label=label, zorder=3,
                facecolor=colour, edgecolor=INK if colour == "none" else colour, linewidth=1.1,
            )  # fmt: skip
        goals = [(goal, at) for at, (figure, _) in enumerate(rows) if (goal := aim(figure)) is not None]
        axes.scatter(
            [x for x, _ in goals],
            [y for _, y in goals],
            marker="|",
            s=130,
            color=INK,
            label="goal of leveret",
            zorder=2,
        )
        axes.axvline(1, color=INK, linewidth=1.2)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} ×"))
        axes.set_yticks(range(len(rows)), [f"{figure.scenario}: {figure.unit}" for figure, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("times RabbitMQ; latencies, lateness and memory are turned around: right is better")
        axes.tick_params(colors=INK, which="both", length=0)
        axes.xaxis.label.set_color(INK)
        axes.spines[:].set_visible(False)
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        drawing.legend(loc="outside upper center", ncols=5, frameon=False, labelcolor=INK, fontsize=9)
        drawing.savefig(path, format="svg", transparent=True, metadata={"Date": None})
