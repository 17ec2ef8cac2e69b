"""The picture: which airline is on time at which hour of the day."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

FEW_FLIGHTS = 10
"""A cell with fewer flights stays empty: its percentage would say nothing."""


def punctuality_by_hour(enriched: Path) -> pd.DataFrame:
    """Share of flights on time, 0 to 1: a row per carrier, best first, and a column per hour of scheduled departure.

    Args:
        enriched: the Parquet files that the job wrote. Flights that never arrived count as not on time.
    """
    flights = pq.read_table(enriched, columns=["carrier", "hour", "on_time"]).to_pandas()
    flights["on_time"] = flights["on_time"].astype(float)
    cells = flights.pivot_table(index="carrier", columns="hour", values="on_time", aggfunc=["mean", "size"])
    shares = cells["mean"].where(cells["size"] >= FEW_FLIGHTS)
    best_first = flights.groupby("carrier")["on_time"].mean().sort_values(ascending=False).index
    return shares.reindex(best_first)


def draw(shares: pd.DataFrame, names: Mapping[str, str], path: Path) -> None:
    """Writes the picture as PNG.

    Args:
        shares: what ``punctuality_by_hour`` returned.
        names: of the airlines, by code.
        path: of the picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # The figure's own canvas instead of pyplot: no global state, no display, safe beside other threads.
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
