"""Retention of streams, native files and tables, and what leases keep from it; with crashes."""

from __future__ import annotations

import pytest

from leveret.store.disk import MemoryDisk

from .stream_rig import StreamRig


@pytest.fixture
def rig() -> StreamRig:
    rig = StreamRig()
    rig.declare(**{"x-max-length-bytes": 1})
    return rig


def test_tables_go_with_the_native_files(rig: StreamRig) -> None:
    rig.fill(10)
    assert rig.natives() == [0]  # the newest file stays, however long it is
    assert [file.first for file in rig.tables()] == [0]
    for _ in range(2):
        rig.fill(10)
    assert rig.natives() == [20]
    assert [file.first for file in rig.tables()] == [20]


def test_a_lease_keeps_what_it_protects_and_all_behind_it(rig: StreamRig) -> None:
    rig.fill(10)
    rig.grant(5, 1000)
    for _ in range(3):
        rig.fill(10)
    rig.look(999)
    assert rig.natives() == [0, 10, 20, 30]
    assert [file.first for file in rig.tables()] == [0, 10, 20, 30]
    assert rig.streams.retained_from(rig.archive()) == 30
    rig.look(1)
    assert rig.natives() == [30]
    assert [file.first for file in rig.tables()] == [30]


def test_what_lies_before_a_lease_goes(rig: StreamRig) -> None:
    rig.fill(10)
    first = rig.grant(0, 1000)
    for _ in range(3):
        rig.fill(10)
    rig.grant(20, 2000)
    assert rig.stream().leases.release(first, rig.bench.now_us)
    rig.look()
    assert rig.natives() == [20, 30]
    id = rig.grant(20, 5000)
    rig.look(2000)
    assert rig.natives() == [20, 30]
    rig.stream().leases.renew(id, 30, 1000, rig.bench.now_us)
    rig.look()
    assert rig.natives() == [30]


def test_retention_by_age_waits_as_well() -> None:
    rig = StreamRig()
    rig.declare(**{"x-max-age": "1m"})
    for _ in range(3):
        rig.fill(10)
    rig.grant(10, 120_000)
    rig.look(119_999)
    assert rig.natives() == [10, 20]
    rig.look(1)
    assert rig.natives() == [20]


def test_a_deleted_stream_has_no_tables_and_its_successor_only_its_own() -> None:
    rig = StreamRig()
    rig.declare()
    rig.declare("other")
    rig.fill(10)
    rig.fill(10, "other")
    rig.grant(0, 1_000_000)  # a lease protects from retention, not from deletion
    before = rig.stream().creation
    rig.delete()
    rig.run()
    assert rig.tables() == []
    assert len(rig.tables("other")) == 1
    rig.declare()
    assert rig.stream().creation != before
    assert rig.stream().leases.living(rig.bench.now_us) == []
    rig.fill(10)
    late = rig.seal(10, 19, before)  # by a sealing process that does not know of the deletion yet
    rig.declare("third")
    rig.delete("third")
    rig = rig.crash()
    rig.run()
    assert [file.creation for file in rig.tables()] == [rig.stream().creation]
    assert late not in [file.path for file in rig.tables()]


def test_the_tables_of_a_stream_that_is_declared_again_at_once_stay() -> None:
    rig = StreamRig()
    rig.declare()
    rig.fill(10)
    rig.bench.broker.vhosts["/"].delete_queue(rig.stream())
    rig.declare()
    rig.streams.step()
    rig.fill(10)
    assert [(file.first, file.creation) for file in rig.tables()] == [(0, rig.stream().creation)]


def test_tables_without_a_journal_are_left_alone() -> None:
    rig = StreamRig()
    path = rig.seal(0, 9, "00000000000000aa", "lost")
    rig.crash().run()
    assert [file.path for file in rig.tables("lost")] == [path]


def test_what_was_sealed_after_a_backup_that_was_put_back_goes() -> None:
    rig = StreamRig()
    rig.declare()
    rig.fill(10)
    backup = list(rig.bench.batches)
    rig.seal(10, 19, rig.stream().creation)
    again = StreamRig(rig.disk, backup, rig.bench.now_us)
    again.run()
    assert [file.first for file in again.tables()] == [0]


def test_a_lease_outlives_a_crash_and_its_time_goes_on(rig: StreamRig) -> None:
    rig.fill(10)
    id = rig.grant(5, 1000)
    rig = rig.crash()
    for _ in range(2):
        rig.fill(10)
    rig.look(999)
    assert rig.natives() == [0, 10, 20]
    [lease] = rig.stream().leases.living(rig.bench.now_us)
    assert (lease.id, lease.first) == (id, 5)
    rig.look(1)
    assert rig.natives() == [20]


def test_a_new_journal_file_knows_the_lease(rig: StreamRig) -> None:
    rig.fill(10)
    rig.grant(5, 1000)
    again = StreamRig(rig.disk, [b"".join(rig.bench.broker.snapshot())], rig.bench.now_us)
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
            rig = _filled()
            before = rig.disk.operations

            def crash(operation: str, path: str, last: int = before + stop, disk: MemoryDisk = rig.disk) -> None:
                if disk.operations == last:
                    raise Crashed

            rig.disk.before = crash
            try:
                rig.look()
            except Crashed:
                rig.disk.before = None
            else:
                assert stop > 5, "nothing was done"
                return
            pending = len(rig.disk.pending)
            rig = rig.crash([kept] if kept < pending else [])
            rig.run()
            assert {20, 30, 40} <= set(rig.natives())
            assert {20, 30, 40} <= {file.first for file in rig.tables()}
            rig.look()
            assert rig.natives() == [20, 30, 40]
            assert [file.first for file in rig.tables()] == [20, 30, 40]
            rig.look(1000)
            assert rig.natives() == [40]
            assert [file.first for file in rig.tables()] == [40]
            kept += 1
            if kept > pending:
                break
    raise AssertionError("it never came to its end")


def _filled() -> StreamRig:
    """Return a stream of five files: the limit keeps one, a lease two more, and two are to be removed."""
    rig = StreamRig()
    rig.declare(**{"x-max-length-bytes": 1})
    rig.fill(10)
    all_of_it = rig.grant(0, 1000)
    for _ in range(4):
        rig.fill(10)
    rig.grant(25, 1000)
    rig.stream().leases.release(all_of_it, rig.bench.now_us)
    rig.bench.sync()
    return rig


def test_a_file_that_can_not_be_removed_goes_later(
    rig: StreamRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig.fill(10)

    def refuse(path: str) -> None:
        raise PermissionError(1, "not permitted", path)

    with monkeypatch.context() as patch:
        patch.setattr(rig.disk, "remove", refuse)
        rig.fill(10)
    assert caplog.text.count("could not be removed") == 2
    assert rig.natives() == [0, 10]
    rig = rig.crash()
    rig.look()
    assert rig.natives() == [10]
    assert [file.first for file in rig.tables()] == [10]
