"""Retention of streams, native files and tables, and what leases keep from it; with crashes."""

from __future__ import annotations

import pytest

from leveret.store.disk import MemoryDisk

from .stream_house import StreamHouse


@pytest.fixture
def house() -> StreamHouse:
    house = StreamHouse()
    house.declare(**{"x-max-length-bytes": 1})
    return house


def test_tables_go_with_the_native_files(house: StreamHouse) -> None:
    house.fill(10)
    assert house.natives() == [0]  # the newest file stays, however long it is
    assert [file.first for file in house.tables()] == [0]
    for _ in range(2):
        house.fill(10)
    assert house.natives() == [20]
    assert [file.first for file in house.tables()] == [20]


def test_a_lease_keeps_what_it_protects_and_all_behind_it(house: StreamHouse) -> None:
    house.fill(10)
    house.grant(5, 1000)
    for _ in range(3):
        house.fill(10)
    house.look(999)
    assert house.natives() == [0, 10, 20, 30]
    assert [file.first for file in house.tables()] == [0, 10, 20, 30]
    assert house.streams.retained_from(house.archive()) == 30
    house.look(1)
    assert house.natives() == [30]
    assert [file.first for file in house.tables()] == [30]


def test_what_lies_before_a_lease_goes(house: StreamHouse) -> None:
    house.fill(10)
    first = house.grant(0, 1000)
    for _ in range(3):
        house.fill(10)
    house.grant(20, 2000)
    assert house.stream().leases.release(first, house.bench.now_us)
    house.look()
    assert house.natives() == [20, 30]
    id = house.grant(20, 5000)
    house.look(2000)
    assert house.natives() == [20, 30]
    house.stream().leases.renew(id, 30, 1000, house.bench.now_us)
    house.look()
    assert house.natives() == [30]


def test_retention_by_age_waits_as_well() -> None:
    house = StreamHouse()
    house.declare(**{"x-max-age": "1m"})
    for _ in range(3):
        house.fill(10)
    house.grant(10, 120_000)
    house.look(119_999)
    assert house.natives() == [10, 20]
    house.look(1)
    assert house.natives() == [20]


def test_a_deleted_stream_has_no_tables_and_its_successor_only_its_own() -> None:
    house = StreamHouse()
    house.declare()
    house.declare("other")
    house.fill(10)
    house.fill(10, "other")
    house.grant(0, 1_000_000)  # a lease protects from retention, not from deletion
    before = house.stream().creation
    house.delete()
    house.run()
    assert house.tables() == []
    assert len(house.tables("other")) == 1
    house.declare()
    assert house.stream().creation != before
    assert house.stream().leases.living(house.bench.now_us) == []
    house.fill(10)
    late = house.seal(10, 19, before)  # by a sealing process that does not know of the deletion yet
    house.declare("third")
    house.delete("third")
    house = house.crash()
    house.run()
    assert [file.creation for file in house.tables()] == [house.stream().creation]
    assert late not in [file.path for file in house.tables()]


def test_the_tables_of_a_stream_that_is_declared_again_at_once_stay() -> None:
    house = StreamHouse()
    house.declare()
    house.fill(10)
    house.bench.broker.vhosts["/"].delete_queue(house.stream())
    house.declare()
    house.streams.step()
    house.fill(10)
    assert [(file.first, file.creation) for file in house.tables()] == [(0, house.stream().creation)]


def test_tables_without_a_journal_are_left_alone() -> None:
    house = StreamHouse()
    path = house.seal(0, 9, "00000000000000aa", "lost")
    house.crash().run()
    assert [file.path for file in house.tables("lost")] == [path]


def test_what_was_sealed_after_a_backup_that_was_put_back_goes() -> None:
    house = StreamHouse()
    house.declare()
    house.fill(10)
    backup = list(house.bench.batches)
    house.seal(10, 19, house.stream().creation)
    again = StreamHouse(house.disk, backup, house.bench.now_us)
    again.run()
    assert [file.first for file in again.tables()] == [0]


def test_a_lease_outlives_a_crash_and_its_time_goes_on(house: StreamHouse) -> None:
    house.fill(10)
    id = house.grant(5, 1000)
    house = house.crash()
    for _ in range(2):
        house.fill(10)
    house.look(999)
    assert house.natives() == [0, 10, 20]
    [lease] = house.stream().leases.living(house.bench.now_us)
    assert (lease.id, lease.first) == (id, 5)
    house.look(1)
    assert house.natives() == [20]


def test_a_new_journal_file_knows_the_lease(house: StreamHouse) -> None:
    house.fill(10)
    house.grant(5, 1000)
    again = StreamHouse(house.disk, [b"".join(house.bench.broker.snapshot())], house.bench.now_us)
    again.fill(10)
    again.fill(10)
    assert again.natives() == [0, 10, 20]


class Crashed(Exception):
    pass


def test_a_crash_anywhere_in_retention_ends_it_the_same() -> None:
    """At each disk operation, with any one of the pending ones on the medium: nothing that a lease protects is removed,
    and a later retention completes the work."""
    for stop in range(1, 200):
        kept = 0
        while True:
            house = _filled()
            before = house.disk.operations

            def crash(operation: str, path: str, last: int = before + stop, disk: MemoryDisk = house.disk) -> None:
                if disk.operations == last:
                    raise Crashed

            house.disk.before = crash
            try:
                house.look()
            except Crashed:
                house.disk.before = None
            else:
                assert stop > 5, "nothing was done"
                return
            pending = len(house.disk.pending)
            house = house.crash([kept] if kept < pending else [])
            house.run()
            assert {20, 30, 40} <= set(house.natives())
            assert {20, 30, 40} <= {file.first for file in house.tables()}
            house.look()
            assert house.natives() == [20, 30, 40]
            assert [file.first for file in house.tables()] == [20, 30, 40]
            house.look(1000)
            assert house.natives() == [40]
            assert [file.first for file in house.tables()] == [40]
            kept += 1
            if kept > pending:
                break
    raise AssertionError("it never came to its end")


def _filled() -> StreamHouse:
    """Return a stream of five files: the limit keeps one, a lease two more, and two are to be removed."""
    house = StreamHouse()
    house.declare(**{"x-max-length-bytes": 1})
    house.fill(10)
    all_of_it = house.grant(0, 1000)
    for _ in range(4):
        house.fill(10)
    house.grant(25, 1000)
    house.stream().leases.release(all_of_it, house.bench.now_us)
    house.bench.sync()
    return house


def test_a_file_that_can_not_be_removed_goes_later(
    house: StreamHouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    house.fill(10)

    def refuse(path: str) -> None:
        raise PermissionError(1, "not permitted", path)

    with monkeypatch.context() as patch:
        patch.setattr(house.disk, "remove", refuse)
        house.fill(10)
    assert caplog.text.count("could not be removed") == 2
    assert house.natives() == [0, 10]
    house = house.crash()
    house.look()
    assert house.natives() == [10]
    assert [file.first for file in house.tables()] == [10]
