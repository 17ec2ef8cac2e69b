"""The account of the links, copy by copy: tells publishers' repeats from messages that links lose or duplicate.

A publisher that lost its connection repeats unconfirmed messages with the same message id, and an ``app_id`` that names
the new connection. Message id and ``app_id`` together identify a copy. Pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Copy = tuple[str, str]
"""Message id and ``app_id``."""


@dataclass(frozen=True)
class Copies:
    """The copies on both sides of the links, one entry per message.

    Attributes:
        published: published copies, repeats included.
        confirmed: those that an airport's broker has confirmed.
        crossed: those that the Spark source delivered at hq.
    """

    published: Sequence[Copy]
    confirmed: Sequence[Copy]
    crossed: Sequence[Copy]


@dataclass(frozen=True)
class Crossed:
    """The result, as sorted message ids.

    Attributes:
        lost: expected, but no copy arrived; or a confirmed copy did not arrive.
        duplicated: one copy arrived more than once.
        unexpected: a copy arrived that was never published.
        repeated: several published copies arrived; no fault, since the publisher had no confirm.
    """

    lost: tuple[str, ...]
    duplicated: tuple[str, ...]
    unexpected: tuple[str, ...]
    repeated: tuple[str, ...]


def crossing(copies: Copies, expected: Sequence[str]) -> Crossed:
    """Compare what arrived with what was published, copy by copy.

    `expected` are the ids in the input.
    """
    came = Counter(copies.crossed)
    unexpected = came.keys() - set(copies.published)
    lost = (set(expected) - {flight_id for flight_id, _ in came}) | _ids(set(copies.confirmed) - came.keys())
    return Crossed(
        lost=tuple(sorted(lost)),
        duplicated=tuple(sorted(_ids({copy for copy, times in came.items() if times > 1}))),
        unexpected=tuple(sorted(_ids(unexpected))),
        repeated=repeated([copy for copy in came if copy not in unexpected]),
    )


def repeated(copies: Sequence[Copy]) -> tuple[str, ...]:
    """Return the message ids with several different copies, sorted."""
    times = Counter(flight_id for flight_id, _ in set(copies))
    return tuple(sorted(flight_id for flight_id, count in times.items() if count > 1))


def _ids(copies: set[Copy]) -> set[str]:
    return {flight_id for flight_id, _ in copies}
