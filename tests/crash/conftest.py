"""Fixtures of the crash tests: brokers that are killed, stopped and traced, each with a data directory of its own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.testing.processes import LeveretProcess


@pytest.fixture
def process(tmp_path: Path) -> Iterator[LeveretProcess]:
    """A running broker to `kill`, `stop` and `start`; its data stays."""
    with LeveretProcess(tmp_path / "data") as running:
        yield running


@pytest.fixture
def seed() -> int:
    """The value of LEVERET_CRASH_SEED, to repeat a run of the soak test; 1 if it is not set."""
    return int(os.environ.get("LEVERET_CRASH_SEED", "1"))
