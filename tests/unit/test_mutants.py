"""The list of mutants fits the source: a defect that can not be planted proves nothing."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
MUTANTS = tomllib.loads((TOP / "tools/mutants.toml").read_text())["mutant"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant["name"])
def test_a_mutant_can_be_planted_and_its_test_is_there(mutant: dict[str, str]) -> None:
    text = (TOP / "src/leveret" / mutant["file"]).read_text()
    assert text.count(mutant["old"]) == 1
    assert mutant["new"] != mutant["old"]
    path, _, test = mutant["test"].partition("::")
    name = test.partition("[")[0].rpartition("::")[2]
    assert (f"def {name}(" if name else "def test_") in (TOP / path).read_text()


def test_each_mutant_has_a_name_of_its_own() -> None:
    names = [mutant["name"] for mutant in MUTANTS]
    assert len(names) == len(set(names))
