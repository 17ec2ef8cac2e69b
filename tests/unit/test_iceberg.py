"""Streams in an Iceberg catalogue: pyiceberg and DuckDB read back, row by row, what was registered."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from sqlalchemy.orm import Session

from leveret.lake import iceberg
from leveret.lake.iceberg import NotRegistered, Registered, data_files, forget_old, open_catalog, register
from leveret.lake.synced_io import SyncedFile
from leveret.store.disk import RealDisk
from leveret.store.tables import (
    Extent,
    TableFile,
    date_directory,
    file_name,
    remove_tables,
    stream_directory,
    table_files,
)

OLD, NEW = "00000000000000aa", "00000000000000bb"
DAY_ONE = datetime(2026, 11, 21, tzinfo=UTC)
ORDERS = ("%2F", "orders.eu")

VALUE = pa.struct({"type": pa.string(), "text": pa.string(), "integer": pa.int64(), "number": pa.float64()})
PROPERTIES = pa.struct({"content_type": pa.string(), "priority": pa.int32(), "timestamp": pa.timestamp("us", "UTC")})
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        ("exchange", pa.string()), ("routing_key", pa.string()), ("message_id", pa.string()),
        ("properties", PROPERTIES), ("headers", pa.map_(pa.string(), VALUE)), ("raw_properties", pa.binary()),
        ("body", pa.binary()),
    ]
)  # fmt: skip


def rows(first: int, count: int, day: int, more: dict[str, Any] | None = None) -> pa.Table:
    """Return messages that arrived one a second from the beginning of a day on."""
    begin = DAY_ONE + timedelta(days=day)
    columns: dict[str, Any] = {
        "offset": range(first, first + count),
        "timestamp": [begin + timedelta(seconds=index) for index in range(count)],
        "exchange": ["amq.topic"] * count,
        "routing_key": [f"k.{index % 3}" for index in range(count)],
        "message_id": [None if index % 2 else f"m{first + index}" for index in range(count)],
        "properties": [{"content_type": "application/json", "priority": index % 10} for index in range(count)],
        "headers": [[("n", {"type": "long", "integer": index}), ("t", {"type": "longstr"})] for index in range(count)],
        "raw_properties": [bytes([index % 256]) for index in range(count)],
        "body": [f'{{"n": {first + index}}}'.encode() for index in range(count)],
    }
    fields = list(SCHEMA)
    for name, values in (more or {}).items():
        columns[name] = values
        fields.append(pa.field(name, pa.array(values).type))
    return pa.table(columns, schema=pa.schema(fields))


@dataclass
class Lake:
    """A directory of tables, and a catalogue."""

    home: Path

    @property
    def directory(self) -> str:
        return stream_directory(str(self.home / "tables"), "/", "orders.eu")

    def catalog(self) -> Catalog:
        return open_catalog(f"sqlite:///{self.home}/catalog.db", f"file://{self.home}/warehouse")

    def put(
        self, first: int, count: int = 10, day: int = 0, creation: str = NEW, more: dict[str, Any] | None = None
    ) -> str:
        """Write a sealed file; return its path."""
        date = (DAY_ONE + timedelta(days=day)).strftime("%Y-%m-%d")
        folder = os.path.join(self.directory, date_directory(date))
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, file_name(first, first + count - 1, creation))
        pq.write_table(rows(first, count, day, more), path, use_dictionary=["routing_key"], compression="zstd")
        return path

    def retain(self, first: int) -> None:
        """Remove the tables before `first`, as retention does."""
        remove_tables(RealDisk(), self.directory, Extent(NEW, first, 1 << 62))

    def files(self) -> list[TableFile]:
        return table_files(RealDisk(), self.directory)

    def register(self) -> Registered:
        return register(self.catalog(), ORDERS, self.files)

    def table(self) -> Table:
        """Load the table as another process sees it."""
        return self.catalog().load_table(ORDERS)

    def written(self) -> pa.Table:
        """Return the rows of the files in the directory."""
        found = pyarrow.dataset.dataset([file.path for file in self.files()], SCHEMA).to_table()
        return found.sort_by("offset")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def scanned(table: Table, **options: Any) -> pa.Table:
    return table.scan(**options).to_arrow().sort_by("offset")


def test_rows_are_those_of_the_files(lake: Lake) -> None:
    for index in range(4):
        lake.put(index * 10, day=index // 2)
    assert lake.register() == Registered(4, 0, 0)
    found, written = scanned(lake.table()), lake.written()
    assert found.to_pylist() == written.to_pylist()
    assert found.num_rows == 40
    # DuckDB on the table as Arrow, and on the files that it names
    query = "select sum(\"offset\"), count(distinct headers['n'].integer) from found"
    assert duckdb.sql(query).fetchall() == [(780, 10)]
    connection = lake.table().scan().to_duckdb("orders")
    assert connection.execute('select sum("offset"), count(*) from orders').fetchall() == [(780, 40)]
    paths = [uri.removeprefix("file://") for uri in data_files(lake.table())]
    query = f'select "offset", routing_key, body from read_parquet({paths}) order by 1'
    columns = [written[name].to_pylist() for name in ("offset", "routing_key", "body")]
    assert duckdb.sql(query).fetchall() == list(zip(*columns, strict=True))


def test_a_reader_opens_only_the_files_that_it_needs(lake: Lake) -> None:
    for index in range(4):
        lake.put(index * 10, day=index // 2)
    lake.register()
    table = lake.table()
    assert [file.name for file in table.spec().fields] == ["day"]
    assert {str(file.partition[0]) for file in data_files(table).values()} == {"20778", "20779"}  # days since 1970
    second = f"timestamp >= '{(DAY_ONE + timedelta(days=1)).isoformat()}'"
    assert len(list(table.scan(second).plan_files())) == 2
    assert scanned(table, row_filter=second)["offset"].to_pylist() == list(range(20, 40))
    assert len(list(table.scan("offset >= 35").plan_files())) == 1


def test_what_is_there_is_not_added_again(lake: Lake) -> None:
    lake.put(0)
    assert lake.register() == Registered(1, 0, 0)
    version = lake.table().metadata_location
    assert lake.register() == Registered(0, 0, 0)
    assert lake.table().metadata_location == version
    lake.put(10)
    assert lake.register() == Registered(1, 0, 0)
    assert scanned(lake.table())["offset"].to_pylist() == list(range(20))


def test_a_stream_without_files_needs_no_table(lake: Lake) -> None:
    assert lake.register() == Registered(0, 0, None)
    assert not lake.catalog().table_exists(ORDERS)


def test_what_retention_took_leaves_the_table(lake: Lake) -> None:
    for index in range(4):
        lake.put(index * 10)
    lake.register()
    lake.retain(20)
    lake.put(40)
    assert lake.register() == Registered(1, 2, 20)
    assert scanned(lake.table()).to_pylist() == lake.written().to_pylist()


def test_a_stream_that_was_declared_anew_has_only_its_own_rows(lake: Lake) -> None:
    lake.put(0, creation=OLD)
    lake.put(10, creation=OLD)
    lake.register()
    lake.retain(0)
    lake.put(0, 5, creation=NEW)
    assert lake.register() == Registered(1, 2, 0)
    assert scanned(lake.table()).to_pylist() == lake.written().to_pylist()
    remove_tables(RealDisk(), lake.directory, None)
    assert lake.register() == Registered(0, 1, None)
    assert scanned(lake.table()).num_rows == 0


def test_files_go_before_they_are_deleted(lake: Lake) -> None:
    """The list names the files that stay: until the others are deleted, a reader of the table finds all that it
    names."""
    for index in range(3):
        lake.put(index * 10)
    lake.register()
    assert register(lake.catalog(), ORDERS, lambda: lake.files()[1:]) == Registered(0, 1, 10)
    lake.retain(10)
    assert scanned(lake.table())["offset"].to_pylist() == list(range(10, 30))


def test_parsed_columns_come_and_old_rows_have_none(lake: Lake) -> None:
    lake.put(0, 2)
    lake.register()
    lake.put(2, 2, more={"price": [1.5, 2.5], "parse_error": ["", "x"]})
    assert lake.register() == Registered(1, 0, 0)
    assert scanned(lake.table())["price"].to_pylist() == [None, None, 1.5, 2.5]
    lake.put(4, 2)
    assert lake.register() == Registered(1, 0, 0)
    assert scanned(lake.table())["price"].to_pylist() == [None, None, 1.5, 2.5, None, None]


def test_a_column_of_another_type_is_said(lake: Lake) -> None:
    lake.put(0, 2, more={"price": [1.5, 2.5]})
    lake.register()
    version = lake.table().metadata_location
    lake.put(2, 2, more={"price": ["dear", "cheap"]})
    with pytest.raises(NotRegistered, match="price"):
        lake.register()
    assert lake.table().metadata_location == version


def test_manifests_are_merged_and_old_versions_forgotten(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert iceberg.PROPERTIES["commit.manifest-merge.enabled"] == "true"
    monkeypatch.setitem(iceberg.PROPERTIES, "commit.manifest.min-count-to-merge", "3")
    for index in range(7):
        lake.put(index * 10, 1)
        lake.register()
    table = lake.table()
    snapshots = table.metadata.snapshots
    assert [len(snapshot.manifests(table.io)) for snapshot in snapshots] == [1, 2, 1, 2, 1, 2, 1]
    assert len(data_files(table)) == 7

    third = datetime.fromtimestamp(snapshots[3].timestamp_ms / 1000, UTC)
    assert forget_old(table, timedelta(hours=1), third + timedelta(hours=1)) == 3
    table = lake.table()
    assert [each.snapshot_id for each in table.metadata.snapshots] == [each.snapshot_id for each in snapshots[3:]]
    for number, snapshot in enumerate(table.metadata.snapshots, 4):  # each can still be read
        assert scanned(table, snapshot_id=snapshot.snapshot_id).num_rows == number

    assert forget_old(table, timedelta(0), datetime.now(UTC) + timedelta(hours=1)) == 3
    table = lake.table()
    assert scanned(table).num_rows == 7
    needed = iceberg._metadata_files(table, table.metadata.snapshots)
    files = {f"file://{path}" for path in (lake.home / "warehouse").rglob("*.avro")}
    assert needed < files
    assert len(files - needed) == 3  # each merge leaves the manifest that it replaced at once


class Crashed(BaseException):
    """Raised where a kill is simulated."""


def crashing(function: Callable[..., Any], number: int, is_done: bool) -> Callable[..., Any]:
    """Return the function such that its call of this number crashes, after doing its work if `is_done`, else before."""
    calls = iter(range(number))

    def called(*arguments: Any, **options: Any) -> Any:
        is_last = next(calls, None) is None
        answer = function(*arguments, **options) if is_done or not is_last else None
        if is_last:
            raise Crashed
        return answer

    return called


@pytest.mark.parametrize(("seam", "name"), [(SyncedFile, "create"), (Session, "commit")])
@pytest.mark.parametrize("is_done", [False, True])
def test_after_a_crash_anywhere_each_file_is_there_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, seam: type, name: str, is_done: bool
) -> None:
    """Stopped before or after each file that is written and each change of the catalogue, then run again."""
    lake.put(0)
    lake.put(10)
    lake.register()
    for number in range(100):
        first = 10 * (number + 2)
        lake.put(first)
        lake.retain(first - 10)
        with monkeypatch.context() as patch:
            patch.setattr(seam, name, crashing(getattr(seam, name), number, is_done))
            try:
                lake.register()
            except Crashed:
                is_stopped = True
            else:
                is_stopped = False
        lake.register()
        assert scanned(lake.table())["offset"].to_pylist() == list(range(first - 10, first + 10))
        if not is_stopped:
            break
    assert 0 < number < 99


def test_two_that_register_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one commits after we have looked: our commit is refused, and then nothing is left to do."""
    lake.put(0)
    lake.register()
    lake.put(10)
    commit, others = iceberg.Table._do_commit, iter([True])

    def late(*arguments: Any, **options: Any) -> None:
        if next(others, False):
            lake.register()
        commit(*arguments, **options)

    monkeypatch.setattr(iceberg.Table, "_do_commit", late)
    assert lake.register() == Registered(0, 0, 0)
    assert scanned(lake.table())["offset"].to_pylist() == list(range(20))


