"""Timeouts of NServiceBus' SQL persistence: moved to the store, and sent from there."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leveret.delay.instant import as_header, now
from leveret.endpoint.timeouts import NotATimeout, TimeoutsUnavailable
from leveret.endpoint.timeouts.importing import BATCH, TimeoutTable, move, timeout_of
from leveret.endpoint.timeouts.manager import open_store
from leveret.endpoint.timeouts.store import TimeoutStore
from leveret.endpoint.timeouts.timeout import microseconds
from leveret.wire.properties import decode_header

from .nservicebus_table import DUE, HEADERS, create, row
from .older import EXPIRE, managing, older


@pytest.fixture
def table() -> str:
    return f"T{uuid.uuid4().hex[:8]}_TimeoutData"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TimeoutStore]:
    opened = open_store("Sales", None, tmp_path)
    opened.create()
    yield opened
    opened.close()


def test_a_row_is_a_timeout_as_it_would_have_come(store: TimeoutStore, postgresql: str, table: str) -> None:
    saga, id = uuid.uuid4(), uuid.uuid4()
    create(postgresql, table, [row(Id=id, SagaId=saga)])
    assert move(TimeoutTable("x", postgresql, table), store).moved == 1
    timeout = store.load([id.hex])[0]
    assert (timeout.destination, timeout.due, timeout.saga_id, timeout.body) == ("Sales", DUE, str(saga), b"<Remind/>")
    properties = decode_header(timeout.header)[0]
    assert properties.headers == HEADERS
    assert (properties.message_id, properties.correlation_id, properties.reply_to) == ("m-1", "c-1", "Shipping")
    assert (properties.type, properties.content_type, properties.delivery_mode) == ("Sales.Remind", "text/xml", 2)


def test_all_rows_are_moved_and_a_second_import_finds_none(store: TimeoutStore, postgresql: str, table: str) -> None:
    create(postgresql, table, [row() for _ in range(2 * BATCH + 1)])
    source = TimeoutTable("x", postgresql, table)
    assert move(source, store).moved == 2 * BATCH + 1
    assert store.census(0).pending == 2 * BATCH + 1
    assert move(source, store).moved == 0
    source.close()


def test_an_import_that_was_interrupted_stores_nothing_twice(
    store: TimeoutStore, postgresql: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(postgresql, table, [row(), row()])
    source = TimeoutTable("x", postgresql, table)

    def interrupted(self: TimeoutTable, ids: list[Any]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TimeoutTable, "delete", interrupted)
        with pytest.raises(KeyboardInterrupt):
            move(source, store)
    assert store.census(0).pending == 2
    assert move(source, store).moved == 2
    assert store.census(0).pending == 2
    source.close()


def test_what_can_not_be_read_stays(store: TimeoutStore, postgresql: str, table: str) -> None:
    broken = [row(Headers="no JSON"), row(Headers="[]"), row(Time=None), row(Destination="")]
    create(postgresql, table, [row(), *broken])
    source = TimeoutTable("x", postgresql, table)
    for moved in (1, 0):
        imported = move(source, store)
        assert imported.moved == moved
        assert set(imported.kept) == {str(one["Id"]) for one in broken}
    source.close()


@pytest.mark.parametrize(
    ("time", "due"),
    [
        (DUE.replace(microsecond=477000), DUE),  # SQL Server's datetime has a resolution of 3 ms
        (DUE.replace(second=27, microsecond=0), DUE.replace(second=27, microsecond=0)),
    ],
)
def test_a_time_that_the_database_rounded_makes_nothing_early(time: datetime, due: datetime) -> None:
    assert timeout_of(row(Time=time.replace(tzinfo=None))).due_us == microseconds(due)


def test_a_row_without_headers_is_due_by_its_column() -> None:
    assert timeout_of(row(Headers=None)).due == DUE


def test_headers_are_texts() -> None:
    with pytest.raises(NotATimeout, match="not a JSON object"):
        timeout_of(row(Headers=json.dumps([1])))


def test_the_table_s_name_comes_from_the_endpoint(postgresql: str) -> None:
    name = f"T{uuid.uuid4().hex[:8]}"
    create(postgresql, f"{name}_Eu_TimeoutData".lower(), [row()])
    assert len(list(TimeoutTable(f"{name}.Eu", postgresql).rows())) == 1


@pytest.mark.parametrize(
    ("url", "error", "text"),
    [
        ("nonsense", ValueError, "not the URL of a database"),
        ("nosuch://host/name", ValueError, "not the URL of a database"),
        ("mysql+pymysql://host/name", TimeoutsUnavailable, "needs the package pymysql"),
        (
            "postgresql://joe:secret@127.0.0.1:1/x",
            TimeoutsUnavailable,
            r"postgresql\+psycopg://joe:\*\*\*@127.0.0.1:1/x",
        ),
    ],
)
def test_a_source_that_does_not_open_is_told(url: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        TimeoutTable("Sales", url)


def test_a_table_of_something_else_is_refused(store: TimeoutStore, tmp_path: Path) -> None:
    with pytest.raises(TimeoutsUnavailable, match="not an NServiceBus table: it lacks Destination, Headers, Id"):
        TimeoutTable("Sales", f"sqlite:///{store.file}", "leveret_timeouts")


async def test_what_was_imported_is_sent(url: str, postgresql: str, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/t.sqlite"
    async with older(url) as (connection, endpoint):
        due = now() + timedelta(milliseconds=200)
        headers = json.dumps(HEADERS | {EXPIRE: as_header(due)})
        stored = row(Destination=endpoint.destination, Time=due.replace(tzinfo=None), Headers=headers)
        create(postgresql, f"{endpoint.name}_TimeoutData", [stored])
        opened = open_store(endpoint.name, database)
        opened.create()
        assert move(TimeoutTable(endpoint.name, postgresql), opened).moved == 1
        opened.close()
        async with managing(connection, endpoint, database):
            assert (await endpoint.received()).body == b"<Remind/>"
