#!/usr/bin/env python3
"""Plants the defects of tools/mutants.toml one at a time in a copy of src/, and expects the named test to see each.

    tools/mutants.py             all of them
    tools/mutants.py ttl tag     those with one of these words in their name

First the named tests must pass on the unchanged copy; then each must fail on its defect. The interpreted core is used.
Exit status 1 if a defect survives, if its text is not found exactly once, or if it prevents its test from running at
all: such a defect proves nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parent.parent
LIST = TOP / "tools" / "mutants.toml"
PYTEST_PASSED, PYTEST_FAILED = 0, 1


class Mutant(NamedTuple):
    """One defect: `old` stands exactly once in `file` (below src/leveret), and `test` must see that it became `new`."""

    name: str
    file: str
    old: str
    new: str
    test: str


def pytest(source: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Runs the tests against the package in `source`, without what other runs left behind."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("LEVERET_EXPECT_CORE", None)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)


def verdict(mutant: Mutant, source: Path) -> str | None:
    """Plants one defect, runs its test, takes the defect out again. What is wrong, or None when the test saw it."""
    path = source / "leveret" / mutant.file
    sound = path.read_text()
    if (found := sound.count(mutant.old)) != 1:
        return f"its text stands {found} times in {mutant.file}"
    path.write_text(sound.replace(mutant.old, mutant.new))
    try:
        done = pytest(source, mutant.test)
    finally:
        path.write_text(sound)
    if done.returncode == PYTEST_PASSED:
        return f"SURVIVED {mutant.test}"
    if done.returncode != PYTEST_FAILED:
        return f"its test could not run:\n{done.stdout[-2000:]}"
    return None


def chosen(words: list[str]) -> list[Mutant]:
    mutants = [Mutant(**entry) for entry in tomllib.loads(LIST.read_text())["mutant"]]
    return [mutant for mutant in mutants if not words or any(word in mutant.name for word in words)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="part of a name; none = all defects")
    mutants = chosen(parser.parse_args().words)
    if not mutants:
        sys.exit("no defect has one of these words in its name")
    problems = 0
    with tempfile.TemporaryDirectory(prefix="leveret-mutants-") as directory:
        source = Path(directory) / "src"
        shutil.copytree(TOP / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        sound = pytest(source, *sorted({mutant.test for mutant in mutants}))
        if sound.returncode != PYTEST_PASSED:
            sys.exit(f"the tests must pass before a defect can prove anything:\n{sound.stdout[-4000:]}")
        for mutant in mutants:
            problem = verdict(mutant, source)
            problems += problem is not None
            print(f"{mutant.name}: {problem or 'caught'}", flush=True)
    print(f"{len(mutants)} mutants, {len(mutants) - problems} caught")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
