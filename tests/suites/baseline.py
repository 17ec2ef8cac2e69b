"""Baselines: how each test of a suite ended on RabbitMQ, and what leveret must do therefore."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from .suite import Suite
from .verdicts import Verdict

__all__ = ["Baseline"]

DIRECTORY: Final = Path(__file__).with_name("baselines")


@dataclass(frozen=True)
class Baseline:
    """The committed verdicts of a suite.

    Attributes:
        suite: The suite, with its rules.
        broker: The broker and its version.
        tests: Test -> "passed", "failed", "skipped", or "flaky" for one that both passed and failed.
    """

    suite: Suite
    broker: str
    tests: Mapping[str, str]

    @classmethod
    def load(cls, suite: Suite, directory: Path = DIRECTORY) -> Self:
        """Load the baseline of a suite; raise ValueError if it is for another version of the suite."""
        content = json.loads((directory / f"{suite.name}.json").read_text())
        if content["version"] != suite.version:
            raise ValueError(f"the baseline of {suite.name} is for version {content['version']}, not {suite.version}")
        return cls(suite, content["broker"], content["tests"])

    def save(self, directory: Path = DIRECTORY) -> None:
        """Write the baseline, one test a line."""
        content = {"suite": self.suite.name, "version": self.suite.version, "broker": self.broker}
        content["tests"] = dict(sorted(self.tests.items()))  # type: ignore[assignment]
        (directory / f"{self.suite.name}.json").write_text(json.dumps(content, indent=0, ensure_ascii=False) + "\n")

    def updated(self, found: Mapping[str, Verdict]) -> Self:
        """Return the baseline after another run on the same broker: a test that both passed and failed is flaky."""
        tests = dict(self.tests)
        for test, verdict in found.items():
            before = tests.get(test, verdict)
            tests[test] = verdict if before == verdict else "flaky" if "skipped" not in (before, verdict) else verdict
        return type(self)(self.suite, self.broker, tests)

    def count(self, verdict: str) -> int:
        """Return how many tests have this verdict."""
        return Counter(self.tests.values())[verdict]

    def problem(self, test: str, found: Verdict | None) -> str | None:
        """Return what is wrong with a verdict (None: the test did not run), or None if it is as it should be.

        A test that passes on RabbitMQ must pass; one that is skipped there must not fail; one that fails there,
        sometimes or always, may do anything.
        """
        before = self.tests.get(test)
        if before is None:
            return "is not in the baseline"
        if before == "passed" and found != "passed":
            return f"passed, and now: {found or 'did not run'}"
        if before == "skipped" and found not in ("skipped", "passed"):
            return f"was skipped, and now: {found or 'did not run'}"
        return None
