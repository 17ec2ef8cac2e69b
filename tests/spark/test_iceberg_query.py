"""docs/guides/iceberg.md: Spark's rows into an Iceberg table by pyiceberg, and from there into a queue."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from leveret.client import BlockingChannel

from .streams import append, declare

pytestmark = pytest.mark.spark
pytest.importorskip("pyiceberg")

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "iceberg.md"


@pytest.fixture
def url(broker: str) -> str:
    return broker


def test_both_ways(spark: SparkSession, url: str, channel: BlockingChannel, tmp_path: Path) -> None:
    into, back = re.findall(r"```python\n(.*?)```", GUIDE.read_text().partition("## Spark and Iceberg")[2], re.S)
    for left_by_another_test in ("flights", "again"):  # the guide has fixed names
        channel.delete_queue(left_by_another_test)
    declare(channel, "flights")
    channel.declare_queue("again")
    bodies = append(channel, "flights", 0, 2500)
    names: dict[str, Any] = {"lake": tmp_path, "url": url}
    exec(into, names)
    table = names["table"].refresh()
    assert sorted(table.scan().to_arrow()["offset"].to_pylist()) == list(range(2500))
    assert len(table.snapshots()) == 3
    names["append"](spark.range(3).selectExpr("id AS offset", "'' AS routing_key", "X'' AS body"), 1)  # a repetition
    assert table.refresh().scan().count() == 2500
    for _ in range(2):
        exec(back, names)
    count = channel.declare_queue("again", passive=True).message_count
    found = [message for _ in range(count) if (message := channel.get("again", no_ack=True))]
    assert sorted(message.body for message in found) == sorted(bodies[100:])
    assert {message.properties.message_id for message in found} == {f"flight-{offset}" for offset in range(100, 2500)}
