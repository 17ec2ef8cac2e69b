"""The executor that a run with --cluster kills: when it dies, and what the demo prints."""

from __future__ import annotations

from typing import cast

from leveret.demo.cluster import KILL_SHARE, Loss
from leveret.testing.spark_cluster import SparkCluster


class Cluster:
    """Executors that die and restart on command."""

    def __init__(self) -> None:
        self.running = [11, 12]
        self.workers = (1, 2)

    def executors(self) -> list[int]:
        return self.running

    def kill_executor(self) -> bool:
        return bool(self.running) and self.running.pop() > 0


def test_it_is_killed_in_a_micro_batch_and_another_one_is_waited_for() -> None:
    cluster = Cluster()
    loss = Loss(cast("SparkCluster", cluster))
    enough = int(KILL_SHARE * 1000)
    assert loss.step(enough - 1, 1000, True) == ""
    assert loss.step(enough, 1000, False) == "", "nothing is going on"
    assert loss.step(enough, 1000, True) == "Spark: executor killed in a micro-batch, 500 of 1,000 flights at hq"
    assert len(cluster.running) == 1
    assert loss.step(1000, 1000, True) == ""
    cluster.running.append(13)
    assert loss.step(1000, 1000, False).startswith("Spark: another executor started ")
    assert loss.step(1000, 1000, True) == ""
    assert len(cluster.running) == 2, "one is enough"


def test_where_no_executor_is_there_yet_it_is_tried_again() -> None:
    cluster = Cluster()
    cluster.running = []
    loss = Loss(cast("SparkCluster", cluster))
    assert loss.step(1000, 1000, True) == ""
    assert loss.killed_s is None
    cluster.running = [11]
    assert loss.step(1000, 1000, True)
