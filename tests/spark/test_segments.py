"""Sealed segments by path: the rows equal those of AMQP consumers, each once, and damaged files are detected."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from leveret.client import BlockingConnection, Delivery
from leveret.client.segments.errors import SealedFileDamaged, SegmentGone, SegmentsUnavailable
from leveret.spark.segments.options import SegmentOptions
from leveret.testing.processes import LeveretProcess
from leveret.wire.header_text import header_text

from .sealed import ARROW, COUNT, PROPERTY_TYPES, STREAM, files, only, rows, sealed


@pytest.fixture
def facts(sealed_facts: dict[str, Any]) -> dict[str, Any]:
    return sealed_facts


@pytest.fixture
def copied(facts: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Facts of a copy, whose files a test may damage."""
    shutil.copytree(facts["tables_dir"], tmp_path / "%2F" / STREAM)
    return facts | {"tables_dir": str(tmp_path / "%2F" / STREAM)}


# -- rows --------------------------------------------------------------------------------------------------------------


def test_rows_are_what_consumers_get(sealed_broker: LeveretProcess, facts: dict[str, Any]) -> None:
    with BlockingConnection(sealed_broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.consume(STREAM, arguments={"x-stream-offset": "first"}, prefetch_count=COUNT)
        deliveries: list[Delivery] = []
        while len(deliveries) < COUNT:
            deliveries += channel.deliveries(COUNT - len(deliveries))
    found = rows(sealed(), facts, 0, COUNT).to_pylist()
    for row, delivery in zip(found, deliveries, strict=True):
        properties = delivery.properties
        headers = dict(properties.headers or {})
        assert row["offset"] == headers.pop("x-stream-offset")
        assert (row["body"], row["exchange"], row["routing_key"]) == (
            delivery.body, delivery.exchange, delivery.routing_key,
        )  # fmt: skip
        said = {name: header_text(value) for name, value in headers.items()} or None
        assert (dict(row["headers"]) if row["headers"] else None) == said
        for name in PROPERTY_TYPES:
            value = getattr(properties, name)
            if name == "timestamp" and value is not None:
                value = datetime.fromtimestamp(value, UTC)
            assert row[name] == value, name
    assert {row["stream"] for row in found} == {STREAM}
    assert all(before["arrived"] <= after["arrived"] for before, after in pairwise(found))


def test_any_range_is_read_exactly(facts: dict[str, Any]) -> None:
    """Ranges begin and end anywhere in files, row groups and batches."""
    chance = random.Random(7)
    ends = [each for path in files(facts) for each in map(int, path.name.split("-")[:2])]
    ranges = [sorted(chance.sample(range(COUNT + 1), 2)) for _ in range(30)]
    ranges += [[end, end + 1] for end in ends] + [[max(0, end - 1), min(COUNT, end + 2)] for end in ends]
    of = sealed()
    for first, end in ranges:
        offsets = rows(of, facts, first, end, only("offset"), min_partitions=chance.randrange(1, 9))
        assert offsets["offset"].to_pylist() == list(range(first, end))


def test_tasks_follow_each_other(facts: dict[str, Any]) -> None:
    of = sealed()
    assert len(files(facts)) > 5
    for wanted in (1, 2, 3, 7, 50):
        tasks = of.plan(facts, 3, COUNT - 3, wanted)
        assert len(tasks) == wanted
        assert max(task.end - task.first for task in tasks) <= 2 * (COUNT - 6) / wanted
        assert [tasks[0].first, *[task.end for task in tasks]] == [*[task.first for task in tasks], COUNT - 3]
        assert of.planned_until(tasks, 3) == COUNT - 3
    assert (of.plan(facts, 5, 5), of.planned_until([], 5)) == ([], 5)


def test_a_large_file_is_cut_between_its_row_groups(copied: dict[str, Any]) -> None:
    """No row group is read twice; row groups are only divided if there are more tasks than row groups."""
    path = files(copied)[0]
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table, path, row_group_size=50)
    of = sealed()
    assert [task.end for task in of.plan(copied, 0, 200, 2)] == [100, 200]
    assert [task.end for task in of.plan(copied, 20, 200, 3)] == [100, 150, 200]
    assert [task.end for task in of.plan(copied, 0, 100, 8)] == [12, 25, 37, 50, 62, 75, 87, 100]
    assert rows(of, copied, 20, 190, only("offset"), min_partitions=5)["offset"].to_pylist() == list(range(20, 190))


