"""One client's test suite: an entry of suites.toml."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

__all__ = ["Rule", "Suite", "matches"]

TABLE = Path(__file__).with_name("suites.toml")


def matches(pattern: str, test: str) -> bool:
    """Whether a test's name matches a pattern, in which only ``*`` is special."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), test) is not None


@dataclass(frozen=True)
class Rule:
    """Tests with special treatment, and the reason.

    Attributes:
        tests: Patterns, see `matches`.
        reason: What docs/reference/conformance.md says about them.
        needs: "tls" or "http": the rule holds only for brokers that do not offer it. Empty: it holds for all.
    """

    tests: Sequence[str]
    reason: str
    needs: str = ""

    def names(self, test: str) -> bool:
        """Whether the rule is about this test."""
        return any(matches(pattern, test) for pattern in self.tests)


@dataclass(frozen=True)
class Suite:
    """How to run a client's tests.

    Attributes:
        name: The package, which is also the name of its baseline file.
        version: The package's version; the baseline holds for no other.
        registry: "pypi" or "npm".
        paths: Files and directories with tests, relative to the unpacked package.
        packages: What pip installs besides the client.
        arguments: More arguments of pytest.
        environment: Variables; ``{port}``, ``{tls_port}``, ``{http_port}``, ``{certificates}`` and the port of each
            service, ``{redis_port}``, are filled in.
        certificates: Where in the package its TLS tests look for certificates, if the package lacks that directory.
        services: Servers that run beside the broker: "redis".
        test_timeout_s: Limit for one test. A missing feature often shows as a client that waits forever.
        timeout_s: Limit for the whole suite.
        deselected: Rules for tests that do not run.
        exceptions: Rules for tests that may fail on leveret.
        fast: Patterns of the tests that are part of ``make test``; none if empty.
    """

    name: str
    version: str
    registry: str
    paths: Sequence[str]
    packages: Sequence[str] = ()
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    certificates: str = ""
    services: Sequence[str] = ()
    test_timeout_s: int = 60
    timeout_s: int = 1800
    deselected: Sequence[Rule] = ()
    exceptions: Sequence[Rule] = ()
    fast: Sequence[str] = ()

    @classmethod
    def load(cls, table: Path = TABLE) -> list[Self]:
        """Load all suites, in the order of the table; raise TypeError for an unknown key."""
        entries = tomllib.loads(table.read_text())["suite"]
        for entry in entries:
            for rules in ("deselected", "exceptions"):
                entry[rules] = [Rule(**rule) for rule in entry.get(rules, ())]
        return [cls(**entry) for entry in entries]

    def left_out(self, offers: Iterable[str]) -> list[Rule]:
        """Return the rules for tests that do not run on a broker which offers this ("tls", "http")."""
        return [rule for rule in self.deselected if not rule.needs or rule.needs not in offers]
