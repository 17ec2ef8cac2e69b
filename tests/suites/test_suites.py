"""The fast core of clients' own test suites; `make conformance` runs all of them. The first run needs the network."""

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


@pytest.mark.timeout(1800)
def test_what_passes_on_rabbitmq_passes_here() -> None:
    """All suites at once: they mostly wait."""
    command = [sys.executable, "-m", "tests.suites", "--fast", "--jobs", "8"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
