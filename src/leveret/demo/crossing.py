"""What crossed the links, copy by copy: a publisher's own repeats are told from what links lose or double.

A publisher that lost its connection repeats what was not confirmed, with the same message id; ``app_id`` then names
another connection of it. A copy is both together. Pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Copy = tuple[str, str]
"""Message id and ``app_id``."""


@dataclass(frozen=True)
class Copies:
    """One entry per message, on either side of the links.

    Attributes:
        published: by the publishers, their repeats included.
        confirmed: of these, what an airport's broker has confirmed.
        crossed: what the Spark source delivered at hq.
    """

    published: Sequence[Copy]
    confirmed: Sequence[Copy]
    crossed: Sequence[Copy]


@dataclass(frozen=True)
class Crossed:
    """Message ids, sorted.

    Attributes:
        lost: due by the input and in no copy here, or confirmed in a copy that is not here.
        duplicated: in one copy that came more than once.
        unexpected: in a copy that nobody published.
        repeated: in several copies, each of which a publisher sent: nobody's fault, since it could not know.
    """

    lost: tuple[str, ...]
    duplicated: tuple[str, ...]
    unexpected: tuple[str, ...]
    repeated: tuple[str, ...]


def crossing(copies: Copies, expected: Sequence[str]) -> Crossed:
    """Holds what came against what was published, each copy by itself.

    expected: ids that the input holds.
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
    """Message ids that stand in several different copies, sorted."""
    times = Counter(flight_id for flight_id, _ in set(copies))
    return tuple(sorted(flight_id for flight_id, count in times.items() if count > 1))


def _ids(copies: set[Copy]) -> set[str]:
    return {flight_id for flight_id, _ in copies}
