"""The parts of archiving, without Spark: schemas that grow, bodies that fit, names, merges, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from leveret.cli.spark.archive import command
from leveret.client import BlockingConnection
from leveret.pipelines import PipelineError, archive
from leveret.pipelines.archives.census import ValueCensus
from leveret.pipelines.archives.lake import Identity, read
from leveret.pipelines.archives.merging import MergeSizes, Merging, united
from leveret.pipelines.archives.places import LakeLocations
from leveret.pipelines.archives.schemas import Schemas, to_json
from leveret.pipelines.archives.sources import ArchiveSource
from leveret.pipelines.archives.storage import Storage

from .bodies import census_of, grow, parsed, schema_of

NO_SPARK = cast(SparkSession, None)
"""For requests that are refused before Spark is used."""


class TestSchemas:
    def test_fields_get_the_type_that_most_values_have(self) -> None:
        schema = schema_of({"n": 1, "t": "x"}, {"n": "odd", "t": "y"}, {"n": 2, "t": None})
        assert {column.name: column.kind for column in schema.columns} == {"n": "long", "t": "string"}

    def test_whole_numbers_among_doubles_are_doubles(self) -> None:
        [column] = schema_of({"n": 1}, {"n": 2}, {"n": 0.5}, {"n": "1"}).columns
        assert column.kind == "double"

    def test_what_came_first_stays_and_what_is_new_comes_behind(self) -> None:
        first = schema_of({"a": 1, "s": {"x": 1}, "l": [{"p": True}]})
        second = grow(census_of({"new": "x", "s": {"y": "z"}, "l": [{"q": 1.5}, 7], "a": "text"}))(first)
        assert second.struct().simpleString() == (
            "struct<a:bigint,s:struct<x:bigint,y:string>,l:array<struct<p:boolean,q:double>>,new:string>"
        )

    def test_what_has_no_type_yet_has_no_field(self) -> None:
        body = {"null": None, "object": {}, "array": [], "nested": {"x": [None]}, "": 1, "a\n": 1}
        assert schema_of(body).columns == ()

    def test_names_that_differ_by_case_are_one(self) -> None:
        schema = schema_of({"Id": 1})
        schema = grow(census_of({"id": 2}))(schema)
        assert [column.name for column in schema.columns] == ["Id"]
        assert parsed(schema, {"id": 2})[1] == ["the lake has no column for `$.id`"]

    def test_so_many_fields_and_no_more(self) -> None:
        schema = schema_of({f"f{number}": number for number in range(10)}, fields_max=4)
        assert len(schema.columns) == 4
        assert grow(census_of({"late": 1}), 4)(schema) == schema

    def test_parts_of_a_census_count_together(self) -> None:
        values = [{"a": [1, {"b": "x"}]}, {"a": None, "c": 2.5}, {"a": [{"b": 1}]}, {"d": 1 << 63}]
        parts = [ValueCensus.parse(census_of(value).text()) for value in values]
        assert json.loads(ValueCensus.merged(parts).text()) == json.loads(census_of(*values).text())

    def test_versions_are_written_down_and_read_again(self, tmp_path: Path) -> None:
        schemas = Schemas(Storage.at(str(tmp_path)))
        assert schemas.newest().version == 0
        first = schemas.grow(grow(census_of({"a": [{"b": 1}]})))
        assert schemas.grow(grow(census_of({"a": [{"b": 2}]}))).version == 1, "nothing new"
        second = schemas.grow(grow(census_of({"c": "x"})))
        assert (first.version, second.version) == (1, 2)
        assert schemas.version(1).document() == first.document()
        assert [to_json(column) for column in schemas.newest().columns] == [to_json(c) for c in second.columns]


class TestBodies:
    SCHEMA = schema_of({"id": 1, "x": 0.5, "at": {"city": "EWR"}, "tags": ["a"], "ok": True})

    def test_bodies_that_fit(self) -> None:
        data, errors = parsed(self.SCHEMA, {"id": 7, "x": 3}, {}, {"at": {}, "tags": None, "new": None})
        nothing = {"id": None, "x": None, "at": None, "tags": None, "ok": None}
        assert errors == [None, None, None]
        assert data == [{**nothing, "id": 7, "x": 3.0}, nothing, {**nothing, "at": {"city": None}}]

    @pytest.mark.parametrize(
        ("body", "error"),
        [
            (b"{", "Expecting property name"),
            (b'{"id": 1} 2', "trailing characters"),
            (b"\xff", "codec can't decode"),
            (b'{"x": NaN}', "NaN is not a JSON number"),
            ([1], "Expected `object`, got `array`"),
            ({"id": "1"}, "Expected `long | null`, got `str` - at `$.id`"),
            ({"id": 1.0}, "Expected `long | null`, got `float` - at `$.id`"),
            ({"id": 1 << 63}, "at `$.id`"),
            ({"id": True}, "got `bool` - at `$.id`"),
            ({"at": {"city": 5}}, "got `int` - at `$.at.city`"),
            ({"at": {"gate": 5}}, "the lake has no column for `$.at.gate`"),
            ({"tags": ["a", 5]}, "at `$.tags[...]`"),
            ({"new": 1 << 63}, "the lake has no column for `$.new`"),
        ],
    )
    def test_bodies_that_do_not(self, body: Any, error: str) -> None:
        data, errors = parsed(self.SCHEMA, {"id": 1}, body, {"id": 2})
        assert error in str(errors[1])
        assert (errors[0], errors[2], data[1]) == (None, None, None)
        assert (data[0]["id"], data[2]["id"]) == (1, 2)

    def test_a_lake_without_fields_has_no_data(self) -> None:
        assert parsed(schema_of({}), {}, b"x") == ([], [None, "Expecting value: line 1 column 1 (char 0)"])


def put(folder: Path, name: str, table: pa.Table) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name)


class TestMerging:
    def test_fields_that_a_file_has_not_are_null(self, tmp_path: Path) -> None:
        folder = tmp_path / "day=2013-01-01"
        old = pa.table({"offset": [0, 1], "data": [{"a": 1, "l": [{"p": 1}]}, None], "headers": pa.array(
            [[("k", "v")], None], pa.map_(pa.string(), pa.string()))})  # fmt: skip
        new = pa.table({"offset": [2], "data": [{"a": 2, "b": "x", "l": [{"p": 3, "q": 4}]}], "more": ["y"]})
        put(folder, "s-00000000-000000000-00000.parquet", old)
        put(folder, "s-00000000-000000001-00000.parquet", new)
        put(folder, "t-00000000-000000001-00000.parquet", new)
        merging = Merging("s-00000000", Storage.at(str(tmp_path)), MergeSizes())
        assert merging.partitions() == ["day=2013-01-01"]
        assert merging.run("day=2013-01-01") == (0, 0), "two are not many"
        assert merging.run("day=2013-01-01", all_tiers=True) == (2, 1)
        [merged] = folder.glob("s-*.parquet")
        assert merged.name.startswith("s-00000000-000000000-000000001-")
        rows = pq.ParquetFile(merged).read().to_pylist()
        assert rows == [
            {"offset": 0, "data": {"a": 1, "l": [{"p": 1, "q": None}], "b": None}, "headers": [("k", "v")],
             "more": None},
            {"offset": 1, "data": None, "headers": None, "more": None},
            {"offset": 2, "data": {"a": 2, "l": [{"p": 3, "q": 4}], "b": "x"}, "headers": None, "more": "y"},
        ]  # fmt: skip
        assert len(list(folder.glob("t-*.parquet"))) == 1, "another source's"

    def test_large_files_stay_and_merged_ones_have_a_size(self, tmp_path: Path) -> None:
        for number in range(6):
            rows = pa.table({"n": [str(number) * 10]}) if number else pa.table({"n": [bytes(range(256)) * 64]})
            put(tmp_path, f"s-00000000-{number:09d}-00000.parquet", rows)
        size = (tmp_path / "s-00000000-000000001-00000.parquet").stat().st_size
        merging = Merging("s-00000000", Storage.at(str(tmp_path)), MergeSizes(2 * size, 3 * size, 2))
        assert merging.planned("") == (5, 2)
        assert merging.run("") == (5, 2)
        assert len(list(tmp_path.glob("*.parquet"))) == 3
        assert merging.run("") == (2, 1), "what came of it is still small"

    def test_lists_and_fields_are_united(self) -> None:
        one = pa.schema([("a", pa.list_(pa.struct([("x", pa.int64())])))])
        other = pa.schema([("a", pa.list_(pa.struct([("y", pa.string())]))), ("b", pa.int32())])
        both = united([one, other])
        assert both.names == ["a", "b"]
        assert both.field("a").type.value_type == pa.struct([("x", pa.int64()), ("y", pa.string())])


class TestPlaces:
    def test_sources_have_names_of_their_own(self) -> None:
        url = "amqp://guest:guest@h:5672/"
        names = {
            ArchiveSource(kind, name, where, broker).slug
            for kind in ("stream", "queue")
            for name in ("a/b", "a_b", "ä" * 200, "..")
            for where in (url, f"{url}other")
            for broker in ("h:5672", "east")
        }
        assert len(names) == 32
        assert all(name[0] not in "." and len(name) < 80 and "/" not in name for name in names)

    def test_one_process_archives_a_source_into_a_lake(self, tmp_path: Path) -> None:
        places = LakeLocations.of(str(tmp_path / "lake"), "parquet", None, None, None)
        refused = pytest.raises(PipelineError, match=r"s-1 is being archived into .*/lake by another process")
        with places.held("s-1"), places.held("s-2"), refused:
            places.held("s-1").__enter__()
        with places.held("s-1"):
            pass

    def test_stores_have_their_names_in_spark(self, tmp_path: Path) -> None:
        assert Storage.at(f"file://{tmp_path}/a b").spark("x") == f"file://{tmp_path}/a b/x"
        bucket = Storage.at("s3a://bucket/lake/?region=eu-central-1")
        assert (bucket.spark("x"), bucket.root, bucket.is_local) == ("s3a://bucket/lake/x", "bucket/lake", False)
        places = LakeLocations.of("s3a://bucket/lake?region=eu-central-1", "parquet", None, None, None)
        assert places.dead == "s3a://bucket/lake_dead_letters"
        queue = ArchiveSource("queue", "q", "amqp://h/", "h")
        assert places.checkpoint_of(queue).location == f"s3a://bucket/lake/_leveret/{queue.slug}/checkpoint"
        with pytest.raises(PipelineError, match="queue 'q': set spool_dir"):
            places.spool_of(queue)

    def test_a_directory_with_other_files_is_no_lake(self, tmp_path: Path) -> None:
        put(tmp_path, "mine.parquet", pa.table({"n": [1]}))
        with pytest.raises(PipelineError, match=r"contains files that were not archived, such as mine.parquet"):
            Identity().claim(Storage.at(str(tmp_path)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name at least one stream or queue"),
        ({"streams": ["s"], "compact_only": True}, "compact_only reads no stream or queue"),
        ({"streams": ["s"], "queues": ["s"]}, "a stream or queue is named twice"),
        ({"streams": ["s"], "form": "orc"}, "form must be one of parquet, delta, iceberg, not 'orc'"),
        ({"streams": ["s"], "parse": "xml"}, "parse must be one of json, not 'xml'"),
        ({"streams": ["s"], "partition_by": ["day", "hour"]}, "partition_by can't be 'hour'"),
        ({"streams": ["s"], "partition_by": ["day", "day"]}, "partition_by names a column twice"),
        ({"streams": ["s"], "url": "http://h"}, "url: a connection URL begins with amqp://"),
        ({"streams": ["s"], "compact_below_mib": 256}, "from 0 (merge nothing) to compact_to_mib"),
        ({"streams": ["s"], "compact_files": 1}, "compact_files must be 2 or more"),
        ({"streams": ["s"], "form": "iceberg"}, "set checkpoint, a directory"),
        ({"streams": ["s"], "options": {"startingOffsets": "noon"}}, "option startingOffsets must be"),
        ({"compact_only": True}, "is not a lake, so there is nothing to merge"),
    ],
)
def test_what_cannot_be_done_is_told(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(PipelineError) as error:
        archive(NO_SPARK, str(tmp_path / "lake"), **given)
    assert said in str(error.value)
    assert not (tmp_path / "lake").exists()


def test_sources_that_are_not_there_are_told(tmp_path: Path, broker: str) -> None:
    for given, said in (
        ({"streams": ["none"]}, "there is no stream 'none'"),
        ({"queues": ["none"]}, "queue 'none' at 127.0.0.1:.*404"),
    ):
        with pytest.raises(PipelineError, match=said):
            archive(NO_SPARK, str(tmp_path / "lake"), url=broker, **cast(dict[str, Any], given))
    with pytest.raises(PipelineError, match=r"stream 's' at 127\.0\.0\.1:1"):
        archive(NO_SPARK, str(tmp_path / "lake"), url="amqp://127.0.0.1:1/", streams=["s"])
    with pytest.raises(PipelineError, match="is not a lake: create one with leveret spark archive"):
        read(NO_SPARK, str(tmp_path))


def test_a_dry_run_counts_and_disturbs_nobody(tmp_path: Path, broker: str) -> None:
    with BlockingConnection(broker, reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_queue("archive.dry")
        channel.declare_queue("archive.dry.stream", arguments={"x-queue-type": "stream"})
        channel.confirm_select()
        for _ in range(5):
            channel.publish(b"x", "", "archive.dry")
            channel.publish(b"x", "", "archive.dry.stream")
        channel.wait_for_confirms(10)
        given: dict[str, Any] = {"url": broker, "queues": ["archive.dry"], "streams": ["archive.dry.stream"]}
        said = archive(NO_SPARK, str(tmp_path / "lake"), **given, options={"startingOffsets": "2"}, dry_run=True)
        assert said.figures == {"messages_waiting": 8}
        assert [row[2] for row in said.tables[0].rows] == [3, 5]
        delivery = channel.get("archive.dry")
        assert delivery is not None
        assert not delivery.redelivered
        channel.delete_queue("archive.dry")
        channel.delete_queue("archive.dry.stream")
    assert not list(tmp_path.iterdir())


def test_the_options_of_the_source_are_pairs() -> None:
    result = CliRunner().invoke(command, ["lake", "--stream", "s", "--option", "segments"])
    assert result.exit_code == 2
    assert "write NAME=VALUE" in result.output
