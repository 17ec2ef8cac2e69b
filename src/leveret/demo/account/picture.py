"""Pictures: punctuality by airline and hour of the day, and the progress of a federated run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from leveret.demo.airports import AirportSample
from leveret.demo.outage import Outage
from leveret.demo.plan import AIRPORTS

if TYPE_CHECKING:
    import pandas as pd

FEW_FLIGHTS = 10
"""Cells with fewer flights stay empty: their percentage would be meaningless."""


def punctuality_by_hour(enriched: Path) -> pd.DataFrame:
    """Return the share of flights on time, 0 to 1, by carrier (rows, best first) and hour (columns).

    Flights that never arrived count as not on time. `enriched` are the Parquet files that the job wrote.
    """
    flights = pq.read_table(enriched, columns=["carrier", "hour", "on_time"]).to_pandas()
    flights["on_time"] = flights["on_time"].astype(float)
    cells = flights.pivot_table(index="carrier", columns="hour", values="on_time", aggfunc=["mean", "size"])
    shares = cells["mean"].where(cells["size"] >= FEW_FLIGHTS)
    best_first = flights.groupby("carrier")["on_time"].mean().sort_values(ascending=False).index
    return shares.reindex(best_first)


def draw(shares: pd.DataFrame, names: Mapping[str, str], path: Path) -> None:
    """Write the punctuality picture as PNG.

    Args:
        shares: the result of ``punctuality_by_hour``.
        names: of the airlines, by code.
        path: of the picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # the figure's own canvas instead of pyplot: no global state, no display, thread-safe
    figure = Figure(figsize=(11, 0.38 * len(shares) + 2.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(np.ma.masked_invalid(shares.to_numpy()), cmap="RdYlGn", vmin=0.4, vmax=1.0, aspect="auto")
    axes.set_xticks(range(shares.shape[1]), [f"{hour:02d}" for hour in shares.columns])
    axes.set_yticks(range(shares.shape[0]), [f"{names.get(code, code)} ({code})" for code in shares.index])
    axes.set_xlabel("hour of scheduled departure")
    axes.set_title("Flights from New York, 2013: arrived less than 15 minutes late")
    for (row, column), share in np.ndenumerate(shares.to_numpy()):
        if not np.isnan(share):
            axes.text(column, row, f"{share:.0%}", ha="center", va="center", fontsize=7)
    figure.colorbar(image, ax=axes, format=lambda share, _: f"{share:.0%}", pad=0.01)
    figure.savefig(path)


def draw_crossing(samples: Sequence[AirportSample], outages: Sequence[Outage], path: Path) -> None:
    """Write a picture of the messages confirmed at each airport and arrived at hq, over time.

    Args:
        samples: of a federated run.
        outages: of the run; shown as shaded areas.
        path: of the picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    moving = while_moving(samples)
    for airport, axes in zip(AIRPORTS, figure.subplots(1, len(AIRPORTS), sharex=True), strict=True):
        mine = [sample for sample in moving if sample.airport == airport]
        seconds = [sample.seconds for sample in mine]
        axes.plot(
            seconds, [sample.confirmed for sample in mine], label=f"confirmed at {airport}", color="tab:grey", lw=4
        )
        axes.plot(seconds, [sample.crossed for sample in mine], label="arrived at hq", color="tab:green")
        for outage in outages:
            if outage.airport == airport and outage.began_s is not None and outage.ended_s is not None:
                axes.axvspan(outage.began_s, outage.ended_s, color="tab:red", alpha=0.15, label=outage.begun)
        axes.set_title(f"{airport} to hq")
        axes.set_xlabel("seconds")
        axes.legend(loc="lower right", fontsize=8)
    figure.savefig(path)


def while_moving(samples: Sequence[AirportSample]) -> list[AirportSample]:
    """Return the samples from just before the first message to just after the last one."""
    before: dict[str, tuple[int, int]] = {}
    moments = []
    for sample in samples:
        counts = (sample.confirmed, sample.crossed)
        if counts != before.get(sample.airport, (0, 0)):
            moments.append(sample.seconds)
        before[sample.airport] = counts
    first_s, last_s = (min(moments), max(moments)) if moments else (0.0, 0.0)
    return [sample for sample in samples if first_s - 0.5 <= sample.seconds <= last_s + 0.5]
