"""The Spark cluster of a run with ``--cluster``, and the executor that is killed during the run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import leveret
from leveret.demo.errors import DemoError
from leveret.testing.processes import ProcessFailed
from leveret.testing.spark_cluster import SparkCluster, spark_cluster

KILL_SHARE: Final = 0.5
"""The share of flights, 0 to 1, at hq after which one executor is killed in a micro-batch."""


@contextmanager
def own_cluster(directory: Path) -> Iterator[SparkCluster]:
    """Run a master and two workers within the context; executors work in `directory`.

    Raises:
        DemoError: one of them did not start or stop properly.
    """
    try:
        with spark_cluster(directory) as cluster:
            yield cluster
    except ProcessFailed as error:
        raise DemoError(f"the Spark cluster failed: {error}") from error


def settings(cluster: SparkCluster) -> dict[str, str]:
    """Return the driver's settings for the cluster; its executors import this leveret, compiled or not."""
    return {
        **cluster.settings(),
        "spark.executorEnv.PYTHONPATH": str(Path(leveret.__file__).parents[1]),
        "spark.python.daemon.module": "leveret.spark_daemon",
    }


@dataclass
class Loss:
    """The planned loss of an executor.

    Attributes:
        cluster: the cluster of the executor.
        killed_s, replaced_s: when it was killed and when it was replaced, by ``time.monotonic``; None until then.
    """

    cluster: SparkCluster
    killed_s: float | None = None
    replaced_s: float | None = None

    def step(self, arrived: int, flights: int, is_busy: bool) -> str:
        """Kill the executor if that is due, or note its replacement. Return a message for the display, or ``""``.

        Args:
            arrived: flights that have arrived at hq.
            flights: all flights.
            is_busy: whether Spark works on a micro-batch.
        """
        if self.killed_s is None:
            if arrived < KILL_SHARE * flights or not is_busy or not self.cluster.kill_executor():
                return ""
            self.killed_s = time.monotonic()
            return f"Spark: executor killed in a micro-batch, {arrived:,} of {flights:,} flights at hq"
        if self.replaced_s is None and len(self.cluster.executors()) == len(self.cluster.workers):
            self.replaced_s = time.monotonic()
            return f"Spark: another executor started {self.replaced_s - self.killed_s:.1f} s later"
        return ""
