"""The store of legacy timeouts, on SQLite and on PostgreSQL."""

from __future__ import annotations

import sqlite3
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from leveret.endpoint.timeouts import TimeoutManager, TimeoutsUnavailable
from leveret.endpoint.timeouts import database as database_module
from leveret.endpoint.timeouts.database import default_url, parse
from leveret.endpoint.timeouts.store import CLAIM_US, Failing, TimeoutStore
from leveret.endpoint.timeouts.timeout import Clearing, Timeout

NOW_US = 1_700_000_000_000_000
SECOND = 1_000_000


@pytest.fixture
def endpoint() -> str:
    return f"Orders.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def store(database: str, endpoint: str) -> Iterator[TimeoutStore]:
    opened = TimeoutStore(endpoint, database)
    opened.create()
    yield opened
    opened.close()


@pytest.fixture
def other(store: TimeoutStore, database: str, endpoint: str) -> Iterator[TimeoutStore]:
    """Open the same store as another process of the endpoint would."""
    opened = TimeoutStore(endpoint, database)
    opened.create()
    yield opened
    opened.close()


def timeout(id: str, due_us: int = NOW_US, saga_id: str = "", body: bytes = b"body") -> Timeout:
    return Timeout(id, "destination", due_us, saga_id, b"\x00header\xff", body)


def pending(store: TimeoutStore) -> int:
    return store.census(NOW_US).pending


def test_what_is_stored_comes_back_as_it_was(store: TimeoutStore, other: TimeoutStore) -> None:
    far = timeout("a", due_us=NOW_US + 400_000_000 * SECOND + 1, saga_id="saga", body=bytes(range(256)) * 1000)
    store.apply([far])
    assert other.load(["a", "unknown"]) == [far]


def test_the_same_timeout_is_stored_once(store: TimeoutStore) -> None:
    store.apply([timeout("a"), timeout("b")])
    store.claim("me", NOW_US, 1)
    store.apply([timeout("a"), timeout("b"), timeout("c")])
    assert pending(store) == 3
    assert store.claim("me", NOW_US, 9) == ["b", "c"], "the claim was lost, or a message would be sent twice"


def test_only_what_is_due_is_claimed_and_in_order(store: TimeoutStore) -> None:
    store.apply([timeout("late", NOW_US + 1), timeout("now", NOW_US), timeout("past", NOW_US - 5 * SECOND)])
    assert store.next_ready_us() == NOW_US - 5 * SECOND
    assert store.claim("me", NOW_US, 9) == ["past", "now"]
    assert store.next_ready_us() == NOW_US + 1
    assert store.claim("me", NOW_US + 1, 9) == ["late"]


def test_a_claim_is_one_process_s_until_it_lapses(store: TimeoutStore, other: TimeoutStore) -> None:
    store.apply([timeout("a")])
    assert store.claim("dead", NOW_US, 9) == ["a"]
    assert other.claim("alive", NOW_US + CLAIM_US - 1, 9) == []
    assert other.next_ready_us() == other.next_lapse_us("alive") == NOW_US + CLAIM_US
    assert other.claim("alive", NOW_US + CLAIM_US, 9) == ["a"]
    assert other.load(["a"])[0].claim == "alive"
    assert other.next_lapse_us("alive") is None


def test_processes_that_claim_at_once_get_different_ones(store: TimeoutStore, other: TimeoutStore) -> None:
    store.apply([timeout(f"{number:04d}") for number in range(400)])

    def claim_all(which: TimeoutStore) -> list[str]:
        got: list[str] = []
        while ids := which.claim(str(id(which)), NOW_US, 7):
            got += ids
        return got

    with ThreadPoolExecutor(2) as threads:
        shares = list(threads.map(claim_all, (store, other)))
    assert sorted(shares[0] + shares[1]) == [f"{number:04d}" for number in range(400)]


def test_a_drain_claims_what_is_not_due_and_leaves_what_is_being_sent(store: TimeoutStore) -> None:
    store.apply([timeout("later", NOW_US + 9 * SECOND), timeout("being sent")])
    store.claim("manager", NOW_US, 9)
    assert store.claim("drain", NOW_US, 9, undue=True) == ["later"]
    assert set(store.claim("drain", NOW_US + CLAIM_US, 9, undue=True)) == {"being sent", "later"}


def test_a_claim_given_up_is_ready_when_it_is_due(store: TimeoutStore) -> None:
    store.apply([timeout("a"), timeout("b", NOW_US + SECOND)])
    store.claim("me", NOW_US, 9, undue=True)
    store.release("somebody else")
    assert store.claim("me", NOW_US, 9) == []
    store.release("me")
    assert store.claim("you", NOW_US, 9) == ["a"]


def test_one_claim_of_several_is_given_up(store: TimeoutStore) -> None:
    store.apply([timeout("a"), timeout("b")])
    store.claim("me", NOW_US, 9)
    store.release("me", ["b"])
    assert store.claim("you", NOW_US, 9) == ["b"]


def test_what_failed_waits_and_says_why(store: TimeoutStore) -> None:
    store.apply([timeout("a"), timeout("b")])
    store.claim("me", NOW_US, 9)
    store.postpone("a", NOW_US + 4 * SECOND, "no such destination")
    assert store.claim("me", NOW_US + 4 * SECOND - 1, 9) == []
    assert store.claim("me", NOW_US + 4 * SECOND, 9) == ["a"]
    assert store.load(["a"])[0].attempts == 1
    census = store.census(NOW_US)
    assert census.failing == [Failing("destination", 1, "no such destination")]
    assert (census.pending, census.due, census.claimed, census.next_due_us) == (2, 2, 2, NOW_US)