def test_columns_that_are_not_asked_for_are_not_read(facts: dict[str, Any]) -> None:
    found = rows(sealed(), facts, 0, 100, only("routing_key", "stream"))
    assert found.column_names == ["routing_key", "stream"]
    assert found["routing_key"][:2].to_pylist() == [STREAM, "odd.1"]


def test_columns_of_the_schema_are_handed_through(facts: dict[str, Any]) -> None:
    """One has the name of a message property, and replaces it."""
    schema = pa.schema(
        [("n", pa.int64()), ("tags", pa.list_(pa.string())), ("type", pa.string()), ("parse_error", pa.string())]
    )
    (task,) = sealed().plan(facts, 10, 13)
    found = pa.Table.from_batches(task.read(schema, schema.names)).to_pylist()
    assert found[0] == {"n": 10, "tags": ["x"], "type": "late", "parse_error": None}
    assert found[1].pop("parse_error") is not None
    assert found[1] == {"n": None, "tags": None, "type": None}
    assert found[2] == {"n": 12, "tags": [], "type": None, "parse_error": None}


# -- planning ----------------------------------------------------------------------------------------------------------


def test_what_is_not_sealed_is_left_to_others(facts: dict[str, Any]) -> None:
    of = sealed()
    tasks = of.plan(facts | {"sealed_offset": 100}, 0, COUNT)
    assert of.planned_until(tasks, 0) == 100
    assert of.plan(facts | {"sealed_offset": 0}, 0, COUNT) == []
    assert of.plan(facts, COUNT, COUNT + 10) == []
    assert sealed(segments="amqp").plan(facts, 0, COUNT) == []


def test_another_stream_of_that_name_is_another_stream(facts: dict[str, Any], copied: dict[str, Any]) -> None:
    """The stream was deleted and redeclared: files of the old one may remain for a moment."""
    assert sealed().plan(facts | {"creation": "00000000000000aa"}, 0, COUNT) == []
    of = sealed()
    of.plan(copied, 0, COUNT)
    for path in files(copied):
        path.rename(path.with_name(path.name.replace(facts["creation"], "00000000000000aa")))
    assert of.plan(copied | {"creation": "00000000000000aa"}, 0, COUNT)[-1].end == COUNT
    assert of.plan(copied, 0, COUNT) == []


def test_a_gap_ends_what_can_be_planned(copied: dict[str, Any]) -> None:
    third = files(copied)[2]
    third.unlink()
    of = sealed()
    first, last = map(int, third.name.split("-")[:2])
    assert of.planned_until(of.plan(copied, 0, COUNT), 0) == first
    assert of.plan(copied, first + 1, COUNT) == []
    assert of.planned_until(of.plan(copied, last + 1, COUNT), 0) == COUNT


def test_files_that_come_later_are_found(copied: dict[str, Any], tmp_path: Path) -> None:
    last = files(copied)[-1]
    aside = last.rename(tmp_path / last.name)
    of, first = sealed(), int(last.name[:20])
    assert of.planned_until(of.plan(copied | {"sealed_offset": first}, 0, COUNT), 0) == first
    aside.rename(last)
    assert of.planned_until(of.plan(copied, 0, COUNT), 0) == COUNT


