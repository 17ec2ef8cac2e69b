"""A check of every row of a table, in one test that tells all rows that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Row = TypeVar("Row")


def check_each(rows: Iterable[Row], check: Callable[[Row], None], name: Callable[[Row], object] = str) -> None:
    """Calls `check` for each of them; fails at the end, with what it raised for each row that is wrong.

    Without rows it fails, too: a test that checks nothing passes for the wrong reason.
    """
    wrong, count = [], 0
    for row in rows:
        count += 1
        try:
            check(row)
        except Exception as error:
            wrong.append(f"{name(row)}: {type(error).__name__}: {error}")
    assert count, "there are no rows"
    assert not wrong, f"{len(wrong)} of {count} are wrong:\n" + "\n".join(wrong)
