"""Random worlds. LEVERET_SIM_SEEDS: how many (1,000); LEVERET_SIM_SEED: only this one, to replay a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from .seeds import simulate
from .world import HITS

TESTS = Path(__file__).parents[1]
CHUNKS = 10
SEEDS = int(os.environ.get("LEVERET_SIM_SEEDS", "1000"))
ONLY = os.environ.get("LEVERET_SIM_SEED")


def hits_of(seed: int) -> Counter[str]:
    """The crashes of one world; a failure tells how to see it again."""
    try:
        return simulate(seed).hits
    except BaseException as error:
        error.add_note(f"again: LEVERET_SIM_SEED={seed} python -m pytest tests/sim/test_seeds.py -k random_worlds")
        raise


@pytest.mark.timeout(0)
@pytest.mark.parametrize("chunk", range(1) if ONLY else range(CHUNKS))
def test_random_worlds_lose_nothing_confirmed(chunk: int) -> None:
    seeds = [int(ONLY)] if ONLY else range(chunk, SEEDS, CHUNKS)
    hits: Counter[str] = Counter()
    for seed in seeds:
        hits += hits_of(seed)
    print(f"{len(seeds)} worlds:", ", ".join(f"{what} {count}" for what, count in sorted(hits.items())))
    missing = [what for what in (*HITS, "fault") if not hits[what]]
    assert ONLY or not missing, f"no crash in {len(seeds)} worlds hit any of these: {missing}"


def test_the_same_seed_is_the_same_world() -> None:
    """To the last byte on the wire and the disk, and in another process, where strings have other hashes."""
    program = "from sim.seeds import simulate; print(*[simulate(seed).trace() for seed in range(5)])"
    traces = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, check=True,
        ).stdout.split()
        for hash_seed in ("1", "2")
    ]  # fmt: skip
    assert traces[0] == traces[1] == [simulate(seed).trace() for seed in range(5)]
    assert len(set(traces[0])) == 5
