"""The account of the demo finds every kind of fault, in the stage that it reached, and nothing else."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.demo.account.reconcile import Notice, Records, compare, reconcile

FLIGHTS = [f"20130101-UA-{number}-EWR" for number in range(20)]
DUE = FLIGHTS[::4]
MS = 1_000_000


def notice(flight_id: str, lateness_ms: int = 3) -> Notice:
    return Notice(flight_id, sent_ns=10**18, delay_ms=50, received_ns=10**18 + (50 + lateness_ms) * MS)


def good() -> Records:
    return Records(
        expected=FLIGHTS,
        due=DUE,
        published=FLIGHTS,
        confirmed=FLIGHTS,
        read=FLIGHTS[::-1],
        replies=FLIGHTS,
        written=FLIGHTS,
        delivered=[notice(flight_id) for flight_id in DUE],
    )


def test_a_good_run_adds_up_in_any_order() -> None:
    account = reconcile(good())
    assert account.adds_up
    assert account.faults() == []
    assert [stage.messages for stage in account.stages] == [20, 20, 20, 20, 20, 5]


@pytest.mark.parametrize("stage", ["published", "confirmed", "read", "replies", "written"])
def test_a_lost_flight_is_named_in_its_stage(stage: str) -> None:
    account = reconcile(replace(good(), **{stage: FLIGHTS[1:]}))
    assert not account.adds_up
    assert account.faults() == [f"{stage}: 1 lost ({FLIGHTS[0]})"]


@pytest.mark.parametrize("stage", ["published", "confirmed", "read", "replies", "written"])
def test_a_duplicated_flight_is_named_in_its_stage(stage: str) -> None:
    account = reconcile(replace(good(), **{stage: [*FLIGHTS, FLIGHTS[7]]}))
    assert not account.adds_up
    assert account.faults() == [f"{stage}: 1 duplicated ({FLIGHTS[7]})"]


def test_one_lost_and_one_duplicated_do_not_cancel_out() -> None:
    account = reconcile(replace(good(), written=[*FLIGHTS[1:], FLIGHTS[7]]))
    assert account.stages[4].messages == len(FLIGHTS)
    assert account.faults() == [f"written: 1 lost ({FLIGHTS[0]})", f"written: 1 duplicated ({FLIGHTS[7]})"]


def test_a_flight_that_nobody_knows_is_unexpected() -> None:
    account = reconcile(replace(good(), read=[*FLIGHTS, "another"]))
    assert account.faults() == ["read: 1 unexpected (another)"]


def test_a_notice_for_a_flight_that_was_on_time_is_unexpected() -> None:
    account = reconcile(replace(good(), delivered=[*good().delivered, notice(FLIGHTS[1])]))
    assert account.faults() == [f"delivered: 1 unexpected ({FLIGHTS[1]})"]


def test_a_lost_notice_and_a_duplicated_one() -> None:
    delivered = [notice(flight_id) for flight_id in DUE]
    assert reconcile(replace(good(), delivered=delivered[1:])).faults() == [f"delivered: 1 lost ({DUE[0]})"]
    twice = reconcile(replace(good(), delivered=[*delivered, delivered[2]]))
    assert twice.faults() == [f"delivered: 1 duplicated ({DUE[2]})"]


@pytest.mark.parametrize(("lateness_ms", "early"), [(-1, True), (0, False), (1, False)])
def test_early_begins_right_before_the_due_time(lateness_ms: int, early: bool) -> None:
    delivered = [notice(DUE[0], lateness_ms), *(notice(flight_id) for flight_id in DUE[1:])]
    account = reconcile(replace(good(), delivered=delivered))
    assert account.adds_up is not early
    assert account.faults() == ([f"delivered: 1 early ({DUE[0]})"] if early else [])


def test_a_notice_is_due_to_the_nanosecond() -> None:
    due_ns = 10**18 + 50 * MS
    assert Notice("x", sent_ns=10**18, delay_ms=50, received_ns=due_ns - 1).early
    assert not Notice("x", sent_ns=10**18, delay_ms=50, received_ns=due_ns).early


def test_only_some_ids_of_a_fault_are_named() -> None:
    stage = compare("read", [], ["a", "b", "c", "d"])
    assert stage.faults() == ["read: 4 lost (a, b, c, …)"]


@given(came=st.lists(st.sampled_from("abcdef")), due=st.sets(st.sampled_from("abcdef")))
def test_a_stage_adds_up_exactly_when_each_due_id_came_once(came: list[str], due: set[str]) -> None:
    assert compare("any", came, sorted(due)).adds_up == (sorted(came) == sorted(due))
