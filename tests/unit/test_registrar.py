"""Table files: when they are registered; they leave the table before they are deleted. Virtual time, real files."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from leveret.broker.storage.log import Log
from leveret.broker.streams.leases import Leases
from leveret.cli.lake import command
from leveret.lake.iceberg import NotRegistered, Registered, data_files
from leveret.lake.registrar import LEASE_MS, CommitPolicy, Registrar
from leveret.store.tables import stream_directory

from .support import SECOND_US, counted_bytes
from .test_iceberg import NEW, OLD, Lake, scanned


class Broker:
    """A broker with one stream; retention keeps the newest `kept` messages and those that a lease protects."""

    def __init__(self, lake: Lake, kept: int = 10) -> None:
        self.lake = lake
        self.kept = kept
        self.now_us = 1_795_348_800 * SECOND_US
        self.is_there = self.has_stream = True
        self.end = 0
        source = counted_bytes()
        self.leases = Leases(Log(), "/", "orders.eu", lambda count: next(source)[-count:])

    def seal(self, count: int = 10) -> None:
        self.lake.put(self.end, count)
        self.end += count

    @property
    def retained_from(self) -> int:
        return max(0, self.end - self.kept)

    def retain(self) -> None:
        floor = int(self.leases.floor(self.now_us))
        self.lake.retain(self.retained_from if floor < 0 else min(floor, self.retained_from))

    # -- interface for the registrar

    def files(self) -> Sequence[dict[str, Any]]:
        if not self.is_there:
            raise ConnectionRefusedError
        stream = {"vhost": "/", "name": "orders.eu", "creation": NEW, "tables": self.lake.directory}
        return [stream | {"retained_from_offset": self.retained_from}] if self.has_stream else []

    def hold(self, vhost: str, stream: str, lease: str, first: int, duration_ms: int) -> str:
        if not self.is_there:
            raise ConnectionRefusedError
        if lease and self.leases.renew(lease, first, duration_ms, self.now_us):
            return lease
        return self.leases.grant("iceberg", first, 0, duration_ms, self.now_us).id


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def broker(lake: Lake) -> Broker:
    return Broker(lake)


def registrar(lake: Lake, broker: Broker | None, policy: CommitPolicy, **more: bool) -> Registrar:
    return Registrar(lake.catalog(), str(lake.home / "tables"), broker, policy, **more)


NAME = "%2F/orders.eu"


def test_files_leave_the_table_before_they_are_deleted(lake: Lake, broker: Broker) -> None:
    """Files named by the table exist at all times, and those of its older versions for the grace period."""
    policy = CommitPolicy(files=1, after_us=SECOND_US, grace_us=30 * SECOND_US)
    registering = registrar(lake, broker, policy)
    registering.step(broker.now_us)
    snapshots: list[tuple[int, int]] = []
    for _ in range(6):
        broker.seal()
        broker.retain()
        registering.step(broker.now_us)
        broker.retain()
        table = lake.table()
        assert scanned(table)["offset"].to_pylist() == list(range(broker.retained_from, broker.end))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        snapshots.append((broker.now_us, snapshot.snapshot_id))
        for made_us, id in snapshots[:-1]:
            if broker.now_us - made_us < policy.grace_us:
                scanned(table, snapshot_id=id)
        broker.now_us += 10 * SECOND_US
    broker.now_us += 30 * SECOND_US
    registering.step(broker.now_us)
    broker.retain()
    assert [file.first for file in lake.files()] == [50]
    with pytest.raises(FileNotFoundError):
        scanned(lake.table(), snapshot_id=snapshots[0][1])


def test_without_a_registrar_retention_goes_on(lake: Lake, broker: Broker) -> None:
    broker.seal()
    registrar(lake, broker, CommitPolicy(files=1)).step(broker.now_us)
    for _ in range(2):
        broker.seal()
    broker.now_us += LEASE_MS * 1000 - 1
    broker.retain()
    assert len(lake.files()) == 3
    broker.now_us += 1
    broker.retain()
    assert [file.first for file in lake.files()] == [20]
    assert registrar(lake, broker, CommitPolicy()).step(broker.now_us, at_once=True) == [(NAME, Registered(1, 1, 20))]
    assert scanned(lake.table())["offset"].to_pylist() == list(range(20, 30))


def test_commits_wait_for_so_many_files_or_so_long(lake: Lake, broker: Broker) -> None:
    broker.kept = 1000
    registering = registrar(lake, broker, CommitPolicy(files=3, after_us=60 * SECOND_US))
    broker.seal()
    assert registering.step(broker.now_us) == []
    broker.now_us += 59 * SECOND_US
    broker.seal()
    assert registering.step(broker.now_us) == []
    broker.now_us += SECOND_US
    assert registering.step(broker.now_us) == [(NAME, Registered(2, 0, 0))]
    assert registering.step(broker.now_us) == []
    for _ in range(3):
        assert registering.step(broker.now_us) == []
        broker.seal()
    assert registering.step(broker.now_us) == [(NAME, Registered(3, 0, 0))]


def test_a_lease_is_renewed_before_it_ends(lake: Lake, broker: Broker) -> None:
    registering = registrar(lake, broker, CommitPolicy(files=1))
    for _ in range(2):
        broker.seal()
    registering.step(broker.now_us)
    broker.kept = 1000
    for _ in range(10):
        broker.now_us += LEASE_MS * 500
        registering.step(broker.now_us)
        [lease] = broker.leases.living(broker.now_us)
        assert lease.expires_us == broker.now_us + LEASE_MS * 1000


def test_a_broker_that_is_away(lake: Lake, broker: Broker) -> None:
    """Files in the directory are registered nevertheless; once the broker is back, the lease is renewed."""
    registering = registrar(lake, broker, CommitPolicy(files=1))
    broker.seal()
    registering.step(broker.now_us)
    broker.is_there = False
    broker.seal()
    assert registering.step(broker.now_us) == [(NAME, Registered(1, 0, 0))]
    broker.now_us += 10 * LEASE_MS * 1000
    broker.is_there = True
    registering.step(broker.now_us)
    assert len(broker.leases.living(broker.now_us)) == 1


def test_who_comes_only_once_takes_no_lease(lake: Lake, broker: Broker) -> None:
    for _ in range(3):
        broker.seal()
    done = registrar(lake, broker, CommitPolicy(), holds=False).step(broker.now_us, at_once=True)
    assert done == [(NAME, Registered(1, 0, 20))]  # the other files may be deleted at any moment
    assert broker.leases.living(broker.now_us) == []


def test_a_deleted_stream_and_its_successor(lake: Lake, broker: Broker) -> None:
    registering = registrar(lake, broker, CommitPolicy(files=1))
    lake.put(0, creation=OLD)
    broker.seal()
    assert registering.step(broker.now_us) == [(NAME, Registered(1, 0, 0))]
    assert {file.endswith(f"{NEW}.parquet") for file in data_files(lake.table())} == {True}
    broker.has_stream = False
    assert registering.step(broker.now_us) == [(NAME, Registered(0, 1, None))]
    assert scanned(lake.table()).num_rows == 0


class OtherLake(Lake):
    """A lake with another stream at the same place."""

    @property
    def directory(self) -> str:
        return stream_directory(str(self.home / "tables"), "v", "s")


def test_one_that_does_not_fit_holds_up_no_other_and_is_tried_again(lake: Lake) -> None:
    other = OtherLake(lake.home)
    lake.put(0, 2, more={"price": [1.5, 2.5]})
    registering = registrar(lake, None, CommitPolicy(files=1, after_us=SECOND_US))
    now_us = SECOND_US
    assert registering.step(now_us) == [(NAME, Registered(1, 0, 0))]
    wrong = lake.put(2, 2, more={"price": ["dear", "cheap"]})
    other.put(0, 2)
    done = dict(registering.step(now_us))
    assert isinstance(done[NAME], NotRegistered)
    assert done["v/s"] == Registered(1, 0, 0)
    os.remove(wrong)
    lake.put(2, 2, more={"price": [1.5, 2.5]})
    assert registering.step(now_us + SECOND_US) == [(NAME, Registered(1, 0, 0))]


def test_a_catalogue_that_fails_is_said(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.put(0)
    registering = registrar(lake, None, CommitPolicy(files=1))
    monkeypatch.setattr("leveret.lake.registrar.register", lambda *_: 1 // 0)
    [(name, error)] = registering.step(SECOND_US)
    assert (name, str(error)) == (NAME, "ZeroDivisionError: integer division or modulo by zero")


def test_old_versions_are_forgotten(lake: Lake, broker: Broker) -> None:
    broker.kept = 1000
    broker.now_us = time.time_ns() // 1000  # versions carry the wall clock's time
    registering = registrar(lake, broker, CommitPolicy(files=1, keep=timedelta(0)))
    for _ in range(3):
        broker.seal()
        registering.step(broker.now_us)
        broker.now_us += 3600 * SECOND_US
    assert len(lake.table().metadata.snapshots) < 3


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, ["register", *arguments])
    return result.exit_code, result.output


def test_the_command(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("--data-dir", str(lake.home)) == (0, "")
    lake.put(0)
    lake.put(10, more={"price": [1.5] * 10})
    catalog = ("--catalog", f"sqlite:///{lake.home}/catalog.db", "--warehouse", f"file://{lake.home}/warehouse")
    assert run("--data-dir", str(lake.home), *catalog) == (0, f"{NAME}: 2 files added, 0 removed\n")
    assert run("--data-dir", str(lake.home), *catalog) == (0, "")
    assert scanned(lake.table())["offset"].to_pylist() == list(range(20))
    assert run("--data-dir", str(lake.home)) == (0, f"{NAME}: 2 files added, 0 removed\n")  # into its own catalogue
    assert (lake.home / "iceberg" / "catalog.db").exists()
    lake.put(20, 2, more={"price": ["dear", "cheap"]})
    status, output = run("--data-dir", str(lake.home), *catalog)
    assert (status, output.partition(":")[0]) == (1, NAME)
    assert "price" in output


def test_a_catalogue_that_can_not_be_had(lake: Lake) -> None:
    for uri in ("nonsense", "sqlite:////none/at/all.db"):
        status, output = run("--data-dir", str(lake.home), "--catalog", uri)
        assert status == 2
        assert "cannot open the catalogue" in output
        assert "Traceback" not in output


def test_without_the_extra_it_says_so(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, output = run("--data-dir", str(lake.home))
    assert status == 2
    assert "pip install 'leveret[iceberg]'" in output
