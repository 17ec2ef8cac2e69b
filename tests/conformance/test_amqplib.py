"""A round trip with amqplib, the usual client of Node programs. Needs node and npm; without them it fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

JS = Path(__file__).parent / "js"
INSTALLED = Path(__file__).parents[2] / "build" / "amqplib"


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """amqplib as package.json names it, installed once and kept under build/."""
    wanted = (JS / "package.json").read_text()
    marker = INSTALLED / "package.json"
    modules = INSTALLED / "node_modules"
    if modules.is_dir() and marker.is_file() and marker.read_text() == wanted:
        return modules
    shutil.rmtree(INSTALLED, ignore_errors=True)
    INSTALLED.mkdir(parents=True)
    # The package file is copied last, so that an interrupted installation is made again.
    partial = INSTALLED / "partial"
    partial.mkdir()
    (partial / "package.json").write_text(wanted)
    subprocess.run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"],
                   cwd=partial, check=True, timeout=110, capture_output=True)
    (partial / "node_modules").rename(modules)
    (partial / "package.json").rename(marker)
    return modules


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
