"""Archiving with Spark: real flights through a crash, bodies whose fields change, other lake formats, the guide
page."""

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
from leveret.spark.rows.properties import HEAD_SIZE
from leveret.wire.properties import decode_header

from .commands import commands, committed, invoke, run_and_kill, summary
from .flights import publish

pytestmark = pytest.mark.spark

leveret_alone = pytest.mark.parametrize("url", ["broker"], indirect=True)


@pytest.fixture
def exchange(channel: BlockingChannel, stream: str, queue: str) -> Iterator[str]:
    """An exchange bound to the stream and to the queue."""
    name = f"flights.{uuid.uuid4().hex[:8]}"
    channel.declare_exchange(name, "topic")
    for target in (stream, queue):
        channel.bind_queue(target, name, "#")
    yield name
    channel.delete_exchange(name)


def ids(spark: SparkSession, path: Path, source: str) -> list[str]:
    rows = lake.read(spark, str(path)).where(f"source = '{source}'").select("message_id").collect()
    return sorted(row.message_id for row in rows)


@pytest.mark.needs("minutes")
@leveret_alone
def test_flights_are_there_once_after_a_crash(
    spark: SparkSession, url: str, channel: BlockingChannel, stream: str, queue: str, exchange: str, tmp_path: Path
) -> None:
    flights = publish(channel, 1200, exchange)
    path = tmp_path / "lake"
    words = ["spark", "archive", str(path), "--url", url, "--stream", stream, "--queue", queue, "--compact-files", "2"]
    small = ["--max-rows-per-trigger", "300"]

    def in_the_middle() -> bool:
        """Return whether Spark has committed a batch of each source and files of another batch are staged."""
        homes = list(path.glob("_leveret/*-*"))
        done = all(committed(home / "checkpoint") >= 0 for home in homes)
        return len(homes) == 2 and done and any(path.glob("_leveret/*/staging/*/day=*/*/*.parquet"))

    run_and_kill([*words, *small, "--follow", "--trigger-s", "0"], in_the_middle, tmp_path / "log")
    waiting = summary([*words, "--dry-run"])
    assert waiting["is_dry"]
    assert 0 < waiting["figures"]["messages_waiting"] < 2400
    done = summary(words)
    assert done["figures"]["rows"] <= waiting["figures"]["messages_waiting"]
    assert done["figures"]["merged_files"] > 0
    expected = sorted(flights.ids)
    for source in (stream, queue):
        assert ids(spark, path, source) == expected, "lost or twice"
    assert not list(path.glob("_leveret/*/staging/*"))
    # a reader that only looks at the files sees the same
    table = ds.dataset(path, partitioning="hive").to_table(columns=["message_id", "exchange"])
    assert sorted(table["message_id"].to_pylist()) == sorted(2 * flights.ids)
    assert set(table["exchange"].to_pylist()) == {exchange}
    [count] = duckdb.sql(f"SELECT count(DISTINCT message_id || source) FROM '{path}/**/*.parquet'").fetchall()
    assert count == (2400,)
    assert summary([*words])["figures"]["rows"] == 0, "a run with nothing to do"


def send(channel: BlockingChannel, stream: str, *bodies: Any) -> None:
    for body in bodies:
        octets = body if isinstance(body, bytes) else json.dumps(body).encode()
        channel.publish(octets, "", stream, Properties(message_id=uuid.uuid4().hex, headers={"n": len(octets)}))
    channel.wait_for_confirms(30)


def test_fields_come_and_what_does_not_fit_is_a_dead_letter(
    spark: SparkSession, url: str, channel: BlockingChannel, stream: str, tmp_path: Path
) -> None:
    path = tmp_path / "lake"
    given: dict[str, Any] = {"url": url, "streams": [stream], "parse": "json", "compact_files": 2}
    send(channel, stream, {"id": 1, "at": {"city": "EWR"}}, {"id": 2, "delay": None}, {"id": "odd"}, b"broken")
    first = archive(spark, str(path), **given)
    assert (first.figures["rows"], first.figures["dead_letters"]) == (2, 2)
    send(channel, stream, {"id": 3, "at": {"city": "LGA", "gate": 7}, "delay": 1.5}, {"id": 4, "delay": 2}, [5])
    second = archive(spark, str(path), **given)
    assert (second.figures["rows"], second.figures["dead_letters"]) == (2, 1)
    assert second.figures["merged_files"] == 2, "files with and without the new fields"
    frame = lake.read(spark, str(path))
    assert frame.select("data").schema.simpleString() == (
        "struct<data:struct<id:bigint,at:struct<city:string,gate:bigint>,delay:double>>"
    )
    found = frame.orderBy("data.id").select("data.id", "data.at", "data.delay").collect()
    rows = [row.asDict(recursive=True) for row in found]
    assert rows == [
        {"id": 1, "at": {"city": "EWR", "gate": None}, "delay": None},
        {"id": 2, "at": None, "delay": None},
        {"id": 3, "at": {"city": "LGA", "gate": 7}, "delay": 1.5},
        {"id": 4, "at": None, "delay": 2.0},
    ]
    assert frame.where("exchange = ''").count() == 4
    dead = spark.read.parquet(f"{path}_dead_letters").orderBy("offset").collect()
    assert [(row.body, row.error, row.headers["n"]) for row in dead] == [
        (b'{"id": "odd"}', "Expected `long | null`, got `str` - at `$.id`", "13"),
        (b"broken", "Expecting value: line 1 column 1 (char 0)", "6"),
        (b"[5]", "Expected `object`, got `array`", "3"),
    ]
    with pytest.raises(PipelineError, match="is parquet partitioned by day, exchange, not parquet partitioned by"):
        archive(spark, str(path), url=url, streams=[stream], partition_by=["day"])
    shutil.rmtree(next(path.glob("_leveret/*/checkpoint")))
    with pytest.raises(PipelineError, match=r"has batch 1 of .* has only 0 batches: use the checkpoint with which"):
        archive(spark, str(path), **given)


