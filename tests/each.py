"""Check every row of a table in one test that reports all rows that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Row = TypeVar("Row")


def check_each(rows: Iterable[Row], check: Callable[[Row], None], name: Callable[[Row], object] = str) -> None:
    """Call `check` for each row; fail at the end and report the exception of each row that failed.

    Also fails if there are no rows, because a test that checks nothing would pass for the wrong reason.
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
