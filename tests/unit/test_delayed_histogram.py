"""count_delayed: how many messages fall due in each interval; in memory, on disk, and undeliverable."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.control.refusal import BAD_REQUEST

from .admin import Browser
from .support import SECOND_US
from .test_delayed_messages import ms, paged
from .waiting import Office


def counts(office: Office, *edges_s: int, **fields: Any) -> list[int]:
    found: list[int] = office.do("count_delayed", edges_in_ms=[1000 * edge for edge in edges_s], **fields)["counts"]
    return found


def test_each_is_counted_where_it_is_due() -> None:
    office = Office()
    first = office.send(b"1", 2)
    office.send(b"2", 10, count=5)
    office.send(b"3", 33, "b.c")
    last = office.hold(b"4", 40)
    answer = office.do("count_delayed", edges_in_ms=[0, 10_000, 34_000])
    now_ms = ms(office.now_us)
    assert answer == {
        "now_ms": now_ms, "edges_ms": [now_ms, now_ms + 10_000, now_ms + 34_000], "counts": [0, 1, 6, 1], "messages": 8,
        "parked": 0, "next_due_ms": ms(first), "last_due_ms": ms(last),
    }  # fmt: skip
    assert counts(office, 5, destination="b.c") == [0, 1]
    assert counts(office, 5, layout="d") == [0, 1]
    assert counts(office, 5, due_before_ms=now_ms + 10_000) == [1, 0]
    office.pass_time(9 * SECOND_US)  # messages that have moved from level to level keep their due time
    assert office.do("count_delayed", edges_ms=answer["edges_ms"])["counts"] == [0, 0, 6, 1]


def test_an_edge_belongs_to_what_follows() -> None:
    office = Office()
    due_ms = ms(office.send(b"1", 10))
    assert office.do("count_delayed", edges_ms=[due_ms - 1, due_ms, due_ms + 1])["counts"] == [0, 0, 1, 0]


def test_what_is_on_disk_is_counted_in_steps() -> None:
    office = paged()
    steps: list[None] = []
    answer = office.do("count_delayed", lambda: steps.append(None), edges_in_ms=[0, 60_000])
    assert (answer["counts"], answer["messages"]) == ([0, 200, 0], 200)
    assert len(steps) >= 3


def test_undeliverable_ones_are_counted_by_themselves() -> None:
    office = Office()
    for number in range(1, 6):
        office.send(b"m", number, "gone")
    office.pass_time(3 * SECOND_US)
    answer = office.do("count_delayed", edges_in_ms=[0])
    assert (answer["counts"], answer["parked"], answer["messages"]) == ([0, 2], 3, 2)


@pytest.mark.parametrize("fields", [
    {}, {"edges_ms": []}, {"edges_ms": [5, 5]}, {"edges_ms": [6, 5]}, {"edges_ms": [1], "edges_in_ms": [1]},
    {"edges_ms": list(range(1001))}, {"edges_in_ms": [10**15]}, {"edges_in_ms": [-(10**15)]},
])  # fmt: skip
def test_edges_must_be_times_that_ascend(fields: dict[str, Any]) -> None:
    assert Office().refusal("count_delayed", **fields)[0] == BAD_REQUEST


async def test_over_http() -> None:
    browse = Browser()
    browse.control.answers["count_delayed"] = lambda _: {"counts": [0, 1]}
    path = "/api/delayed/%2F/histogram"
    answer = await browse("GET", f"{path}?edges_in_ms=0,%2050&destination=a&header=x=y")
    assert (answer.status_code, answer.json()) == (200, {"counts": [0, 1]})
    assert browse.control.fields_of("count_delayed") == {
        "vhost": "/", "edges_in_ms": [0, 50], "destination": "a", "headers": {"x": "y"},
    }  # fmt: skip
    assert (await browse("GET", f"{path}?edges_ms=soon")).status_code == 400
    assert (await browse("GET", path, user="plain")).status_code == 401
    assert (await browse("GET", "/api/delayed/none/histogram?edges_ms=1")).status_code == 404