def test_content_headers_are_kept(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    channel.publish(b"x", "", queue, Properties(headers={"n": 7, "list": [1, "a"]}, priority=3))
    channel.wait_for_confirms(10)
    archive(spark, str(tmp_path / "lake"), url=url, queues=[queue], exact=True, partition_by=["source"])
    [row] = lake.read(spark, str(tmp_path / "lake")).collect()
    assert (row.source, row.exchange, row.offset, row.arrived, row.headers) == (
        queue, "", None, None, {"n": "7", "list": '[1,"a"]'},
    )  # fmt: skip
    assert row.day == row.archived.date()
    properties = decode_header(bytes(HEAD_SIZE) + row.content_header)[0]
    assert properties.headers == {"n": 7, "list": [1, "a"]}
    assert properties.priority == 3


class Committed(DataSourceArrowWriter):
    """Records its batches, and ignores a version that it already has, as Delta does."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: Any) -> WriterCommitMessage:
        rows = [row for batch in iterator for row in batch.to_pylist()]
        if rows:
            version = f"{self._options['txnappid']}-{self._options['txnversion']}"
            names = {"message_id", "body", "source", "error"}
            kept = [{k: str(v) for k, v in row.items() if k in names} for row in rows]
            file = Path(self._options["path"]) / f"{version}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                file.write_text(json.dumps([kept, self._options]))
        return WriterCommitMessage()


class StandIn(DataSource):
    """Registered as ``delta`` here, since the jars are missing."""

    @classmethod
    def name(cls) -> str:
        return "delta"

    def schema(self) -> str:
        return "id INT"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        assert not overwrite
        return Committed(dict(self.options))


@leveret_alone
def test_delta_gets_each_batch_with_its_number(
    spark: SparkSession, url: str, channel: BlockingChannel, stream: str, tmp_path: Path
) -> None:
    path = tmp_path / "lake"
    given: dict[str, Any] = {
        "url": url, "streams": [stream], "form": "delta", "partition_by": [], "parse": "json", "compact_below_mib": 0,
    }  # fmt: skip
    with pytest.raises(PipelineError, match=r"no data source 'iceberg': add --conf spark.jars.packages=org.apache"):
        archive(spark, "local.db.flights", url=url, streams=[stream], form="iceberg", checkpoint=str(tmp_path / "c"))
    with pytest.raises(PipelineError, match=r"no data source 'delta': add --conf spark.jars.packages=io.delta:delta"):
        archive(spark, str(path), **given)
    assert not path.exists()
    spark.dataSource.register(StandIn)
    send(channel, stream, {"id": 1}, b"broken", {"id": 2})
    assert archive(spark, str(path), **given).figures["rows"] == 3
    # as after a crash between the last write and Spark's commit of the batch
    for note in path.glob("_leveret/*/checkpoint/commits/*"):
        note.unlink()
    archive(spark, str(path), **given)
    [written], [dead] = list(path.glob("*.json")), list(Path(f"{path}_dead_letters").glob("*.json"))
    rows, options = json.loads(written.read_text())
    assert len(rows) == 2
    assert options["mergeschema"] == "true"
    [query] = path.glob("_leveret/*/checkpoint/metadata")
    assert json.loads(query.read_text())["id"] in options["txnappid"]
    assert options["txnversion"] == "0"
    assert [row["error"] for row in json.loads(dead.read_text())[0]] == ["Expecting value: line 1 column 1 (char 0)"]


@leveret_alone
def test_the_page_does_what_it_says(
    spark: SparkSession,
    url: str,
    channel: BlockingChannel,
    stream: str,
    queue: str,
    exchange: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEVERET_URL", url)
    replaced = {"/data": str(tmp_path), "flights": stream, "orders": queue}
    dry, first, parsed, compact = commands("guides/spark/archive.md")
    publish(channel, 40, exchange)
    assert summary(dry, replaced)["figures"] == {"messages_waiting": 80}
    assert summary(first, replaced)["figures"]["rows"] == 80
    publish(channel, 40, exchange, seed=1)
    assert summary(parsed, replaced)["figures"]["rows"] == 40
    assert "merged files" in invoke(compact, replaced)
    rows = lake.read(spark, str(tmp_path / "lake"))
    assert rows.count() == 120
    assert rows.where("data.distance > 0").count() == 40
    assert len(list(tmp_path.glob("lake/day=*/*/*.parquet"))) == 2, "one of each source"
