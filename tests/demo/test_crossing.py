"""The account of messages that crossed links: a publisher's repeats differ from a link's losses and duplicates."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from leveret.demo.account import report
from leveret.demo.account.crossing import Copies, Copy, crossing, repeated
from leveret.demo.account.reconcile import Notice, Records, reconcile

EXPECTED = ["1-EWR", "2-EWR", "3-JFK", "4-LGA"]
PUBLISHED = [("1-EWR", "EWR-1"), ("2-EWR", "EWR-1"), ("3-JFK", "JFK-1"), ("4-LGA", "LGA-1"), ("4-LGA", "LGA-2")]
"""LGA's publisher lost its connection before flight 4 was confirmed, and sent it again on the next."""

CONFIRMED = [*PUBLISHED[:3], ("4-LGA", "LGA-2")]


def records(crossed: list[Copy]) -> Records:
    return Records(
        expected=EXPECTED,
        due=["3-JFK"],
        published=[flight_id for flight_id, _ in PUBLISHED],
        confirmed=[flight_id for flight_id, _ in CONFIRMED],
        read=EXPECTED,
        replies=EXPECTED,
        written=EXPECTED,
        delivered=[Notice("3-JFK", 0, 0, 1)],
        copies=Copies(PUBLISHED, CONFIRMED, crossed),
    )


@pytest.mark.parametrize("crossed", [PUBLISHED, CONFIRMED], ids=["both copies", "the first never reached the broker"])
def test_a_publishers_repeat_is_told_and_no_fault(crossed: list[Copy]) -> None:
    account = reconcile(records(crossed))
    assert account.adds_up, account.faults()
    stages = {stage.name: stage for stage in account.stages}
    assert list(stages) == ["published", "confirmed", "crossed", "read", "replies", "written", "delivered"]
    assert stages["published"].messages == 5
    assert stages["published"].repeated == ("4-LGA",)
    assert stages["crossed"].messages == len(crossed)
    assert stages["crossed"].repeated == (("4-LGA",) if crossed is PUBLISHED else ())


def test_a_copy_that_came_twice_is_the_links_doing() -> None:
    account = reconcile(records([*PUBLISHED, ("1-EWR", "EWR-1")]))
    assert account.faults() == ["crossed: 1 duplicated (1-EWR)"]
    twice = reconcile(records([*PUBLISHED, ("4-LGA", "LGA-2")]))
    assert twice.faults() == ["crossed: 1 duplicated (4-LGA)"]


def test_a_confirmed_copy_that_is_missing_is_lost_even_if_an_earlier_one_came() -> None:
    account = reconcile(records(PUBLISHED[:4]))
    assert account.faults() == ["crossed: 1 lost (4-LGA)"]


def test_a_flight_that_came_in_no_copy_is_lost_even_if_nobody_published_it() -> None:
    copies = Copies(PUBLISHED[1:], CONFIRMED[1:], PUBLISHED[1:])
    assert crossing(copies, EXPECTED).lost == ("1-EWR",)
    account = reconcile(replace(records([]), published=[], copies=copies))
    assert account.faults() == ["published: 1 lost (1-EWR)", "crossed: 1 lost (1-EWR)"]


def test_a_copy_that_nobody_published_is_unexpected_though_its_flight_is_known() -> None:
    account = reconcile(records([*PUBLISHED, ("1-EWR", "EWR-9")]))
    assert account.faults() == ["crossed: 1 unexpected (1-EWR)"]


def test_the_same_copy_sent_twice_is_no_repeat() -> None:
    assert repeated([("a", "1"), ("a", "1"), ("b", "1"), ("b", "2")]) == ("b",)


@given(st.lists(st.sampled_from([(flight, app) for flight in "abc" for app in "12"])), st.data())
def test_it_adds_up_exactly_when_each_confirmed_copy_came_and_none_twice(came: list[Copy], data: st.DataObject) -> None:
    published = data.draw(st.lists(st.sampled_from([(flight, app) for flight in "abc" for app in "12"]), unique=True))
    confirmed = data.draw(st.lists(st.sampled_from(published), unique=True)) if published else []
    expected = sorted({flight for flight, _ in confirmed})
    found = crossing(Copies(published, confirmed, came), expected)
    adds_up = len(set(came)) == len(came) and set(confirmed) <= set(came) <= set(published)
    assert adds_up == (not (found.lost or found.duplicated or found.unexpected))


def test_the_table_counts_by_airport() -> None:
    given = records([*PUBLISHED, ("1-EWR", "EWR-1")])
    assert given.copies is not None
    console = Console(width=80, record=True)
    console.print(report.crossings(reconcile(given), given.copies, {"EWR": 2, "JFK": 1, "LGA": 1}))
    rows = [line.replace("│", " ").split() for line in console.export_text().splitlines() if line.startswith("│")]
    assert rows == [
        ["EWR", "2", "2", "3", "0", "1", "0"],
        ["JFK", "1", "1", "1", "0", "0", "0"],
        ["LGA", "1", "2", "2", "0", "0", "1"],
    ]