def test_clearing_takes_what_the_saga_stored_before(store: TimeoutStore) -> None:
    before, kept = timeout("before", saga_id="s1"), timeout("kept", saga_id="s2")
    store.apply([before, kept, Clearing("s1"), timeout("after", saga_id="s1")])
    assert {one.id for one in store.load(["before", "kept", "after"])} == {"kept", "after"}


def test_all_of_a_batch_is_stored_or_nothing(store: TimeoutStore) -> None:
    broken = Timeout("broken", None, NOW_US, "", b"", b"")  # type: ignore[arg-type]
    with pytest.raises(TimeoutsUnavailable):
        store.apply([timeout("a"), Clearing("s"), broken])
    assert pending(store) == 0


def test_what_was_sent_is_gone(store: TimeoutStore) -> None:
    store.apply([timeout("a"), timeout("b")])
    store.delete(["a"])
    store.delete([])
    assert store.load(["a", "b"]) == [timeout("b")]


def test_processes_that_start_at_once_create_one_table(database: str, endpoint: str) -> None:
    stores = [TimeoutStore(endpoint, database) for _ in range(8)]
    assert not stores[0].exists()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(TimeoutStore.create, stores))
    stores[0].apply([timeout("a")])
    assert all(pending(one) == 1 for one in stores)
    for one in stores:
        one.close()


class Locked:
    """A connection that finds its file locked this many times, since another process is switching it to WAL mode."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.executed: list[str] = []
        self.isolation_level: str | None = ""

    def execute(self, statement: str) -> None:
        self.executed.append(statement)
        if "journal_mode" in statement and self.times > 0:
            self.times -= 1
            raise sqlite3.OperationalError("database is locked")


def test_who_opens_a_file_that_another_one_changes_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "RETRY_S", 0.0)
    busy = Locked(2)
    database_module._set_up(busy, None)
    assert [statement.split("=")[0] for statement in busy.executed] == [
        "PRAGMA busy_timeout", *["PRAGMA journal_mode"] * 3, "PRAGMA synchronous",
    ]  # fmt: skip
    monkeypatch.setattr(database_module, "BUSY_MS", -1)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        database_module._set_up(Locked(1), None)


def test_endpoints_share_a_database_and_not_their_timeouts(store: TimeoutStore, database: str, endpoint: str) -> None:
    neighbour = TimeoutStore(endpoint.lower(), database)
    neighbour.create()
    store.apply([timeout("a")])
    assert pending(neighbour) == 0
    neighbour.drop()
    assert not neighbour.exists()
    assert pending(store) == 1
    neighbour.close()


def test_tables_of_another_version_are_refused(store: TimeoutStore, database: str, endpoint: str) -> None:
    engine = create_engine(parse(database))
    with engine.begin() as connection:
        connection.execute(text("UPDATE leveret_timeouts SET version = 99 WHERE endpoint = :e"), {"e": endpoint})
    engine.dispose()
    with pytest.raises(TimeoutsUnavailable, match="have the layout 99, not 1"):
        store.create()


def test_the_default_is_a_file_in_the_endpoint_s_folder(tmp_path: Path) -> None:
    store = TimeoutStore("Sales/EU", default_url("Sales/EU", tmp_path))
    assert store.file == tmp_path / "Sales%2FEU.timeouts.sqlite"
    assert not store.exists()
    assert list(tmp_path.iterdir()) == [], "asking created something"
    store.create()
    assert store.exists()
    store.drop()
    assert list(tmp_path.iterdir()) == [], "the tables were all that was in the file"
    store.close()


def test_a_commit_in_sqlite_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    connect = sqlite3.connect

    def traced(*args: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)  # type: ignore[call-overload]
        connection.set_trace_callback(said.append)
        return connection

    monkeypatch.setattr(sqlite3.dbapi2, "connect", traced)
    store = TimeoutStore("e", f"sqlite:///{tmp_path}/e.sqlite")
    store.create()
    assert "PRAGMA synchronous=FULL" in said
    assert "PRAGMA journal_mode=WAL" in said
    said.clear()
    store.apply([timeout("a")])
    assert said[0] == "BEGIN IMMEDIATE"
    assert said[-1] == "COMMIT"
    store.close()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("nonsense", "not the URL of a database"),
        ("mysql://host/name", "in sqlite or postgresql, not in mysql"),
        ("sqlite://", "a database in memory would lose them"),
        ("sqlite:///:memory:", "a database in memory would lose them"),
    ],
)
def test_a_url_of_no_use_is_refused(url: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        TimeoutStore("e", url)


def test_a_database_that_does_not_open_is_told_without_its_password() -> None:
    store = TimeoutStore("e", "postgresql://joe:secret@127.0.0.1:1/name")
    with pytest.raises(TimeoutsUnavailable, match=r"postgresql\+psycopg://joe:\*\*\*@127.0.0.1:1/name") as refused:
        store.create()
    assert "secret" not in str(refused.value)


def test_without_sqlalchemy_both_ways_out_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("leveret.endpoint.timeouts.")]:
        if name.rpartition(".")[2] in ("store", "database"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(TimeoutsUnavailable) as refused:
        TimeoutManager("e")
    assert "pip install 'leveret[endpoint]'" in str(refused.value)
    assert "disable_timeout_manager()" in str(refused.value)


def test_without_its_driver_postgresql_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(TimeoutsUnavailable, match=r"pip install 'psycopg\[binary\]'"):
        TimeoutStore("e", "postgresql://host/name")
