#!/usr/bin/env python3
"""Plants the defects of tools/mutants.toml one at a time in a copy of src/, and expects the named test to detect each.

    tools/mutants.py                           all of them
    tools/mutants.py ttl tag                   those with one of these words in their name
    tools/mutants.py --most 60 --seconds 60    `make mutants-ci`: those of changed files, others drawn by the commit

A test must pass on the unchanged copy and fail on its defect. The interpreted core is used, and each processor works on
a copy of its own. A defect whose test is skipped on this machine (a peer is missing) is skipped, too, and named.

With --most the defects of changed files come first: of sources that differ from --since, by default the last commit
that is at least four hours older than this one. The rest is drawn by this commit's hash, so the same commit draws the
same ones. After --seconds no further defect is begun.

Exit status 1 if a defect survives, if its text is not found exactly once, if it prevents its test from running at all
(which proves nothing), or if its test fails without it. Of those that were only drawn, only a text that is not found is
a failure; other problems are reported. If changed files have more defects than --most, these count as drawn, too:
whether a commit passes must not depend on its hash.
"""

import argparse
import contextlib
import hashlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Collection, Iterator, Sequence
from compileall import compile_dir
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

import pytest

TOP = Path(__file__).resolve().parent.parent
LIST = TOP / "tools" / "mutants.toml"
TEST_S, DEFECT_S, RUN_S = 150, 15, 300
"""Timeouts in seconds: of a test (pytest's), with a defect (plus five times the time without it), and of a whole run,
which is then killed, because some defects hang their test."""
LATELY_S = 4 * 3600
PLUGINS = ("anyio.pytest_plugin", "hypothesis", "pytest_asyncio.plugin", "pytest_timeout", "xdist.plugin")
"""Imported once, before runs are forked; none of them imports leveret."""
Verdict = Literal["caught", "left out", "not begun", "SURVIVED", "STALE", "BROKEN"]


class Mutant(NamedTuple):
    """One defect: `old` occurs exactly once in `file` (below src/leveret); `test` must fail when `new` replaces it.

    also: the name of another defect, which is planted with it, where either alone would be harmless.
    """

    name: str
    file: str
    old: str
    new: str
    test: str
    also: str = ""

    @property
    def source(self) -> str:
        """The mutated file, relative to the repository."""
        return f"src/leveret/{self.file}"


class Run(NamedTuple):
    status: int
    passed: int  # number of tests
    failed: int  # number of tests
    cpu_s: float
    took_s: float  # wall-clock time
    output: str  # the end of what pytest printed


class Result(NamedTuple):
    """What happened to a defect, and why."""

    mutant: Mutant
    verdict: Verdict
    reason: str = ""
    cpu_s: float = 0.0  # of both runs of its test, including their child processes


# -- which ones -------------------------------------------------------------------------------------------------------


def listed(path: Path = LIST) -> list[Mutant]:
    return [Mutant(**entry) for entry in tomllib.loads(path.read_text())["mutant"]]


def draw(mutants: Sequence[Mutant], changed: Collection[str], commit: str, most: int) -> list[Mutant]:
    """Return at most `most` defects: those of changed files, then others, both ordered by the commit's hash."""

    def place(mutant: Mutant) -> tuple[bool, bytes]:
        lot = hashlib.sha256(f"{commit}\0{mutant.name}".encode()).digest()
        return mutant.source not in changed, lot

    return sorted(mutants, key=place)[:most]


def changed_files(since: str | None) -> set[str]:
    """Return files that differ from commit `since`, committed or not; by default the last one before LATELY_S."""
    if since is None:
        before = int(git("show", "-s", "--format=%ct", "HEAD")) - LATELY_S
        since = git("rev-list", "-1", f"--before={before}", "HEAD")
    if not since:
        print("This clone has no commit four hours older than the last one: all are drawn.")
        return set()
    found = set(git("diff", "--name-only", since).splitlines())
    print(f"{len(found)} files differ from {since[:12]}")
    return found


