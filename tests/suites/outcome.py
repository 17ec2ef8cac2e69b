"""The result of a suite's run, compared with its baseline."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from .baseline import Baseline
from .broker import LEVERET
from .installation import CACHE
from .run import Run
from .verdicts import Verdict

__all__ = ["Outcome"]


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        suite: The suite's name.
        version: The suite's version.
        kind: The broker.
        tests: How many tests the baseline has.
        expected: How many of them pass on RabbitMQ.
        passed: How many passed in this run.
        skipped: How many the suite itself skipped.
        left_out: Reason -> how many did not run.
        excused: Tests that failed as an exception allows, with what was wrong.
        problems: Tests that ended in a way they should not, with what was wrong.
        attempts: The verdicts of all tests, then of those that were tried again.
        again: Tests that passed only at the second attempt: these suites measure times.
        seconds: How long the run took.
    """

    suite: str
    version: str
    kind: str
    tests: int
    expected: int
    passed: int
    skipped: int
    left_out: Mapping[str, int]
    excused: Mapping[str, str]
    problems: Mapping[str, str]
    attempts: Sequence[Mapping[str, Verdict]]
    again: Sequence[str]
    seconds: float

    @classmethod
    def of(cls, run: Run, tries_again: bool) -> Self:
        """Run; with `tries_again`, repeat tests that failed and should not have. Raises the errors of Run.verdicts."""
        began = time.monotonic()
        suite, baseline = run.suite, Baseline.load(run.suite)
        rules = suite.left_out(run.offers)
        left_out = Counter[str]()
        asked: list[str] = []
        for test in filter(run.wants, baseline.tests):
            rule = next((rule for rule in rules if rule.names(test)), None)
            if rule is None:
                asked.append(test)
            else:
                left_out[rule.reason] += 1
        found = run.verdicts()
        attempts = [found]
        again = [test for test in asked if tries_again and baseline.problem(test, found.get(test)) is not None]
        if again:
            attempts.append(Run(suite, run.kind, again).verdicts())
            found = found | attempts[1]
        problems: dict[str, str] = {}
        excused: dict[str, str] = {}
        for test in sorted({*asked, *found}):
            if (problem := baseline.problem(test, found.get(test))) is not None:
                excuse = run.kind == LEVERET and any(rule.names(test) for rule in suite.exceptions)
                (excused if excuse else problems)[test] = problem
        verdicts = Counter(found.values())
        return cls(
            suite=suite.name,
            version=suite.version,
            kind=run.kind,
            tests=len(asked) + left_out.total(),
            expected=sum(baseline.tests[test] == "passed" for test in asked),
            passed=verdicts["passed"],
            skipped=verdicts["skipped"],
            left_out=dict(left_out),
            excused=excused,
            problems=problems,
            attempts=attempts,
            again=[test for test in again if test not in problems and test not in excused],
            seconds=time.monotonic() - began,
        )

    @property
    def place(self) -> Path:
        """The file of the outcome of the last complete run."""
        return kept(self.suite, self.version, self.kind)

    def keep(self) -> None:
        """Save the outcome for `last`."""
        self.place.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def last(cls, suite: str, version: str, kind: str) -> Self | None:
        """Return the outcome that `keep` saved; None if there is none, or it is of another version of this tool."""
        try:
            return cls(**json.loads(kept(suite, version, kind).read_text()))
        except (FileNotFoundError, TypeError):
            return None


def kept(suite: str, version: str, kind: str) -> Path:
    return CACHE / f"{suite}-{version}" / f"outcome-{kind}.json"
