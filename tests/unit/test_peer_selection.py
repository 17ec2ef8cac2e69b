"""LEVERET_PEERS and the installed software decide which tests run; every test left out is reported."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests import peer_selection, peers
from tests.peer_selection import ALL, PeerSelection
from tests.peers import PEERS, Peer

pytest_plugins = "pytester"

ROOT = Path(__file__).parents[2]
HERE, AWAY = Peer("here", "", packages=("here-package",)), Peer("away", "", packages=("a", "b"), check=lambda: False)
MACHINE = Peer("machine", "a property", check=lambda: False)
PIP = Peer("pip", "a package of Python's", extra="dev")
INI = """[pytest]
addopts = --strict-markers -p no:cacheprovider
asyncio_default_fixture_loop_scope = function
markers = needs(peer, ...): a peer
"""
TESTS = """
import pytest

@pytest.fixture
def starts_away():
    raise AssertionError("the test is left out")

@pytest.fixture(params=["none", pytest.param("away", marks=pytest.mark.needs("away"))])
def place(request):
    return request.param

def test_without():
    pass

@pytest.mark.needs("here")
def test_here():
    pass

@pytest.mark.needs("here", "away")
def test_both():
    raise AssertionError

def test_by_fixture(starts_away):
    raise AssertionError

@pytest.mark.parametrize("number", [1, 2])
def test_by_parameter(place, number):
    assert place == "none"

@pytest.mark.needs("machine")
def test_machine():
    raise AssertionError

@pytest.mark.needs("pip")
def test_pip():
    pass
"""



@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Replace the table of peers by one for these tests."""
    for name in list(PEERS):
        monkeypatch.delitem(PEERS, name)
    for peer in (HERE, AWAY, MACHINE, PIP):
        monkeypatch.setitem(PEERS, peer.name, peer)
    monkeypatch.setitem(peer_selection.FIXTURES, "starts_away", ("away",))
    for name in ("CI", peer_selection.VARIABLE, peer_selection.DRAWN, "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    pytester.makeini(INI)
    pytester.makepyfile(TESTS)
    return pytester


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*arguments, plugins=[peer_selection])


def summary(result: pytest.RunResult) -> list[str]:
    """Return the lines below the summary's title, with blanks collapsed."""
    lines = [" ".join(line.split()) for line in result.outlines]
    begin = next((place for place, line in enumerate(lines) if "tests left out" in line), len(lines))
    return [line for line in lines[begin + 1 :] if line and not line.startswith("=")]


def test_found_leaves_out_what_is_missing(pytester: pytest.Pytester) -> None:
    result = run(pytester)
    result.assert_outcomes(passed=5, deselected=5)
    assert summary(result) == [
        "away 3 test functions not installed",
        "machine 1 test functions not installed",
        "To install what is missing: make peers",
    ]


