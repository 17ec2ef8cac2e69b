"""The tool that runs the suites: what it reads, compares and demands."""

import fcntl
import os
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest

from leveret.client import BlockingConnection, ConnectionClosed
from leveret.testing.processes import LeveretProcess, ProcessFailed, free_port

from . import installation
from .baseline import Baseline
from .installation import Installation, InstallationFailed, call
from .outcome import Outcome
from .redis import RedisProcess
from .report import lines, table
from .run import Run
from .suite import Rule, Suite, matches
from .switch import switch
from .verdicts import Verdict, from_node, from_pytest

SUITES = Suite.load()
PYTEST_REPORT = """<testsuites><testsuite name="pytest">
<testcase classname="t.test_one" name="test_plain"/>
<testcase classname="t.test_one.Group" name="test_in_class[a.b-1]"><failure message="no"/></testcase>
<testcase classname="t.test_one" name="test_skipped"><skipped message="because"/></testcase>
<testcase classname="t.test_one" name="test_bad_end"/>
<testcase classname="t.test_one" name="test_bad_end"><error message="at teardown"/></testcase>
</testsuite></testsuites>"""
NODE_REPORT = """<testsuites>
<testcase name="alone"/>
<testsuite name="Outer"><testsuite name="inner"><testcase name="fails"><failure type="x"/></testcase></testsuite>
<testcase name="is skipped"><skipped type="skipped"/></testcase></testsuite>
</testsuites>"""


def test_patterns_have_one_special_character() -> None:
    assert matches("t/a.py::*[amqps*", "t/a.py::test_x[amqps-1]")
    assert not matches("t/a.py::*[amqps*", "t/a.py::test_x[amqp-1]")
    assert not matches("t/a.py", "t/abpy")
    assert not matches("t/a.py", "t/a.py::test")


def test_reports_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "test_one.py").touch()
    report = tmp_path / "report.xml"
    report.write_text(PYTEST_REPORT)
    assert from_pytest(report, tmp_path) == {
        "t/test_one.py::test_plain": "passed",
        "t/test_one.py::Group::test_in_class[a.b-1]": "failed",
        "t/test_one.py::test_skipped": "skipped",
        "t/test_one.py::test_bad_end": "failed",
    }


