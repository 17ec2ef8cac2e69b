"""The outcomes as tables: on the terminal, and in docs/reference/conformance.md."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from .baseline import Baseline
from .outcome import Outcome
from .suite import Suite

__all__ = ["DOCUMENT", "document", "lines", "table"]

EXCUSED: Final = {"failed": "fails on RabbitMQ, too", "flaky": "passes on RabbitMQ only at times"}
DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"
HEAD: Final = """\
# Clients' own test suites

`make conformance` fetches these clients' source packages from their registries and runs the tests in them, unpatched,
against a fresh leveret. `tests/suites/baselines/` has the result of each test on RabbitMQ 3.10.8. A test that passes
there must pass here; otherwise the run fails with a list.

"""
FOOT: Final = """
The tool replaces one thing: aio-pika's tests stop, kill and start their broker with a container engine; here they
control the broker's process instead.

A failed test is repeated once on a fresh broker, because these suites depend on timing; "again" counts tests that
passed only then. `python -m tests.suites --broker rabbitmq` runs the same against a private RabbitMQ with TLS and the
management plugin, and `--update` adds the results to the baseline. `make test` contains the suites marked with a star,
in part or whole, without repetition.

The tool writes this page from the last complete run of each suite.
"""


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the lines of a Markdown table, one for each suite."""
    columns = ["suite", "tests", "not run", "ran", "pass on RabbitMQ", "pass here", "skipped", "again", "exceptions"]
    yield "| " + " | ".join(columns) + " |"
    yield "|---" * len(columns) + "|"
    fast = {suite.name for suite in Suite.load() if suite.fast}
    for one in outcomes:
        star = " *" if one.suite in fast else ""
        absent = sum(one.left_out.values())
        counts = [one.tests, absent, one.tests - absent, one.expected, one.passed, one.skipped, len(one.again)]
        cells = [f"{one.suite} {one.version}{star}", *map(str, counts), str(len(one.excused))]
        yield "| " + " | ".join(cells) + " |"


def reasons(outcome: Outcome, suite: Suite) -> Iterator[str]:
    """Yield why some tests of a suite did not run, or may fail."""
    for reason, count in outcome.left_out.items():
        yield f"- {suite.name}: {count} not run: {reason}."
    tests = Baseline.load(suite).tests
    for verdict, words in EXCUSED.items():
        if names := [test for test, found in tests.items() if found == verdict]:
            yield f"- {suite.name}: {words}: {', '.join(map(code, names))}."
    for rule in suite.exceptions:
        yield f"- {suite.name}: {rule.reason}: {', '.join(map(code, rule.tests))}."


def code(text: str) -> str:
    """Return the text as Markdown code."""
    return f"`{text}`"


def lines(outcome: Outcome) -> Iterator[str]:
    """Yield what went wrong, one line for each test."""
    for test, problem in outcome.problems.items():
        yield f"{outcome.suite}: {test} {problem}"


def document(outcomes: Sequence[Outcome]) -> str:
    """Return the text of docs/reference/conformance.md."""
    suites = {suite.name: suite for suite in Suite.load()}
    apart = [line for outcome in outcomes for line in reasons(outcome, suites[outcome.suite])]
    return HEAD + "\n".join([*table(outcomes), "", *apart]) + "\n" + FOOT
