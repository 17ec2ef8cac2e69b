"""A suite's run beside its baseline."""

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
    """What a run said.

    Attributes:
        suite: the suite's name.
        version: and its version.
        kind: the broker.
        tests: how many the baseline has.
        expected: how many of them pass on RabbitMQ.
        passed: how many passed in this run.
        skipped: how many the suite itself skipped.
        left_out: how many did not run, by the reason.
        excused: tests that an exception lets fail, and did, with what was wrong.
        problems: tests that should have done otherwise, with what was wrong.
        attempts: what became of each test, first of all of them, then of those that were tried again.
        again: tests that passed at the second attempt only: these suites measure times.
        seconds: how long it took.
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
        """Runs; with `tries_again` it runs anew what failed and should not have. Raises as Run.verdicts."""
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
        """Where the outcome of the last whole run is kept."""
        return kept(self.suite, self.version, self.kind)

    def keep(self) -> None:
        """Keeps it for `last`."""
        self.place.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def last(cls, suite: str, version: str, kind: str) -> Self | None:
        """What `keep` kept; None if that was nothing, or done by another version of this tool."""
        try:
            return cls(**json.loads(kept(suite, version, kind).read_text()))
        except (FileNotFoundError, TypeError):
            return None


def kept(suite: str, version: str, kind: str) -> Path:
    return CACHE / f"{suite}-{version}" / f"outcome-{kind}.json"
