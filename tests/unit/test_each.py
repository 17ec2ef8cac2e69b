"""A test of a whole table reports each wrong row, and fails if there are no rows."""

from __future__ import annotations

import pytest
from tests.each import check_each


def small(number: int) -> None:
    assert 12 // number < 5


def test_all_rows_that_are_wrong_are_told() -> None:
    check_each([4, 5, 6], small)
    with pytest.raises(AssertionError, match=r"(?s)^3 of 4 are wrong:\n2: AssertionError.*\n0: Zero.*\n1: Assertion"):
        check_each([2, 0, 1, 4], small)
    with pytest.raises(AssertionError, match="no rows"):
        check_each([], small)
