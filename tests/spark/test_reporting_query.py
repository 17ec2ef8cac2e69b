"""Queries tell the broker of their progress; sessions log errors in few lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from leveret.client import BlockingChannel
from leveret.control.calls.blocking import ControlClient
from leveret.spark import report_queries
from leveret.spark.reporting import QueryReporter, report_body
from leveret.testing.processes import LeveretProcess

from ..waiting import until
from .streams import append, declare

pytestmark = pytest.mark.spark


@pytest.fixture
def url(broker: str) -> str:
    """Leveret only: RabbitMQ drops reports."""
    return broker


def listed(broker: LeveretProcess, title: str) -> dict[str, Any] | None:
    with ControlClient(str(broker.data_dir)) as control:
        return next((row for row in control.call("list_queries") if row["title"] == title), None)


def test_a_query_is_seen_with_its_offsets_and_lag(
    spark: SparkSession, leveret_process: LeveretProcess, channel: BlockingChannel, tmp_path: Path
) -> None:
    declare(channel, "reported")
    append(channel, "reported", 0, 7)
    listener = report_queries(spark, leveret_process.url)
    try:
        rows = spark.readStream.format("leveret").options(url=leveret_process.url, stream="reported").load()
        checkpoint = str(tmp_path / "checkpoint")
        query = (
            rows.writeStream.format("noop").queryName("seen").trigger(availableNow=True)
            .option("checkpointLocation", checkpoint).start()
        )  # fmt: skip
        query.awaitTermination()
        found = until(lambda: listed(leveret_process, "seen"), "no report arrived")
        assert (found["name"], found["rows"], found["reported_batch"], found["lag"]) == (query.id, 7, 0, 0)
        assert found["checkpoint"].endswith(checkpoint)
        append(channel, "reported", 7, 3)
        behind = listed(leveret_process, "seen")
        assert behind is not None
        assert behind["streams"] == [{"name": "reported", "next_offset": 7, "lag": 3}]
    finally:
        spark.streams.removeListener(listener)


def test_a_broker_that_is_away_ends_no_query(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    reporter = QueryReporter(spark, "amqp://localhost:1/")

    class Event:
        class progress:
            json = json.dumps({"id": "q", "name": None, "batchId": 1, "sources": []})

    reporter._checkpoints["q"] = ""
    for _ in range(2):
        reporter.onQueryProgress(Event)  # type: ignore[arg-type]
    assert caplog.text.count("is not reported to the broker") == 1
    with pytest.raises(ValueError, match="URL"):
        report_queries(spark, "http://localhost")


def test_sources_that_are_no_streams_are_left_out() -> None:
    """A Connect client gets offsets as text."""
    ends: list[object] = [3, None, {"partition": 5}, {"s": {"next": 9}}, '{"t": {"next": 2}}', {"spool": {"next": "x"}}]
    sources = [{"endOffset": end, "numInputRows": 2} for end in ends]
    progress = {"id": "q", "name": "n", "batchId": 4, "sources": sources}
    assert json.loads(report_body(progress, "/cp")) == {
        "op": "report", "query": "q", "title": "n", "checkpoint": "/cp", "batch": 4, "rows": 12,
        "streams": {"s": 9, "t": 2},
    }  # fmt: skip


FAILING = """
import sys
from leveret.spark import session
rows = session(**{"spark.master": "local[1]"}).range(1).selectExpr("'x' AS body")
rows.write.format("leveret").options(url=sys.argv[1], exchange="no.such").mode("append").save()
"""


def test_a_failed_write_shows_its_reason_and_no_frames_of_java(broker: str) -> None:
    environment = {name: text for name, text in os.environ.items() if name not in ("SPARK_HOME", "SPARK_CONF_DIR")}
    command = [sys.executable, "-c", FAILING, broker]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment, check=False)
    assert run.returncode == 1
    # Spark's Python processes may write, too, when the program has ended
    told, _, _ = run.stderr.rpartition("404 NOT_FOUND - no exchange 'no.such' in vhost '/'; declare it first")
    assert told, run.stderr
    lines = told.splitlines()
    errors = [number for number, line in enumerate(lines) if " ERROR " in line]
    assert "no exchange 'no.such'" in lines[errors[0] + 1]
    assert [line for line in lines if line.startswith("\tat ")] == []
    assert len(lines) < 40
