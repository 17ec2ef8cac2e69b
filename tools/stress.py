"""Runs all tests that touch time beside busy loops, several times: none may fail because the machine is slow.

    python tools/stress.py                        what `make stress` does: four loops, three rounds
    python tools/stress.py --rounds 1 tests/kit   part of it
    python tools/stress.py --list                 only names the tests

A test touches time if its source, or that of a function, fixture or class of its file that it uses, names a clock, a
pause, a deadline or a delay (`NAMES`, `TEXTS`). So new tests are included automatically. Tests that only pass times as
arguments, without a process, a socket or a thread, are excluded: a file counts only if it uses one of `LIVES`.

Exit status 1 if a test failed in any of the rounds.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TOP: Final = Path(__file__).parents[1]
NAMES: Final = re.compile(
    r"sleep|monotonic|perf_counter|time|time_ns|now|(.*_)?(deadline|timeout|heartbeat|delay|ttl|eta|expires|countdown"
    r"|interval|patience)(_ms|_s)?|until_s|wait|wait_for|advance|.*_S(_MAX)?",
)
"""Whole identifiers, including attributes, keywords and parameters."""
TEXTS: Final = re.compile(r"x-(message-ttl|expires|delay|consumer-timeout)|heartbeat=\d")
"""Patterns in strings."""
LIVES: Final = {
    "asyncio", "http", "httpx", "kombu", "leveret.client", "leveret.testing", "multiprocessing", "pika", "playwright",
    "pyspark", "select", "signal", "socket", "subprocess", "threading", "time", "urllib",
}  # fmt: skip
"""Modules that give a file processes, sockets, threads or real waiting times."""
COMPUTE: Final = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
"""The program of a busy loop; it ends with its parent, even if that is killed."""
JOBS: Final = min((os.cpu_count() or 2) + 1, 4)
OUTCOMES: Final = re.compile(r"(\d+) (failed|errors?|passed|skipped|xfailed|xpassed)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only the tests that touch time: this file is a pytest plugin, too."""
    kept = [item for item in items if item.name.partition("[")[0] in touching(item.path)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


@cache
def touching(path: Path) -> frozenset[str]:
    """Return the names of a file's tests that touch time."""
    tree = ast.parse(path.read_text())
    if not any(_is_below(module, LIVES) for module in _imported(tree)):
        return frozenset()
    parts: dict[str, list[ast.AST]] = {}
    for node in tree.body:
        for name in _defined(node):
            parts.setdefault(name, []).append(node)
    used = {name: set().union(*map(_named, nodes)) for name, nodes in parts.items()}
    found = {name for name, nodes in parts.items() if any(map(_touches, nodes))}
    while more := {name for name, names in used.items() if names & found} - found:
        found |= more
    inner = {
        each.name: name for name in found for node in parts[name] if isinstance(node, ast.ClassDef)
        for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }  # fmt: skip
    return frozenset(name for name in {*found, *inner} if name.startswith("test"))


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the imported modules, and leveret.testing if a function uses the fixtures url or broker."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and {"url", "broker"} & set(_arguments(node)):
            yield "leveret.testing"


def _is_below(module: str, roots: set[str]) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in roots)


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def _defined(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a module's statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    else:
        names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
        yield from (each.id for each in names if isinstance(each.ctx, ast.Store))


def _named(node: ast.AST) -> set[str]:
    """Return all names that a node uses, including fixtures."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.Attribute):
            found.add(each.attr)
        elif isinstance(each, ast.arg | ast.keyword) and each.arg:
            found.add(each.arg)
    return found


def _touches(node: ast.AST) -> bool:
    if any(NAMES.fullmatch(name) for name in _named(node)):
        return True
    texts = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str))
    return any(map(TEXTS.search, texts))


def run(arguments: Sequence[str]) -> tuple[int, str]:
    """Run pytest on the tests that touch time; return its exit status and its last line."""
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "pytest", "-p", Path(__file__).stem, "-q", *arguments]
    closing = ""
    environment = os.environ | {"PYTHONPATH": path}
    with subprocess.Popen(command, cwd=TOP, env=environment, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        for line in tests.stdout:
            print(line, end="", flush=True)
            closing = line.strip() or closing
    return tests.returncode, closing


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Run programs that compute until the context ends."""
    found = [subprocess.Popen([sys.executable, "-c", COMPUTE]) for _ in range(loops)]
    try:
        yield
    finally:
        for each in found:
            each.kill()
            each.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often (3)")
    parser.add_argument("--loops", type=int, default=4, help="busy loops beside the tests (4)")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"files at a time ({JOBS})")
    parser.add_argument("--list", action="store_true", help="only name the tests")
    options, others = parser.parse_known_args()
    if options.list:
        return run(["--collect-only", *others])[0]
    arguments = ["-n", str(options.jobs), "--dist", "loadfile", "--no-loadscope-reorder", *others]
    rounds: list[tuple[int, str]] = []
    for number in range(1, options.rounds + 1):
        print(f"round {number} of {options.rounds}, beside {options.loops} busy loops", flush=True)
        with busy(options.loops):
            rounds.append(run(arguments))
    total: Counter[str] = Counter()
    for _, closing in rounds:
        total.update({name.removesuffix("s"): int(count) for count, name in OUTCOMES.findall(closing)})
    print(f"\nstress: {options.rounds} rounds beside {options.loops} busy loops")
    print(*(f"  {number}: {closing}" for number, (_, closing) in enumerate(rounds, 1)), sep="\n")
    print("  in all: " + ", ".join(f"{count} {name}" for name, count in sorted(total.items())))
    return max((status for status, _ in rounds), default=0)


if __name__ == "__main__":
    sys.exit(main())
