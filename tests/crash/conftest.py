"""Fixtures of the crash tests: brokers that are killed, stopped and traced, each with a data directory of its own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.testing.processes import LeveretProcess


@pytest.fixture
def process(tmp_path: Path) -> Iterator[LeveretProcess]:
    """A running broker; `kill`, `stop` and `start` it at will, its data stays."""
    with LeveretProcess(tmp_path / "data") as running:
        yield running


@pytest.fixture
def seed() -> int:
    """LEVERET_CRASH_SEED, for repeating a run of the soak; 1 where it is not set."""
    return int(os.environ.get("LEVERET_CRASH_SEED", "1"))
