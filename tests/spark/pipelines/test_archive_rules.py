"""The archive's bodies, days and directories by other means: one body at a time, and by Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from leveret.pipelines.archives import files
from leveret.pipelines.archives.census import ValueCensus, grown, strangers
from leveret.pipelines.archives.files import PartitionedWriter
from leveret.pipelines.archives.rows import LakeRows
from leveret.pipelines.archives.schemas import BodySchema
from leveret.pipelines.archives.storage import Storage
from leveret.pipelines.archives.tasks import TaskReader, messages
from leveret.spark.rows.bodies import BodyParser
from leveret.spark.rows.columns import ARROW, MESSAGE
from leveret.spark.rows.json_bodies import JsonBodies
from leveret.spark.segments.files import SealedFile
from leveret.spark.segments.task import SealedTask
from leveret.spark.streams.offsets import Span
from leveret.spark.streams.planning import StreamTask
from leveret.wire.body_schema import JSON, Schema

from .bodies import parsed

NASTY = [
    b"", b" ", b"{", b"{}", b"[]", b"null", b"7", b'"text"', b"\xff", b"\xef\xbb\xbf{}", b'{"a": 1} 2',
    b'{"a": 1}{"a": 2}',
    b' {"a": 1} \r\n', b'\x0b{"a": 1}', b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1e400}', b'{"a": 01}', b"{'a': 1}",
    b'{"a": 1, "a": "twice"}', b'{"a": "x", "a": 2}', b'{"a": 9223372036854775807}', b'{"a": 9223372036854775808}',
    b'{"a": -9223372036854775809}', b'{"x": 123456789012345678901234567890}', b'{"x": 1e308}', b'{"x": -0}',
    b'{"s": "\\ud83d\\ude00"}', b'{"s": "\\ud83d"}', b'{"s": "\\u0000"}', '{"s": "\u00e4\U0001f407"}'.encode(),
    b'{"s": "a\nb"}', b'{"s": 5}', b'{"a": true}', b'{"a": 1.0}', b'{"a": null, "new": null}', b'{"new": {}}',
    b'{"new": [[], {"deep": null}]}', b'{"new": [0]}', b'{"A": 1}', b'{"": 1}', b'{"n": {"p": 1}}',
    b'{"n": {"p": 1, "q": {}}}', b'{"n": {"p": 1, "q": 2}}', b'{"n": {"p": "x", "q": 2}}', b'{"n": []}', b'{"n": null}',
    b'{"l": [1, 2, null]}', b'{"l": [1, "x"]}', b'{"l": [{}]}', b'{"l": {}}', b'{"o": [{"r": 1}, {"r": 2, "t": "y"}]}',
    b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"deep": ' + b'{"d": ' * 40 + b"1" + b"}" * 41,
    b'{"b": 7, "a": "other"}', b'{"time": "2013-01-01T05:00:00Z"}',
]  # fmt: skip
FITTING = [
    b'{"a": 1, "x": 0.5, "s": "t", "n": {"p": 1}, "l": [1], "o": [{"r": 1}]}', b'{"a": 2, "x": 3, "n": {}, "o": []}',
]  # fmt: skip


def one_at_a_time(census: ValueCensus, value: Any, depth: int = 0) -> None:
    """Count a value as documented, without regard to the others."""
    kinds = {bool: "boolean", int: "long", float: "double", str: "string", dict: "struct", list: "list"}
    kind = kinds.get(type(value))
    if kind is None or depth > 16 or (kind == "long" and not -(1 << 63) <= value < 1 << 63):
        return
    census.kinds[kind] = census.kinds.get(kind, 0) + 1
    if kind == "struct":
        for name, each in value.items():
            if each is not None:
                one_at_a_time(census.fields.setdefault(name, ValueCensus()), each, depth + 1)
    elif kind == "list":
        for each in value:
            census.items = census.items or ValueCensus()
            one_at_a_time(census.items, each, depth + 1)


def objects(bodies: Sequence[bytes]) -> list[Any]:
    found = []
    for body in bodies:
        try:
            found.append(JsonBodies([], []).decode(body))
        except (ValueError, RecursionError):
            continue
    return found


def separately(schema: BodySchema, body: bytes) -> tuple[Any, str | None]:
    """Parse one body, then look for what the schema lacks."""
    columns = list(schema.columns)
    *values, [reason] = BodyParser(Schema(JSON, columns, "")).parse(pa.array([body], pa.binary()))
    if reason.as_py() is not None:
        return None, reason.as_py()
    for path in strangers(JsonBodies([], []).decode(body), columns):
        return None, f"the lake has no column for `{path}`"
    return {column.name: value[0].as_py() for column, value in zip(columns, values, strict=True)}, None


@pytest.mark.parametrize("seed", range(3))
def test_bodies_together_are_what_they_are_alone(seed: int) -> None:
    bodies = [*NASTY, *(8 * FITTING)]
    random.Random(seed).shuffle(bodies)
    census, expected = ValueCensus(), ValueCensus()
    census.add(objects(bodies))
    for value in objects(bodies):
        one_at_a_time(expected, value)
    assert json.loads(census.text()) == json.loads(expected.text())
    few = ValueCensus()
    few.add(objects(FITTING))
    for schema in (BodySchema(1, grown((), census, 1000)), BodySchema(1, grown((), few, 1000))):
        data, errors = parsed(schema, *bodies)
        assert list(zip(data, errors, strict=True)) == [separately(schema, body) for body in bodies]


def test_files_are_limited_and_have_all_rows_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "OPEN_MAX", 2)
    monkeypatch.setattr(files, "BUFFER_OCTETS", 500)
    writer = PartitionedWriter(Storage.at(str(tmp_path)), "stage", ["exchange"])
    for first in range(0, 500, 50):
        numbers = range(first, first + 50)
        exchanges = [f"e/{number % 5}" for number in numbers]
        writer.add(pa.record_batch({"n": pa.array(numbers, pa.int64()), "exchange": exchanges}))
    written = writer.finish()
    assert len(written) > 5, "closed and opened again"
    assert sum(file.rows for file in written) == 500
    found: dict[str, list[int]] = {}
    for file in written:
        path = tmp_path / file.path
        assert path.stat().st_size == file.octets
        found.setdefault(path.parent.name, []).extend(pq.ParquetFile(path).read()["n"].to_pylist())
    assert found == {f"exchange=e%2F{number}": list(range(number, 500, 5)) for number in range(5)}


class Planned(DataSourceStreamReader):
    """A reader with these tasks, whose messages are their offsets."""

    def __init__(self, *tasks: InputPartition) -> None:
        self.tasks = tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self.tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StreamTask)
        yield pa.record_batch({"first": [partition.span.first], "end": [partition.span.end]})


def test_long_tasks_are_cut_and_read_by_whoever_gets_them() -> None:
    sealed = [SealedFile(first, first + 199_999, "s") for first in range(0, 600_000, 200_000)]
    whole = SealedTask("s", 100_000, 600_000, tuple(sealed), "auto")
    long = StreamTask(Span("s", "id", 100_000, 600_000), whole)
    tail = StreamTask(Span("s", "id", 600_000, 600_007))
    reader = TaskReader(Planned(long, tail))
    tasks = list(reader.partitions({}, {}))
    spans = [(100_000, 350_000), (350_000, 600_000), (600_000, 600_007)]
    rows = messages(batch for task in tasks for batch in reader.read(task))
    assert [(row["first"], row["end"]) for batch in rows for row in batch.to_pylist()] == spans
    assert isinstance(tasks[0], StreamTask)
    assert isinstance(tasks[1], StreamTask)
    assert tasks[0].sealed == replace(whole, end=350_000, files=tuple(sealed[:2]))
    assert tasks[1].sealed == replace(whole, first=350_000, files=tuple(sealed[1:]))
    assert tasks[2] is tail


@pytest.mark.spark
def test_directories_and_days_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    characters = "".join(map(chr, range(1, 256)))
    exchanges = [characters[at : at + 16] for at in range(0, 255, 16)] + ["..", "%20", "\U0001f407", "x"]
    micros = [-86_400_000_001, -86_400_000_000, -1, 0, 86_399_999_999, 86_400_000_000, 253_402_300_799_999_999]
    rows = [(exchange, micros[number % len(micros)]) for number, exchange in enumerate(exchanges)]
    session_zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        frame = spark.createDataFrame(rows, "exchange STRING, us BIGINT").coalesce(1)
        frame = frame.withColumn("day", F.to_date(F.timestamp_micros("us")))
        frame.write.partitionBy("day", "exchange").parquet(str(tmp_path / "spark"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", session_zone)
    columns: dict[str, Any] = {name: pa.nulls(len(rows), ARROW[name]) for name in MESSAGE}
    columns["exchange"] = pa.array([exchange for exchange, _ in rows])
    columns["timestamp"] = pa.array([us for _, us in rows], ARROW["timestamp"])
    lake_rows = LakeRows(tuple(MESSAGE), "queue", "broker", 0, datetime.now(UTC))
    writer = PartitionedWriter(Storage.at(str(tmp_path / "own")), "", ["day", "exchange"])
    for batch in lake_rows([pa.record_batch(columns)]):
        writer.add(batch)
    writer.finish()
    folders = [
        sorted(str(path.parent.relative_to(tmp_path / home)) for path in (tmp_path / home).rglob("*.parquet"))
        for home in ("spark", "own")
    ]
    assert folders[0] == folders[1]
