"""The tests of `make stress`: those that use real time, found by their sources."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "stress.py"
SOURCE = '''
import socket
import pytest

PAUSE_S = 3

def late(queue):
    return {"x-message-ttl": 5}

@pytest.fixture
def slow():
    asyncio.sleep(0)

def test_by_a_helper(raw): late("q")
def test_by_a_fixture(slow): pass
def test_by_a_constant(raw): raw.read(PAUSE_S)
def test_by_a_keyword(raw): raw.read(timeout_s=1)
def test_plain(raw): raw.read()

class TestGroup:
    def test_inside(self): time.monotonic()
'''


@pytest.fixture(scope="module")
def stress() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stress", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_touches_time_belongs_to_it_by_itself(stress: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "test_one.py"
    path.write_text(SOURCE)
    touching = {"test_by_a_helper", "test_by_a_fixture", "test_by_a_constant", "test_by_a_keyword", "test_inside"}
    assert stress.touching(path) == touching


def test_time_that_only_a_test_counts_is_none(stress: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "test_pure.py"
    path.write_text(SOURCE.replace("import socket\n", ""))
    assert stress.touching(path) == frozenset()
