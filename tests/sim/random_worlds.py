"""Runs many random worlds, each from its seed, and counts what they hit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import pytest

CHUNKS = 5
EACH_CHUNK = [0, *(pytest.param(chunk, marks=pytest.mark.needs("minutes")) for chunk in range(1, CHUNKS))]
"""The first chunk is a sample of all; `make test` runs no more."""


def seeds_of(chunk: int, seeds: int, only: str | None) -> Sequence[int]:
    """Return the seeds of one chunk, or `only` the one to replay."""
    return [int(only)] if only else range(chunk, seeds, CHUNKS)


def hits_of(simulate: Callable[[int], Counter[str]], seeds: Sequence[int], again: str) -> Counter[str]:
    """Run these seeds; return what they hit. `again` is the command that repeats a failed one, with {} for the seed."""
    hits: Counter[str] = Counter()
    for seed in seeds:
        try:
            hits += simulate(seed)
        except BaseException as error:
            error.add_note("again: " + again.format(seed))
            raise
    return hits


def missing_in(hits: Counter[str], wanted: Collection[str], worlds: str) -> list[str]:
    """Print all hits; return what none of the worlds hit."""
    print(f"{worlds}:", ", ".join(f"{what} {count}" for what, count in sorted(hits.items())))
    return [what for what in wanted if not hits[what]]
