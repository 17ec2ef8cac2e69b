"""tools/mutants.py: each mutant's old text occurs in the source; choosing, running and reporting mutants."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

TOP = Path(__file__).parents[2]
PROGRAM = TOP / "tools/mutants.py"

spec = importlib.util.spec_from_file_location("leveret_mutants", PROGRAM)
assert spec is not None
assert spec.loader is not None
mutants = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mutants)

TEST = "tests/unit/test_client_confirms.py::test_single_and_multiple_answers"
DEFECTS = f"""
[[mutant]]
name = "seen"
file = "client/protocol/confirms.py"
old = "if number and tag > number:"
new = "if number and tag >= number:"
test = "{TEST}"

[[mutant]]
name = "not seen"
file = "client/protocol/confirms.py"
old = "if number and tag > number:"
new = "if number and tag > number >= 0:"
test = "{TEST}"

[[mutant]]
name = "gone"
file = "client/protocol/confirms.py"
old = "what stands nowhere"
new = ""
test = "{TEST}"

[[mutant]]
name = "no test"
file = "client/protocol/confirms.py"
old = "if number and tag > number:"
new = "if number and tag >= number:"
test = "tests/unit/test_client_confirms.py::test_that_is_not_there"
"""


def made(name: str, file: str = "a.py", test: str = "tests/test_a.py::test_it") -> object:
    return mutants.Mutant(name, file, "old", "new", test)


def test_each_mutant_can_be_planted_and_its_test_is_there() -> None:
    read = cache(lambda path: (TOP / path).read_text() if (TOP / path).exists() else "")
    wrong = []
    for mutant in mutants.listed():
        path, _, test = mutant.test.partition("::")
        name = test.partition("[")[0].rpartition("::")[2]
        if (found := read(f"src/leveret/{mutant.file}").count(mutant.old)) != 1:
            wrong.append(f"{mutant.name}: its text stands {found} times in {mutant.file}")
        if mutant.new == mutant.old:
            wrong.append(f"{mutant.name}: changes nothing")
        if (f"def {name}(" if name else "def test_") not in read(path):
            wrong.append(f"{mutant.name}: there is no {mutant.test}")
    assert wrong == []


def test_each_mutant_has_a_name_of_its_own() -> None:
    names = [mutant.name for mutant in mutants.listed()]
    assert [name for name in names if names.count(name) > 1] == []


def test_those_of_changed_sources_come_first() -> None:
    known = [made(str(number), f"{number}.py", f"tests/test_{number}.py::test_it") for number in range(40)]
    changed = {"src/leveret/7.py", "src/leveret/9.py", "tests/test_11.py", "docs/guide.md"}
    drawn = mutants.draw(known, changed, "c0ffee", 10)
    assert {mutant.name for mutant in drawn[:2]} == {"7", "9"}
    assert len({mutant.name for mutant in drawn}) == 10


def test_the_commit_decides_which_are_drawn() -> None:
    known = [made(str(number)) for number in range(40)]
    assert mutants.draw(known, (), "c0ffee", 10) == mutants.draw(known[::-1], (), "c0ffee", 10)
    assert set(mutants.draw(known, (), "c0ffee", 10)) != set(mutants.draw(known, (), "decade", 10))


def test_a_survivor_of_a_changed_file_fails_and_one_that_was_drawn_does_not() -> None:
    changed, drawn = made("changed", "changed.py"), made("drawn")
    results = [mutants.Result(mutant, "SURVIVED") for mutant in (changed, drawn)]
    results += [mutants.Result(drawn, verdict) for verdict in ("caught", "left out", "not begun")]
    assert [found.mutant for found in mutants.failures(results, {"src/leveret/changed.py"})] == [changed]
    assert [found.mutant for found in mutants.failures(results, None)] == [changed, drawn]
    stale, broken = (mutants.Result(drawn, verdict) for verdict in ("STALE", "BROKEN"))
    assert mutants.failures([stale, broken], set()) == [stale]
    assert mutants.failures([stale, broken], None) == [stale, broken]


def test_what_becomes_of_defects(tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text(DEFECTS)
    command = [sys.executable, str(PROGRAM), "--list", str(tmp_path / "some.toml"), "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    verdicts = re.findall(r"^- (\w+): ([\w ]+):", done.stdout, re.MULTILINE)
    assert sorted(verdicts) == [("BROKEN", "no test"), ("STALE", "gone"), ("SURVIVED", "not seen")], done.stdout
    assert "seen: caught (" in done.stdout
    assert done.returncode == 1
    assert "4 mutants: 1 BROKEN, 1 STALE, 1 SURVIVED, 1 caught" in done.stdout
