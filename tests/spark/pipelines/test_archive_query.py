"""Archiving with Spark: real flights through a crash, bodies whose fields change, other forms of lakes, the page."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from leveret.client import BlockingChannel, Properties
from leveret.pipelines import PipelineError, archive
from leveret.pipelines.archives import lake
from leveret.wire.properties import decode_header

from .commands import commands, invoke, run_and_kill, summary
from .flights import publish

pytestmark = pytest.mark.spark

leveret_alone = pytest.mark.parametrize("url", ["broker"], indirect=True)


@pytest.fixture
def exchange(channel: BlockingChannel, stream: str, queue: str) -> Iterator[str]:
    """An exchange whose messages come into the stream and into the queue."""
    name = f"flights.{uuid.uuid4().hex[:8]}"
    channel.declare_exchange(name, "topic")
    for target in (stream, queue):
        channel.bind_queue(target, name, "#")
    yield name
    channel.delete_exchange(name)


def ids(spark: SparkSession, path: Path, source: str) -> list[str]:
    rows = lake.read(spark, str(path)).where(f"source = '{source}'").select("message_id").collect()
    return sorted(row.message_id for row in rows)


@leveret_alone
def test_flights_are_there_once_after_a_crash(
    spark: SparkSession, url: str, channel: BlockingChannel, stream: str, queue: str, exchange: str, tmp_path: Path
) -> None:
    flights = publish(channel, 2000, exchange)
    path = tmp_path / "lake"
    words = ["spark", "archive", str(path), "--url", url, "--stream", stream, "--queue", queue, "--compact-files", "3"]
    small = ["--max-rows-per-trigger", "250"]

    def in_the_middle() -> bool:
        """Files are staged that the record of their batch does not name yet, and both sources have batches behind."""
        homes = list(path.glob("_leveret/*-*"))
        done = all(len(list(home.glob("batches/*.json"))) > 1 for home in homes)
        return len(homes) == 2 and done and any(path.glob("_leveret/*/staging/*/day=*/*/*.parquet"))

    run_and_kill([*words, *small, "--follow", "--trigger-s", "0"], in_the_middle, tmp_path / "log")
    waiting = summary([*words, "--dry-run"])
    assert waiting["is_dry"]
    assert 0 < waiting["figures"]["messages_waiting"] < 4000
    done = summary([*words, *small])
    assert done["figures"]["rows"] <= waiting["figures"]["messages_waiting"]
    assert done["figures"]["merged_files"] > 0
    expected = sorted(flights.ids)
    for source in (stream, queue):
        assert ids(spark, path, source) == expected, "lost or twice"
    assert not list(path.glob("_leveret/*/staging/*"))
    # who reads the files alone, sees the same
    table = ds.dataset(path, partitioning="hive").to_table(columns=["message_id", "exchange"])
    assert sorted(table["message_id"].to_pylist()) == sorted(2 * flights.ids)
    assert set(table["exchange"].to_pylist()) == {exchange}
    [count] = duckdb.sql(f"SELECT count(DISTINCT message_id || source) FROM '{path}/**/*.parquet'").fetchall()
    assert count == (4000,)
    assert summary([*words])["figures"]["rows"] == 0, "a run with nothing to do"
