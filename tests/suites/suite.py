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
    """True if `test` is what `pattern` names; ``*`` stands for anything, all else for itself."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), test) is not None


@dataclass(frozen=True)
class Rule:
    """Tests that are treated apart, and the reason.

    Attributes:
        tests: patterns, see `matches`.
        reason: what docs/reference/conformance.md says about them.
        needs: "tls" or "http": where the broker offers that, the rule does not hold. Empty: it holds everywhere.
    """

    tests: Sequence[str]
    reason: str
    needs: str = ""

    def names(self, test: str) -> bool:
        """True if the rule is about this test."""
        return any(matches(pattern, test) for pattern in self.tests)


@dataclass(frozen=True)
class Suite:
    """What must be known to run a client's tests.

    Attributes:
        name: the package, which is also the name of its baseline file.
        version: the package's version; the baseline holds for no other.
        registry: "pypi" or "npm".
        paths: files and directories with tests, relative to the unpacked package.
        packages: what pip installs besides the client.
        arguments: more arguments of pytest.
        environment: variables; ``{port}``, ``{tls_port}``, ``{http_port}``, ``{certificates}`` and the port of each
            service, ``{redis_port}``, are filled in.
        certificates: where in the package its TLS tests look for certificates, if the package lacks that directory.
        services: servers that run beside the broker: "redis".
        test_timeout_s: how long one test may take. A missing feature often shows as a client that waits for ever.
        timeout_s: how long the whole suite may take.
        deselected: rules for tests that do not run.
        exceptions: rules for tests that may fail on leveret.
        fast: patterns of the tests that are part of ``make test``; none if empty.
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
        """All suites, in the order of the table. Raises TypeError for a key that means nothing."""
        entries = tomllib.loads(table.read_text())["suite"]
        for entry in entries:
            for rules in ("deselected", "exceptions"):
                entry[rules] = [Rule(**rule) for rule in entry.get(rules, ())]
        return [cls(**entry) for entry in entries]

    def left_out(self, offers: Iterable[str]) -> list[Rule]:
        """The rules for tests that do not run on a broker that offers this ("tls", "http")."""
        return [rule for rule in self.deselected if not rule.needs or rule.needs not in offers]
