"""Leases of a stream: what they protect, until when, and what a crash leaves of them. Time is virtual."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.storage.log import Log
from leveret.broker.storage.records import Declared, records
from leveret.broker.streams.leases import (
    DURATION_MS_MAX,
    LEASES_MAX,
    NAME_OCTETS_MAX,
    NOTHING,
    OFFSET_MAX,
    LeaseRefused,
    Leases,
)

from .support import counted_bytes

START_US = 1_700_000_000_000_000
MS = 1000


class Stand:
    """Leases with their journal and a virtual clock."""

    def __init__(self) -> None:
        self.log = Log()
        self.disk: list[bytes] = []
        self.now_us = START_US
        self._source = counted_bytes()
        self.leases = self._new()

    def _new(self) -> Leases:
        return Leases(self.log, "/", "s", lambda count: next(self._source)[-count:])

    def grant(self, first: int, duration_ms: int, oldest: int = 0) -> str:
        return self.leases.grant("reader", first, oldest, duration_ms, self.now_us).id

    def floor(self) -> int:
        return int(self.leases.floor(self.now_us))

    def sync(self) -> None:
        batch = self.log.batch
        self.disk.append(b"".join(self.log.close_batch()))
        self.log.on_disk(batch)

    def restart(self) -> None:
        """Lose everything unsynced and replay the rest."""
        self.log = Log()
        self.leases = self._new()
        self.log.is_replaying = True
        for batch in self.disk:
            for record in records(batch):
                assert isinstance(record, Declared)
                assert (record.fields["vhost"], record.fields["name"]) == ("/", "s")
                self.leases.restore(record.fields)
        self.log.is_replaying = False


def test_a_lease_protects_from_its_offset_on_until_its_time_is_over() -> None:
    stand = Stand()
    assert stand.floor() == NOTHING
    stand.grant(100, 10)
    stand.now_us += 10 * MS - 1
    assert stand.floor() == 100
    stand.now_us += 1
    assert stand.floor() == NOTHING


def test_the_oldest_of_several_counts() -> None:
    stand = Stand()
    stand.grant(100, 10)
    id = stand.grant(50, 10)
    stand.grant(70, 10)
    assert stand.floor() == 50
    assert stand.leases.release(id, stand.now_us)
    assert stand.floor() == 70


def test_what_is_gone_already_is_not_promised() -> None:
    stand = Stand()
    lease = stand.leases.grant("late", 5, 1000, 10, stand.now_us)
    assert lease.first == 1000
    assert stand.floor() == 1000


def test_a_lease_is_renewed_and_moves_on() -> None:
    stand = Stand()
    id = stand.grant(100, 10)
    stand.now_us += 9 * MS
    lease = stand.leases.renew(id, 150, 20, stand.now_us)
    assert lease is not None
    assert (lease.first, lease.expires_us) == (150, stand.now_us + 20 * MS)
    stand.leases.renew(id, 120, 20, stand.now_us)
    assert stand.floor() == 150  # messages below 150 may be removed already
    stand.leases.renew(id, None, 20, stand.now_us)
    assert stand.floor() == 150


def test_what_is_over_comes_back_by_no_renewal() -> None:
    stand = Stand()
    id = stand.grant(100, 10)
    stand.now_us += 10 * MS
    assert stand.leases.renew(id, None, 10, stand.now_us) is None
    assert not stand.leases.release(id, stand.now_us)
    assert stand.floor() == NOTHING


@pytest.mark.parametrize(("first", "duration_ms"), [(0, 0), (0, -1), (0, DURATION_MS_MAX + 1), (-1, 1), (1 << 63, 1)])
def test_what_can_not_be_asked_for(first: int, duration_ms: int) -> None:
    stand = Stand()
    id = stand.grant(0, 10)
    with pytest.raises(LeaseRefused):
        stand.grant(first, duration_ms)
    with pytest.raises(LeaseRefused):
        stand.leases.renew(id, first, duration_ms, stand.now_us)
    assert [lease.id for lease in stand.leases.living(stand.now_us)] == [id]


def test_limits() -> None:
    stand = Stand()
    stand.leases.grant("x" * NAME_OCTETS_MAX, OFFSET_MAX, 0, DURATION_MS_MAX, stand.now_us)
    with pytest.raises(LeaseRefused, match="name"):
        stand.leases.grant("x" * NAME_OCTETS_MAX + "y", 0, 0, 10, stand.now_us)
    for _ in range(LEASES_MAX - 1):
        stand.grant(0, 10)
    with pytest.raises(LeaseRefused, match="already"):
        stand.grant(0, 10)
    stand.now_us += 10 * MS
    stand.grant(0, 10)  # the others have expired


def test_a_lease_outlives_the_broker() -> None:
    stand = Stand()
    stand.grant(100, 10)
    id = stand.grant(50, 1000)
    gone = stand.grant(7, 1000)
    stand.leases.renew(id, 60, 1000, stand.now_us)
    stand.leases.release(gone, stand.now_us)
    stand.sync()
    stand.grant(1, 1000)  # not synced, so never answered
    stand.restart()
    assert stand.floor() == 60
    stand.now_us += 10 * MS
    assert [(lease.id, lease.name, lease.first) for lease in stand.leases.living(stand.now_us)] == [(id, "reader", 60)]
    stand.now_us += 990 * MS
    assert stand.floor() == NOTHING


def test_a_new_journal_file_knows_the_leases() -> None:
    stand = Stand()
    stand.grant(100, 10)
    stand.grant(50, 20)
    stand.disk = stand.leases.snapshot()
    before = [(lease.id, lease.first, lease.expires_us) for lease in stand.leases.living(stand.now_us)]
    stand.restart()
    assert [(lease.id, lease.first, lease.expires_us) for lease in stand.leases.living(stand.now_us)] == before


Step = tuple[str, int, int]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["grant", "renew", "release", "wait", "crash"]), st.integers(0, 40), st.integers(1, 40)
        ),
        max_size=40,
    )
)
def test_what_was_promised_is_kept(steps: list[Step]) -> None:
    """After any steps, crashes included, the floor is the smallest offset of the unexpired leases."""
    stand = Stand()
    promised: dict[str, tuple[int, int]] = {}  # by id: first, expires_us
    for what, number, duration_ms in steps:
        ids = list(promised)
        id = ids[number % len(ids)] if ids else "none"
        if what == "grant":
            promised[stand.grant(number, duration_ms)] = number, stand.now_us + duration_ms * MS
        elif what == "renew":
            is_alive = id in promised and promised[id][1] > stand.now_us
            assert (stand.leases.renew(id, number, duration_ms, stand.now_us) is not None) == is_alive
            if is_alive:
                promised[id] = max(promised[id][0], number), stand.now_us + duration_ms * MS
        elif what == "release":
            is_alive = id in promised and promised[id][1] > stand.now_us
            assert stand.leases.release(id, stand.now_us) == is_alive
            promised.pop(id, None)
        elif what == "wait":
            stand.now_us += number * MS
        else:
            stand.sync()
            stand.restart()
        living = [first for first, expires_us in promised.values() if expires_us > stand.now_us]
        assert stand.floor() == min(living, default=NOTHING)
