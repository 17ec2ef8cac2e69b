"""What `make soak` adds to tests/spark/test_kills.py: every arrow with every victim, and kills at random moments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .plan import FLOWS, every_step
from .random_run import RandomRun
from .run import Run

KILLS = int(os.environ.get("LEVERET_SPARK_KILLS", "20"))
SEED = int(os.environ.get("LEVERET_SPARK_SEED", "1"))

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120 * (KILLS + len(every_step())))]


def test_every_arrow_with_every_victim(tmp_path: Path) -> None:
    Run(tmp_path, FLOWS, every_step()).execute()


def test_random_kills(tmp_path: Path) -> None:
    """LEVERET_SPARK_KILLS is their number; LEVERET_SPARK_SEED repeats the choice of victims, not the exact moments."""
    print(f"LEVERET_SPARK_SEED={SEED}")
    RandomRun(tmp_path, FLOWS, KILLS, SEED).execute()
