"""Random worlds. LEVERET_SIM_SEEDS: how many (500); LEVERET_SIM_SEED: only this one, to replay a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .random_worlds import EACH_CHUNK, hits_of, missing_in, seeds_of
from .seeds import simulate
from .world import HITS, STREAM_HITS

TESTS = Path(__file__).parents[1]
SEEDS = int(os.environ.get("LEVERET_SIM_SEEDS", "500"))
ONLY = os.environ.get("LEVERET_SIM_SEED")


@pytest.mark.timeout(600 + 2 * SEEDS)
@pytest.mark.parametrize("chunk", range(1) if ONLY else EACH_CHUNK)
def test_random_worlds_lose_nothing_confirmed(chunk: int) -> None:
    seeds = seeds_of(chunk, SEEDS, ONLY)
    again = "LEVERET_SIM_SEED={} python -m pytest tests/sim/test_seeds.py -k random_worlds"
    hits = hits_of(lambda seed: simulate(seed).hits, seeds, again)
    missing = missing_in(hits, (*HITS, *STREAM_HITS, "fault", "return in steps"), f"{len(seeds)} worlds")
    assert ONLY or not missing, f"{len(seeds)} worlds had none of these: {missing}"


def test_the_same_seed_is_the_same_world() -> None:
    """The same to the last byte on the wire and the disk, and in another process, where strings have other hashes."""
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