def test_many_that_register_at_once(lake: Lake) -> None:
    errors: list[Exception] = []

    def run() -> None:
        try:
            lake.register()
        except Exception as error:
            errors.append(error)

    for index in range(6):
        lake.put(index * 10)
    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert pc.sum(scanned(lake.table())["offset"]).as_py() == sum(range(60))


def test_who_never_gets_on_says_so(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise CommitFailedException("another one was quicker")

    lake.put(0)
    lake.register()
    lake.put(10)
    monkeypatch.setattr(iceberg.Table, "_do_commit", refuse)
    monkeypatch.setattr(iceberg, "ATTEMPTS_MAX", 2)
    with pytest.raises(NotRegistered, match="keeps being changed"):
        lake.register()


def test_a_file_that_goes_meanwhile_is_no_error(lake: Lake) -> None:
    lake.put(0)
    lake.put(10)
    looks: Iterator[Callable[[], None]] = iter([lambda: lake.retain(10)])

    def listing() -> list[TableFile]:
        found = lake.files()
        next(looks, lambda: None)()
        return found

    assert register(lake.catalog(), ORDERS, listing) == Registered(1, 0, 10)


def test_more_files_than_one_commit_takes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "FILES_MAX", 2)
    for index in range(5):
        lake.put(index * 10, 1)
    assert lake.register() == Registered(5, 0, 0)
    assert lake.register() == Registered(0, 0, 0)
    assert len(lake.table().metadata.snapshots) == 3


def test_files_are_synced_before_the_catalogue_knows_them(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    lake.put(0)
    lake.register()
    table = lake.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    needed = {table.metadata_location, *iceberg._metadata_files(table, [snapshot])}
    assert {uri.removeprefix("file://") for uri in needed} <= synced
    assert os.path.dirname(table.metadata_location.removeprefix("file://")) in synced
