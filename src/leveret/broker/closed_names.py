"""Names that were unused for too long: only a digest and the owner of each are remembered.

A client that comes back under such a name is refused, because the broker no longer knows what it has of this client.
"""

from __future__ import annotations

import hashlib
from typing import Final

from leveret.wire.table import Value

CLOSED_MAX: Final = 10_000
"""Of one kind in a virtual host; then no more are closed."""


def digest(name: str) -> int:
    """Return what is kept of a closed name, a number of 56 bits."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=7).digest(), "big")


def by_owner(closed: dict[int, str]) -> dict[str, list[Value]]:
    """Return the digests of each owner, as the journal records them. closed: owners by digest."""
    found: dict[str, list[Value]] = {}
    for each, owner in closed.items():
        found.setdefault(owner, []).append(each)
    return found


def restore(closed: dict[int, str], owner: str, digests: Value) -> None:
    """Add the digests of one owner from the journal."""
    assert isinstance(digests, list)
    for each in digests:
        assert isinstance(each, int)
        closed[each] = owner