def test_none_leaves_out_what_is_installed_too_but_not_what_pip_brings(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVERET_PEERS", "none")
    result = run(pytester)
    result.assert_outcomes(passed=4, deselected=6)
    assert summary(result) == [
        "away 3 test functions not installed",
        "here 2 test functions installed",
        "machine 1 test functions not installed",
        "To install what is missing: make peers",
        "To run them: make test-all",
    ]


@pytest.mark.parametrize(("name", "value"), [("LEVERET_PEERS", "all"), ("CI", "true")])
def test_all_refuses_to_run_without_what_could_be_installed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("LEVERET_PEERS", "none")
    monkeypatch.setenv(name, value)
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("*these peers are missing: away. To install them: make peers")
    monkeypatch.delitem(PEERS, "away")
    monkeypatch.setitem(PEERS, "away", Peer("away", "", packages=("a",)))
    result = run(pytester, "-k", "machine or here")
    result.assert_outcomes(passed=1, deselected=9)
    assert summary(result) == ["machine 1 test functions not installed"]


def test_only_what_was_selected_is_named(pytester: pytest.Pytester) -> None:
    assert summary(run(pytester, "-k", "without")) == []
    assert summary(run(pytester, "-k", "parameter"))[0] == "away 1 test functions not installed"


def test_workers_leave_out_and_the_controller_says_it_once(pytester: pytest.Pytester) -> None:
    # workers are separate processes with the real table of peers
    pytester.makepyfile("""
        import pytest
        @pytest.mark.needs("rabbitmq")
        def test_rabbitmq(): raise AssertionError
        @pytest.mark.needs("chromium")
        @pytest.mark.parametrize("number", range(3))
        def test_chromium(number): raise AssertionError
        def test_without(): pass
    """)
    environment = os.environ | {"LEVERET_PEERS": "none", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-m", "pytest", "-p", "tests.peer_selection", "-n", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    lines = [" ".join(line.split()[:4]) for line in done.stdout.splitlines() if "test functions" in line]
    assert lines == ["chromium 1 test functions", "rabbitmq 1 test functions"]


def test_a_value_and_a_peer_that_nobody_knows(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVERET_PEERS", "some")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("*LEVERET_PEERS is none, found or all, not 'some'")
    monkeypatch.delenv("LEVERET_PEERS")
    pytester.makepyfile('import pytest\n@pytest.mark.needs("nobody")\ndef test(): pass')
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("*test needs nobody: tests/peers.py does not have that")


def test_what_a_test_does_not_say_it_needs_is_not_there(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = pytester.path / "usr" / "tool"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho worked\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setitem(PEERS, "tool", Peer("tool", "", ("tool",), ("tool",)))
    monkeypatch.setitem(peer_selection.FIXTURES, "starts_tool", ("tool",))
    pytester.makepyfile("""
        import subprocess, sys
        import pytest

        def said(*command):
            return subprocess.run(command, check=True, capture_output=True).stdout

        @pytest.fixture
        def starts_tool():
            return said("tool")

        @pytest.mark.needs("tool")
        def test_says_so(): assert said("tool") == b"worked\\n"

        def test_says_so_by_a_fixture(starts_tool): assert starts_tool == b"worked\\n"

        def test_ours(): assert said(sys.executable, "-c", "print(1)") == b"1\\n"

        def test_says_nothing():
            with pytest.raises(FileNotFoundError, match="needs\\\\('tool'\\\\) is missing"):
                said("tool")

        def test_asks_for_the_fixture(request):
            with pytest.raises(AssertionError, match="starts_tool is used"):
                request.getfixturevalue("starts_tool")

        def test_of_the_system():
            with pytest.raises(FileNotFoundError, match="neither on every machine nor in tests/peers.py"):
                said("/usr/bin/dpkg")
    """)
    if not Path("/usr/bin/dpkg").exists():
        monkeypatch.setattr(peer_selection.shutil, "which", lambda program: program)
    run(pytester).assert_outcomes(passed=6)


def test_the_table_and_the_packages_are_printed_by_a_python_without_packages(tmp_path: Path) -> None:
    empty = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-I", "-S", str(ROOT / "tests" / "peers.py")]
    told = subprocess.run(command, env=empty, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[0] for line in told[:-1]] == list(PEERS)
    assert "chromium    not installed" in told[list(PEERS).index("chromium")]
    assert told[-1] == "To install what is missing: make peers"
    packages = subprocess.run([*command, "packages"], env=empty, capture_output=True, text=True, check=True).stdout
    assert {"chromium", "gcc", "libc6-dev", "strace"} <= set(packages.split())


def test_alternatives_and_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    peer = Peer("server", "", ("tool", f"absent|{tmp_path}/*/bin/server"))
    assert not peer.is_here
    (tmp_path / "tool").touch(0o755)
    assert not peer.is_here
    (tmp_path / "15" / "bin").mkdir(parents=True)
    (tmp_path / "15" / "bin" / "server").touch()
    assert peer.is_here
    assert peer.programs == {"tool", "absent", "server"}
    assert peers.missing([peer, AWAY, MACHINE]) == [AWAY]


def test_a_commit_draws_half_of_the_tests_that_take_long_and_always_the_same_ones() -> None:
    items = [SimpleNamespace(nodeid=f"tests/test_x.py::test_{number}") for number in range(200)]

    def drawn(commit: str, peer: str = "minutes") -> list[bool]:
        return [PeerSelection(ALL, commit)._is_drawn(PEERS[peer], cast(pytest.Item, item)) for item in items]

    assert 70 < sum(drawn("a")) < 130
    assert drawn("a") == drawn("a") != drawn("b")
    assert all(drawn("")), "make test-all runs all of them"
    assert all(drawn("a", "rabbitmq"))
