"""Filters offered by Spark: row groups without matching rows are not read, and all other row groups are."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from leveret.spark.segments.pruning import EVERYTHING, Pruning, ValueSpan, is_offered, pruning_of

from .sealed import COUNT, STREAM, files, only, rows, sealed

GROUP = 50


@pytest.fixture(scope="module")
def facts(sealed_facts: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Files with small row groups, in which arrival times and routing keys grow with the offsets."""
    directory = tmp_path_factory.mktemp("tables") / "%2F" / STREAM
    shutil.copytree(sealed_facts["tables_dir"], directory)
    facts = sealed_facts | {"tables_dir": str(directory)}
    for path in files(facts):
        table = pq.read_table(path, partitioning=None)
        offsets = table["offset"].to_pylist()
        table = table.set_column(1, "timestamp", [[arrival(offset) for offset in offsets]])
        table = table.set_column(3, "routing_key", [[f"k{offset // 100:03d}" for offset in offsets]])
        pq.write_table(table, path, row_group_size=GROUP)
    return facts


def arrival(offset: int) -> datetime:
    return datetime(2026, 11, 22, tzinfo=UTC) + timedelta(seconds=offset)


def read(facts: dict[str, Any], *filters: Filter) -> list[int]:
    """Return the offsets of the rows that are read; more than match, since Spark filters again."""
    pruning = pruning_of(filters)
    first, end = pruning.first, min(COUNT, pruning.end)
    table = rows(sealed(), facts, first, end, only("offset"), pruning=pruning)
    return [int(offset) for offset in table["offset"].to_pylist()]


def test_offsets_bound_what_is_read(facts: dict[str, Any]) -> None:
    """Offset bounds are exact, as with Kafka."""
    assert read(facts, GreaterThanOrEqual(("offset",), 2990)) == list(range(2990, COUNT))
    assert read(facts, GreaterThan(("offset",), 2990)) == list(range(2991, COUNT))
    assert read(facts, LessThan(("offset",), 7)) == list(range(7))
    assert read(facts, LessThanOrEqual(("offset",), 7), GreaterThan(("offset",), 4)) == [5, 6, 7]
    assert read(facts, EqualTo(("offset",), 1234)) == [1234]
    assert read(facts, In(("offset",), (20, 10, 11))) == list(range(10, 21))
    assert read(facts, EqualTo(("offset",), 1), EqualTo(("offset",), 2)) == []
    assert read(facts, LessThan(("offset",), -5)) == []
    assert read(facts) == list(range(COUNT))


def test_row_groups_are_left_out_by_their_statistics(facts: dict[str, Any]) -> None:
    late = arrival(2000)
    found = read(facts, GreaterThanOrEqual(("arrived",), late))
    assert set(range(2000, COUNT)) <= set(found)
    assert min(found) > 2000 - GROUP
    found = read(facts, LessThan(("arrived",), late.replace(tzinfo=None)))
    assert set(range(2000)) <= set(found)
    assert max(found) < 2000 + GROUP
    found = read(facts, EqualTo(("routing_key",), "k007"))
    assert set(range(700, 800)) <= set(found)
    assert len(found) < 100 + 2 * GROUP
    found = read(facts, In(("routing_key",), ("k007", "k008", None)), GreaterThan(("arrived",), arrival(790)))
    assert set(range(791, 900)) <= set(found)
    assert len(found) < 109 + 2 * GROUP
    assert read(facts, EqualTo(("exchange",), "zzz")) == []


@pytest.mark.parametrize("each", [
    Not(EqualTo(("offset",), 5)), IsNotNull(("offset",)), EqualTo(("message_id",), "m5"),
    EqualTo(("headers", "number"), "5"), EqualTo(("offset",), None), In(("offset",), (None,)),
    StringStartsWith(("routing_key",), "k007"),
])  # fmt: skip
def test_other_filters_say_nothing(each: Filter) -> None:
    assert pruning_of([each]) == EVERYTHING


def test_rows_without_statistics_are_read() -> None:
    assert Pruning({"routing_key": ValueSpan("a", "b")}).may_want({})


def test_filters_are_asked_for_in_a_process_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters are off by default, and a reader that accepts them outside of that process would cause an error."""
    assert not is_offered()
    monkeypatch.setitem(__import__("sys").modules, "pyspark.sql.worker.data_source_pushdown_filters", object())
    assert is_offered()
