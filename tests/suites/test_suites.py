"""The fast part of clients' own test suites; `make conformance` runs all of them.

`python -m tests.suites --fast --fetch` must have fetched the suites before.
"""

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


def check(*words: str) -> None:
    command = [sys.executable, "-m", "tests.suites", "--fast", "--jobs", "8", *words]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.needs("suites", "node")
@pytest.mark.timeout(1800)
def test_what_passes_on_rabbitmq_passes_here() -> None:
    """Runs all suites at once: they mostly wait."""
    check()


@pytest.mark.needs("suites", "rabbitmq")
def test_what_passed_on_rabbitmq_still_passes_there() -> None:
    """Runs the two fastest suites; `python -m tests.suites --broker rabbitmq --update` renews a baseline."""
    check("--broker", "rabbitmq", "rabbitpy", "amqp")