def git(*arguments: str) -> str:
    command = ["git", "-C", str(TOP), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


# -- trying one -------------------------------------------------------------------------------------------------------


class Outcomes:
    """A pytest plugin that counts the outcomes of tests."""

    def __init__(self) -> None:
        self.passed = self.failed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed += report.passed and report.when == "call"
        self.failed += report.failed


def pytest_run(source: Path, test: str, limit_s: float = TEST_S) -> Run:
    """Run a test against the package in `source`, in a forked process that has imported pytest already."""
    with tempfile.TemporaryDirectory(prefix="leveret-mutant-") as directory, tempfile.TemporaryFile("w+") as output:
        Path(directory).chmod(0o755)  # PostgreSQL runs as a different user
        sys.stdout.flush()
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        child = os.fork()
        if not child:
            in_child(source, test, limit_s, Path(directory), output.fileno())
        watchdog = threading.Timer(RUN_S, kill_group, [child])
        watchdog.start()
        _, status = os.waitpid(child, 0)
        watchdog.cancel()
        kill_group(child)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        output.seek(0)
        text = output.read()
    counts = re.search(r"^outcomes: (\d+) (\d+)$", text, re.MULTILINE)
    passed, failed = map(int, counts.groups()) if counts else (0, 0)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(os.waitstatus_to_exitcode(status), passed, failed, cpu_s, time.monotonic() - began, text[-2000:])


def in_child(source: Path, test: str, limit_s: float, directory: Path, output: int) -> NoReturn:
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ |= {
        "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "LEVERET_CORE": "interpreted",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(directory / "hypothesis"), "TMPDIR": str(directory),
        "LEVERET_PEERS": "found", "CI": "",  # a test whose peer is missing is skipped, and named
    }  # fmt: skip
    tempfile.tempdir = None
    sys.dont_write_bytecode = True
    sys.path[0:1] = [str(TOP), str(source)]  # instead of tools/
    status: int = pytest.ExitCode.INTERNAL_ERROR
    outcomes = Outcomes()
    options = ["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile=unshrunk", f"--timeout={limit_s}"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # for PLUGINS, which are not under test
    try:
        status = pytest.main([*options, test], plugins=[outcomes])
    finally:
        print(f"\noutcomes: {outcomes.passed} {outcomes.failed}", flush=True)
        os._exit(status)


def kill_group(group: int) -> None:
    """Kill the remaining processes of a run."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Copy:
    """A copy of src/ for this process alone."""

    def __init__(self, original: Path, places: Path) -> None:
        self.source = places / str(os.getpid())
        shutil.copytree(original, self.source)
        self.sound = cache(self._sound)

    def _sound(self, test: str) -> Run:
        return pytest_run(self.source, test)

    def attempt(self, mutant: Mutant) -> Result:
        """Plant one defect, run its test, and restore the file."""
        planted = [mutant, *(each for each in listed() if each.name == mutant.also)]
        for each in planted:
            path = self.source / "leveret" / each.file
            if (found := path.read_text().count(each.old) if path.exists() else 0) != 1:
                return Result(mutant, "STALE", f"its text stands {found} times in {each.file}")
        sound = self.sound(mutant.test)
        if sound.status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return Result(mutant, "BROKEN", f"{mutant.test} must pass without it:\n{sound.output}", sound.cpu_s)
        if not sound.passed:
            return Result(mutant, "left out", f"{mutant.test} does not run here", sound.cpu_s)
        with contextlib.ExitStack() as stack:
            for each in planted:
                stack.enter_context(planting(self.source / "leveret" / each.file, each))
            done = pytest_run(self.source, mutant.test, min(TEST_S, DEFECT_S + 5 * sound.took_s))
        cpu_s = sound.cpu_s + done.cpu_s
        if done.status == pytest.ExitCode.OK:
            return Result(mutant, "SURVIVED", mutant.test, cpu_s)
        if done.status == -signal.SIGKILL:
            return Result(mutant, "BROKEN", f"{mutant.test} did not end within {RUN_S} s", cpu_s)
        if not done.failed or done.status != pytest.ExitCode.TESTS_FAILED:
            return Result(mutant, "BROKEN", f"its test could not run:\n{done.output}", cpu_s)
        return Result(mutant, "caught", cpu_s=cpu_s)


@contextlib.contextmanager
def planting(path: Path, mutant: Mutant) -> Iterator[None]:
    """Plant a defect, and restore the file afterwards."""
    text, times = path.read_text(), path.stat()
    path.write_text(text.replace(mutant.old, mutant.new))
    # makes the bytecode of the original outdated
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 2 * 10**9))
    try:
        yield
    finally:
        path.write_text(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


copy: Copy
"""That of this process."""


def begin(original: Path, places: Path) -> None:
    global copy  # noqa: PLW0603
    for name in PLUGINS:
        import_module(name)
    copy = Copy(original, places)


def attempt(mutant: Mutant, deadline: float) -> Result:
    return copy.attempt(mutant) if time.monotonic() < deadline else Result(mutant, "not begun")


def attempts(mutants: Sequence[Mutant], jobs: int, deadline: float) -> list[Result]:
    """Try all defects, `jobs` at a time, and print each result."""
    with tempfile.TemporaryDirectory(prefix="leveret-mutants-") as directory:
        original, places = Path(directory, "src"), Path(directory)
        shutil.copytree(TOP / "src", original, ignore=shutil.ignore_patterns("*.egg-info"))
        compile_dir(original, quiet=2)
        results = []
        with ProcessPoolExecutor(jobs, get_context("fork"), begin, (original, places)) as processes:
            for future in as_completed([processes.submit(attempt, mutant, deadline) for mutant in mutants]):
                results.append(result := future.result())
                if result.verdict != "not begun":
                    reason = f" {result.reason}" if result.reason else ""
                    print(f"{result.mutant.name}: {result.verdict}{reason} ({result.cpu_s:.1f} s)", flush=True)
        return results


# -- all of them ------------------------------------------------------------------------------------------------------


def summary(results: Sequence[Result], passed_s: float) -> str:
    counts = {found.verdict: 0 for found in results}
    for found in results:
        counts[found.verdict] += 1
    begun = len(results) - counts.get("not begun", 0)
    cpu_s = sum(found.cpu_s for found in results)
    parts = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items()))
    each = f", {cpu_s / begun:.1f} s each" if begun else ""
    return f"{len(results)} mutants: {parts}; {cpu_s:.0f} s of processor time{each}, in {passed_s:.0f} s"


def failures(results: Sequence[Result], changed: Collection[str] | None) -> list[Result]:
    """Return the results for which the run fails. `changed` are the sources whose survivors count; None: all."""
    return [
        found
        for found in results
        if found.verdict == "STALE"
        or (found.verdict in ("BROKEN", "SURVIVED") and (changed is None or found.mutant.source in changed))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="part of a name; none = all defects")
    parser.add_argument("--most", type=int, metavar="N", help="no more than N, those of changed files first")
    parser.add_argument("--since", metavar="REV", help="with --most: what differs from this commit has changed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further one after this time")
    parser.add_argument("--list", type=Path, default=LIST, metavar="FILE", help="defects of another file")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="as many at a time")
    options = parser.parse_args()
    began = time.monotonic()
    mutants = listed(options.list)
    if options.words:
        mutants = [mutant for mutant in mutants if any(word in mutant.name for word in options.words)]
    if not mutants:
        sys.exit("no defect has one of these words in its name")
    changed: set[str] | None = None
    if options.most is not None:
        changed = changed_files(options.since)
        of_changed = sum(mutant.source in changed for mutant in mutants)
        mutants = draw(mutants, changed, git("rev-parse", "HEAD"), options.most)
        if of_changed > options.most:
            print(f"{of_changed} mutants of changed files, {options.most} of them drawn: survivors are reported")
            changed = set()
        else:
            print(f"{of_changed} mutants of changed files, {len(mutants) - of_changed} drawn", flush=True)
    results = attempts(mutants, options.jobs, began + options.seconds)
    print(summary(results, time.monotonic() - began))
    for found in results:
        if found.verdict not in ("caught", "not begun"):
            print(f"- {found.verdict}: {found.mutant.name}: {found.reason.partition(chr(10))[0]}")
    sys.exit(1 if failures(results, changed) else 0)


if __name__ == "__main__":
    main()
