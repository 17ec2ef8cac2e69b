"""Each program in docs/guides/testing.md is a test file, and passes."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import leveret

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "testing.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
NAMES = [
    (number, node.name)
    for number, program in enumerate(PROGRAMS)
    for node in ast.parse(program).body
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run the programs as a user would; return the result of each test by its name, "" if it passed."""
    work = tmp_path_factory.mktemp("recipes")
    for number, program in enumerate(PROGRAMS):
        (work / f"test_recipe_{number}.py").write_text(program)
    plugins = ["-p", "no:leveret", "-p", "leveret.testing.plugin", "-p", "no:cacheprovider", "-p", "no:xdist"]
    report = work / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", f"--junitxml={report}", *plugins, str(work)]
    environment = os.environ | {"PYTHONPATH": str(Path(leveret.__file__).parents[1])}
    run = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    assert report.exists(), run.stdout + run.stderr
    return {
        str(case.get("name")): "".join(f"{fault.get('message')}\n{fault.text}" for fault in case)
        for case in ElementTree.parse(report).iter("testcase")
    }


def test_each_program_is_a_test() -> None:
    assert {number for number, _ in NAMES} == set(range(len(PROGRAMS)))
    assert len(set(NAMES)) == len({name for _, name in NAMES}) >= 12


@pytest.mark.parametrize("name", [name for _, name in NAMES])
def test_recipe(name: str, outcomes: dict[str, str]) -> None:
    assert name in outcomes
    assert outcomes[name] == ""
