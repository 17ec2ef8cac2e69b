"""What bench/cliffs.py calls a cliff, and bench/day.py growth: noise is neither."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCH = str(Path(__file__).parents[2] / "bench")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(BENCH)
    yield
    for name in ("cliffs", "day", "disturbances", "victims", "run", "scenarios", "tables"):
        sys.modules.pop(name, None)


def cliffs(alone: list[tuple[float, float]], beside: list[tuple[float, float]]) -> list[str]:
    """Return the cliffs found, given (p99, longest) of deliveries in each round."""
    from cliffs import Findings
    from victims import Felt

    found = Findings("leveret", "test")
    found.alone = [Felt(0.1, p99, longest, 0.3, 0.5, 1.0) for p99, longest in alone]
    found.beside = [Felt(0.1, p99, longest, 0.3, 0.5, 1.0) for p99, longest in beside]
    return found.cliffs()


def test_a_pause_in_every_disturbed_round_is_a_cliff() -> None:
    assert cliffs([(0.2, 1.0), (0.2, 2.0)], [(0.2, 30.0), (0.2, 25.0)]) == ["delivery pause 25 ms"]


def test_a_pause_in_one_round_or_alone_as_well_is_noise() -> None:
    assert cliffs([(0.2, 1.0), (0.2, 2.0)], [(0.2, 30.0), (0.2, 3.0)]) == []
    assert cliffs([(0.2, 1.0), (0.2, 40.0)], [(0.2, 30.0), (0.2, 30.0)]) == []
    assert cliffs([(0.2, 1.0)], [(0.2, 9.0)]) == []


def test_a_p99_of_twice_what_it_is_alone_is_a_cliff_if_it_is_felt() -> None:
    assert cliffs([(0.6, 1.0), (0.7, 1.0)], [(1.5, 2.0), (2.1, 2.0)]) == ["delivery p99 x 2.1"]
    assert cliffs([(0.6, 1.0), (0.8, 1.0)], [(1.5, 2.0), (2.1, 2.0)]) == []
    assert cliffs([(0.2, 1.0)], [(0.9, 2.0)]) == []


@pytest.mark.parametrize(
    ("samples", "has_grown"),
    [
        ([100.0] * 60, False),
        ([100.0 + number for number in range(60)], True),  # a leak
        ([float(number) for number in range(12)] + [100.0] * 48, False),  # warm-up
        ([100.0, 400.0, 100.0, 700.0] * 10 + [100.0, 900.0, 900.0, 900.0] * 10, False),  # it comes and goes
        ([100.0] * 56 + [104.0] * 24, False),  # less than the threshold
        ([100.0] * 36 + [120.0] * 44, False),  # one step of the heap
        ([100.0] * 36 + [120.0] * 20 + [140.0] * 24, True),  # two steps, one after the other
        ([100.0] * 36 + [90.0] * 20 + [100.0] * 24, False),  # memory that was freed, and is allocated again
    ],
)
def test_growth_is_a_floor_that_rises(samples: list[float], has_grown: bool) -> None:
    from day import Figure, verdict

    assert verdict(samples, Figure("memory", 0.05, 5.0)).has_grown == has_grown


def test_a_day_of_some_seconds_says_nothing() -> None:
    from day import FIGURES, verdict

    with pytest.raises(ValueError, match="too short"):
        verdict([1.0] * 5, FIGURES["rss_mib"])
