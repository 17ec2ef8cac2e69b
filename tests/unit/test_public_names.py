"""docs/reference/stability.md: the public modules and names; documentation and examples import nothing else."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import leveret

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "reference" / "stability.md"
TABLE = PAGE.read_text().partition("## Python\n")[2].partition("\nThe control socket")[0]
PUBLIC = re.findall(r"`(leveret[\w.]*)`", TABLE)
DEMO = "leveret.demo"
"""Not for programs, but the page on the demo and its notebook show it."""


def programs() -> Iterator[tuple[str, str]]:
    """Yield (place, source) of every program in the documentation and the examples."""
    for page in [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]:
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        for number, block in enumerate(blocks):
            yield f"{page.name}, program {number + 1}", block
    for path in sorted((TOP / "examples").rglob("*.py")):
        yield path.name, path.read_text()
    for path in sorted((TOP / "examples").rglob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        yield path.name, "\n".join(line for line in "\n".join(code).split("\n") if not line.startswith(("%", "!")))


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each import from leveret; the name is "" for a whole module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "leveret":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield (whole, "") if whole in PUBLIC else (node.module, alias.name)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.partition(".")[0] == "leveret")


def module(name: str) -> ModuleType:
    if name.startswith("leveret.otel"):
        pytest.importorskip("opentelemetry")
    return importlib.import_module(name)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_says_what_is_public(name: str) -> None:
    public = module(name)
    assert len(public.__all__) == len(set(public.__all__)) > 0
    assert [each for each in public.__all__ if each.startswith("_") and each != "__version__"] == []
    if leveret.core() == "compiled":
        return  # compiled code has no docstrings
    undocumented = [each for each in public.__all__ if callable(it := getattr(public, each)) and not it.__doc__]
    assert undocumented == []


def test_documentation_and_examples_import_public_names_only() -> None:
    found = {(where, *each) for where, source in programs() for each in imported(source)}
    assert len(found) > 30
    strange = {
        (where, name, each)
        for where, name, each in found
        if not name.startswith(DEMO)
        and (name not in PUBLIC or (each and each not in importlib.import_module(name).__all__))
    }
    assert strange == set()