def test_reports_of_node(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(NODE_REPORT)
    assert from_node(report, "test/a.js") == {
        "test/a.js > alone": "passed",
        "test/a.js > Outer > inner > fails": "failed",
        "test/a.js > Outer > is skipped": "skipped",
    }


@pytest.mark.parametrize("content", [None, "<testsuites><testsuite>"], ids=["missing", "cut off"])
def test_a_run_without_a_report_knows_nothing(tmp_path: Path, content: str | None) -> None:
    report = tmp_path / "report.xml"
    if content is not None:
        report.write_text(content)
    assert from_pytest(report, tmp_path) == {} == from_node(report, "a.js")


def test_what_the_baseline_demands() -> None:
    verdicts = {"passes": "passed", "fails": "failed", "skips": "skipped", "wavers": "flaky"}
    baseline = Baseline(SUITES[0], "RabbitMQ", verdicts)
    assert baseline.problem("passes", "passed") is None
    assert baseline.problem("passes", "failed") == "passed, and now: failed"
    assert baseline.problem("passes", "skipped") == "passed, and now: skipped"
    assert baseline.problem("passes", None) == "passed, and now: did not run"
    assert baseline.problem("skips", "skipped") is None
    assert baseline.problem("skips", "failed") == "was skipped, and now: failed"
    assert baseline.problem("fails", None) is None is baseline.problem("wavers", "failed")
    assert baseline.problem("new", "passed") == "is not in the baseline"


def test_the_baseline_learns() -> None:
    baseline = Baseline(SUITES[0], "RabbitMQ", {"a": "passed", "b": "passed", "c": "skipped", "d": "flaky"})
    learnt = baseline.updated({"a": "passed", "b": "failed", "c": "passed", "d": "passed", "e": "failed"})
    assert learnt.tests == {"a": "passed", "b": "flaky", "c": "passed", "d": "flaky", "e": "failed"}


def test_a_baseline_is_kept_as_it_is_committed(tmp_path: Path) -> None:
    for suite in SUITES:
        baseline = Baseline.load(suite)
        baseline.save(tmp_path)
        assert Baseline.load(suite, tmp_path) == baseline


def test_a_baseline_of_another_version_is_refused(tmp_path: Path) -> None:
    suite = SUITES[0]
    Baseline.load(suite).save(tmp_path)
    other = Suite(suite.name, "0.0", suite.registry, suite.paths)
    with pytest.raises(ValueError, match=f"is for version {suite.version}, not 0.0"):
        Baseline.load(other, tmp_path)


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_every_rule_is_about_a_test(suite: Suite) -> None:
    """Except rules for tests that no baseline run may execute."""
    tests = Baseline.load(suite).tests
    patterns = [pattern for rule in suite.deselected if rule.needs for pattern in rule.tests]
    patterns += [*suite.fast, *(pattern for rule in suite.exceptions for pattern in rule.tests)]
    for pattern in patterns:
        assert any(matches(pattern, test) for test in tests), pattern


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_exceptions_are_few(suite: Suite) -> None:
    tests = Baseline.load(suite).tests
    excused = [test for test in tests if any(rule.names(test) for rule in suite.exceptions)]
    assert len(excused) <= len(tests) / 100


def test_rules_end_with_what_they_need() -> None:
    always = Rule(["a"], "never runs")
    later = Rule(["b"], "needs TLS", "tls")
    suite = Suite("one", "1", "pypi", ["t"], deselected=[always, later])
    assert suite.left_out(()) == [always, later]
    assert suite.left_out({"tls"}) == [always]


def test_an_outcome_as_a_table() -> None:
    outcome = Outcome(
        suite="kombu", version="1.2", kind="leveret", tests=51, expected=50, passed=49, skipped=0, attempts=[],
        left_out={"needs TLS": 1}, excused={}, problems={"x": "passed, and now: failed"}, again=["y"], seconds=1.0,
    )  # fmt: skip
    assert list(table([outcome]))[2:] == ["| kombu 1.2 * | 51 | 1 | 50 | 50 | 49 | 0 | 1 | 0 |"]
    assert list(lines(outcome)) == ["kombu: x passed, and now: failed"]


@pytest.mark.parametrize("tries_again", [False, True])
def test_what_fails_is_tried_again_only_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tries_again: bool
) -> None:
    suite = SUITES[0]
    tests = [test for test, verdict in Baseline.load(suite).tests.items() if verdict == "passed"]
    once: list[dict[str, Verdict]] = [dict.fromkeys(tests, "passed") | {tests[0]: "failed"}, {tests[0]: "passed"}]
    monkeypatch.setattr(Run, "verdicts", lambda run: once.pop(0))
    outcome = Outcome.of(Run(suite, "leveret", tests), tries_again)
    problems, again = ({}, tests[:1]) if tries_again else ({tests[0]: "passed, and now: failed"}, [])
    assert (outcome.problems, outcome.again, len(outcome.attempts)) == (problems, again, 1 + tries_again)


def test_a_run_fetches_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installation, "CACHE", tmp_path)
    with pytest.raises(InstallationFailed, match=r"rabbitpy 3\.0\.2 is not installed here; .*--fetch"):
        Run(SUITES[0], "leveret").verdicts()
    assert list(tmp_path.iterdir()) == []


def test_a_suite_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    suite = Suite("one", "1", "npm", ["t"], timeout_s=1)
    place = Installation(tmp_path / "source", tmp_path)
    place.source.mkdir()
    # both processes hold the lock, the sleeping one even after its parent's end
    Run(suite, "leveret").call(["sh", "-c", "exec 9> held; flock 9; sleep 3600 & wait"], os.environ, place)
    assert "ended after 1 s" in (tmp_path / "output.log").read_text()
    with (place.source / "held").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)


def test_what_cannot_be_installed_says_why() -> None:
    with pytest.raises(InstallationFailed, match=r"no-such-program x: .*No such file"):
        call("no-such-program", "x")
    with pytest.raises(InstallationFailed, match=r"does it reach the package registry\?\):\nbecause"):
        call("sh", "-c", "echo because >&2; exit 3")


def test_a_service_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ProcessFailed, match="needs redis-server"), RedisProcess():
        pass


def test_the_switch_keeps_data_and_port() -> None:
    port = free_port()

    def turn(position: str) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{position}", method="POST")
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)

    with LeveretProcess() as server, switch(server, port):
        with BlockingConnection(server.url, reconnect=False) as connection:
            connection.channel().declare_queue("kept", durable=True)
        for down in ("stop", "kill"):
            assert turn(down) == turn(down) == 204
            with pytest.raises(ConnectionClosed):
                BlockingConnection(server.url, reconnect=False)
            assert turn("start") == turn("start") == 204
            with BlockingConnection(server.url, reconnect=False) as connection:
                connection.channel().declare_queue("kept", passive=True)
        with pytest.raises(HTTPError, match="404"):
            turn("restart")
