"""Triggers that Python data sources do not support are refused before anything is consumed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leveret.client import BlockingChannel

from .support import fill, messages, stream

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("url", ["broker"], indirect=True)
@pytest.mark.parametrize(
    ("trigger", "output", "message"),
    [
        ({"realTime": "5 minutes"}, "noop", "STREAMING_REAL_TIME_MODE"),
        ({"realTime": "5 minutes"}, "console", r"STREAMING_REAL_TIME_MODE\.INPUT_STREAM_NOT_SUPPORTED"),
        ({"continuous": "1 second"}, "console", "does not support continuous processing"),
    ],
)
def test_real_time_and_continuous_triggers_are_refused_and_nothing_is_consumed(
    spark: SparkSession,
    channel: BlockingChannel,
    url: str,
    queue: str,
    tmp_path: Path,
    trigger: dict[str, str],
    output: str,
    message: str,
) -> None:
    fill(channel, queue, 0, 3)
    rows = stream(spark, url, queue).select("body")
    writer = rows.writeStream.format(output).outputMode("update").option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException, match=message):
        writer.trigger(**trigger).start().awaitTermination(60)
    assert messages(channel, queue) == 3
    assert channel.declare_queue(queue, passive=True).consumer_count == 0
    assert [delivery.redelivered for delivery in iter(lambda: channel.get(queue, no_ack=True), None)] == [False] * 3
