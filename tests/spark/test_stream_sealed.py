"""A micro-batch has the same rows, whichever of them are sealed, and whatever is sealed or deleted while it is read."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leveret.spark.source import LeveretDataSource
from leveret.spark.streams.bounds import Bounds, QueryStreams
from leveret.spark.streams.planning import StreamTask
from leveret.testing.processes import LeveretProcess

from .sealed import COUNT, STREAM
from .streams import latest, reader, rows, task_rows

FIRST, END = 100, 2900


def without_arrival(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows in the order of offsets, without the column that only sealed messages have."""
    return sorted(({**row, "arrived": None} for row in found), key=lambda row: int(row["offset"]))


def test_what_is_sealed_meanwhile_changes_nothing(
    sealed_broker: LeveretProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted query reads what it had planned, of which more may be sealed by then."""
    start, end = {STREAM: {"id": None, "next": FIRST}}, {STREAM: {"id": None, "next": END}}
    asked = QueryStreams.bounds
    sealed_offset = 0

    def bounds(self: QueryStreams, stream: str) -> Bounds:
        found = asked(self, stream)
        assert found.facts is not None
        return replace(found, facts={**found.facts, "sealed_offset": sealed_offset})

    monkeypatch.setattr(QueryStreams, "bounds", bounds)
    found = []
    for sealed_offset in (0, FIRST, 700, 1501, COUNT):
        source = reader(sealed_broker.url, STREAM, minPartitions="3")
        creation = latest(source, {})[STREAM]["id"]
        start[STREAM]["id"] = end[STREAM]["id"] = creation
        tasks = list(source.partitions(start, end))
        sealed = [task for task in tasks if isinstance(task, StreamTask) and task.sealed is not None]
        assert bool(sealed) == (sealed_offset > FIRST)
        assert sum(len(task.span) for task in sealed) == max(0, min(END, sealed_offset) - FIRST)
        found.append(task_rows(source, tasks))
        source.stop()
    assert [row["offset"] for row in without_arrival(found[0])] == list(range(FIRST, END))
    assert [row["arrived"] is None for row in found[0]] == [True] * (END - FIRST)
    assert not any(row["arrived"] is None for row in found[-1])
    for other in found[1:]:
        assert without_arrival(other) == without_arrival(found[0])


def test_files_that_go_before_they_are_read_are_read_over_amqp(
    sealed_broker: LeveretProcess, sealed_facts: dict[str, Any], tmp_path: Path
) -> None:
    tables = Path(sealed_facts["tables_dir"])
    copy = tmp_path / tables.parent.name / tables.name
    shutil.copytree(tables, copy)
    source = reader(sealed_broker.url, STREAM, tablesDir=str(tmp_path))
    end = latest(source, {})
    tasks = list(source.partitions({}, end))
    assert all(isinstance(task, StreamTask) and task.sealed is not None for task in tasks)
    for file in sorted(copy.rglob("*.parquet"))[1:]:
        file.unlink()
    found = task_rows(source, tasks)
    assert [row["offset"] for row in without_arrival(found)] == list(range(COUNT))
    assert len({row["arrived"] is None for row in found}) == 2, "the one that stayed was read"
    source.stop()


def test_the_schema_of_a_stream_is_asked_for_once(
    sealed_broker: LeveretProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = LeveretDataSource({"url": sealed_broker.url, "stream": STREAM, "parse": "stream", "columns": "n,offset"})
    schema = source.schema()
    assert schema.simpleString() == "struct<n:bigint,offset:bigint>"
    monkeypatch.setattr(QueryStreams, "bounds", lambda self, stream: pytest.fail("asked again"))
    source.streamReader(schema)


def test_rows_between_two_offsets_are_those_of_the_batch(sealed_broker: LeveretProcess) -> None:
    source = reader(sealed_broker.url, STREAM, maxRowsPerTrigger="1000")
    offset, found = source.initialOffset(), []
    while (end := latest(source, offset, source.getDefaultReadLimit())) != offset:
        found += rows(source, offset, end)
        offset = end
    assert [row["offset"] for row in found] == list(range(COUNT))
    source.stop()