def test_the_directory_may_be_elsewhere(copied: dict[str, Any], tmp_path: Path) -> None:
    told = copied | {"tables_dir": f"/nowhere/%2F/{STREAM}"}
    assert sealed().plan(told, 0, COUNT) == []
    assert sealed(tablesDir=str(tmp_path)).plan(told, 0, COUNT)[-1].end == COUNT
    with pytest.raises(SegmentsUnavailable, match=r"segments=path: .*No such file.*tablesDir.*apiUrl"):
        sealed(segments="path").plan(told, 0, COUNT)
    with pytest.raises(SegmentsUnavailable, match="tablesDir"):
        sealed(segments="path").plan(copied | {"tables_dir": None}, 0, COUNT)


def test_an_executor_that_does_not_see_the_directory(copied: dict[str, Any]) -> None:
    """`auto` falls back to AMQP; otherwise the error says what to change."""
    for mode, error in (("auto", SegmentGone), ("path", SegmentsUnavailable)):
        (task,) = sealed(segments=mode).plan(copied, 10, 20)
        (file,) = task.files
        moved = dataclasses.replace(file, path=f"/nowhere/{STREAM}/date=2026-11-22/{file.name}")
        with pytest.raises(error, match="apiUrl"):
            list(dataclasses.replace(task, files=(moved,)).read(ARROW))


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_file_that_retention_took(copied: dict[str, Any]) -> None:
    """Rows read before are kept; the error says where they end, and which setting would have helped."""
    (task,) = sealed().plan(copied, 5, COUNT)
    assert len(task.files) > 3
    gone = task.files[2]
    os.unlink(gone.path or "")
    offsets: list[int] = []
    with pytest.raises(SegmentGone, match=r"apiUrl.*failOnDataLoss") as raised:
        offsets.extend(offset for batch in task.read(only("offset")) for offset in batch["offset"].to_pylist())
    assert offsets == list(range(5, gone.first))
    assert (raised.value.first, raised.value.end) == (gone.first, COUNT)


def spoil(path: Path, change: Any) -> None:
    metadata = pq.read_metadata(path)
    table = change(pq.read_table(path, partitioning=None))
    pq.write_table(table, path, row_group_size=metadata.row_group(0).num_rows)


def test_a_missing_row_is_noticed(copied: dict[str, Any]) -> None:
    """Detected if the file is shorter than its name says, or if another row replaces one."""
    (task,) = sealed().plan(copied, 0, 50)
    path = files(copied)[0]
    whole = pq.read_table(path, partitioning=None)
    spoil(path, lambda table: table.filter(pc.not_equal(table["offset"], 20)))
    with pytest.raises(SealedFileDamaged, match=r"rows instead of .*segments=amqp"):
        list(task.read(only("body")))
    twice = pa.concat_tables([whole.slice(0, 20), whole.slice(19, 1), whole.slice(21)])
    spoil(path, lambda _: twice)
    with pytest.raises(SealedFileDamaged, match="are missing"):
        list(task.read(only("body")))
    swapped = pa.concat_tables([whole.slice(0, 20), whole.slice(21, 1), whole.slice(20, 1), whole.slice(22)])
    spoil(path, lambda _: swapped)
    with pytest.raises(SealedFileDamaged, match="are missing"):
        list(task.read(only("body")))


def test_what_is_no_parquet_is_noticed(copied: dict[str, Any]) -> None:
    (task,) = sealed().plan(copied, 0, 50)
    files(copied)[0].write_bytes(b"oops")
    with pytest.raises(SealedFileDamaged, match="segments=amqp"):
        list(task.read(ARROW))
    with pytest.raises(SealedFileDamaged, match="segments=amqp"):
        sealed().plan(copied, 0, 50, min_partitions=2)


@pytest.mark.parametrize(("options", "text"), [
    ({"segments": "ftp"}, "segments must be one of auto, path, http, amqp, not 'ftp'"),
    ({"segments": "http"}, "segments=http needs option apiUrl"),
    ({"apiUrl": "localhost:15672"}, "apiUrl must begin with http://"),
])  # fmt: skip
def test_options_are_checked(options: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SegmentOptions.parse(options)
