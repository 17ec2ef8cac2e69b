"""Messages requeued into a message list get their old positions, whoever requeued them and in whatever portions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.messages.entry import Entry
from leveret.broker.queues.requeued import BLOCK, Requeued

from .support import Bench


def entries_at(positions: list[int]) -> list[Entry]:
    message_list = Bench().broker.vhosts["/"]._nowhere.message_list
    return [Entry(message_list, b"", b"", 0, 0, position) for position in positions]


def positions(requeued: Requeued) -> list[int]:
    return [int(entry.position) for entry in requeued.newest_first()]


def check(requeued: Requeued, expected: list[int]) -> None:
    assert positions(requeued) == sorted(expected, reverse=True)
    assert all(0 < len(block) <= 2 * BLOCK for block in requeued.blocks)


# up to some thousand messages of several consumers, in portions
PORTIONS = st.lists(
    st.tuples(st.integers(0, 12_000), st.sampled_from([1, 1, 2, 3, 7, 100]), st.integers(1, 2 * BLOCK), st.booleans()),
    max_size=12,
)


@given(portions=PORTIONS, dropped=st.integers(0, 3 * BLOCK), front=st.integers(1, 3 * BLOCK))
def test_any_portions_come_to_stand_in_order(
    portions: list[tuple[int, int, int, bool]], dropped: int, front: int
) -> None:
    free, there, requeued = set(range(20_000)), [], Requeued()
    for start, step, count, is_disordered in portions:
        portion = [each for each in range(start, 20_000, step) if each in free][:count]
        free.difference_update(portion)
        there += portion
        if is_disordered:
            portion = portion[1::2] + portion[::2]
        if len(portion) == 1:
            requeued.add(entries_at(portion)[0])
        elif portion:
            requeued.add_all(entries_at(portion))
        check(requeued, there)
    there.sort()
    assert [int(entry.position) for entry in requeued.front(front)] == there[:front]
    for expected in there[:dropped]:
        assert requeued.oldest().position == expected
        requeued.drop()
    there = there[dropped:]
    check(requeued, there)
    requeued.keep(lambda entry: entry.position % 3 == 0)
    check(requeued, [each for each in there if each % 3 == 0])


def test_one_by_one_from_either_end_and_between() -> None:
    one, count = Requeued(), 2 * BLOCK + 10
    order = [*range(count // 2, 0, -1), *range(count // 2 + 1, count, 2), *range(count // 2 + 2, count, 2)]
    for entry in entries_at(order):
        one.add(entry)
    check(one, order)


@pytest.mark.parametrize("step", [1, 37])
def test_a_portion_costs_no_more_when_very_many_are_there(step: int) -> None:
    """Few blocks or all may be touched, but none is created anew."""
    there = Requeued()
    for start in range(0, 40 * BLOCK, 2 * BLOCK):
        there.add_all(entries_at(list(range(start, start + 2 * BLOCK, 2))))
    before = list(there.blocks)
    there.add_all(entries_at(list(range(1, 2 * step * 1000, 2 * step))))
    kept = sum(any(block is other for other in before) for block in there.blocks)
    assert (len(before), kept) == (20, 20)
    assert sum(map(len, there.blocks)) == 20 * BLOCK + 1000
