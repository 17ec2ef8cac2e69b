"""A round trip with amqplib, the most used client of Node programs; tests/suites runs that package's own tests."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from ..suites.installation import Installation
from ..suites.suite import Suite

JS = Path(__file__).parent / "js"


@pytest.fixture
def node_modules(tmp_path: Path) -> Path:
    """Make a directory in which Node finds amqplib, which needs no other package."""
    [amqplib] = [suite for suite in Suite.load() if suite.name == "amqplib"]
    (tmp_path / "amqplib").symlink_to(Installation.of(amqplib).source)
    return tmp_path


def test_round_trip(url: str, node_modules: Path) -> None:
    done = subprocess.run(["node", str(JS / "round_trip.js"), url], check=False, timeout=60, capture_output=True,
                          text=True, env=os.environ | {"NODE_PATH": str(node_modules)})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "delivered": 100,
        "answers": [["one", "ONE"], ["two", "TWO"], ["three", "THREE"]],
        "returned": [312, "NO_ROUTE", "back"],
        "mistake": 404,
    }
