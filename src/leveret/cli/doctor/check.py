"""Checks, their findings, and the diagnosis of a broker."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from leveret.cli.doctor.observation import Observation


class Severity(IntEnum):
    """The severity of a finding.

    HINT: could be better; WARNING: hurts under load or after a failure; ERROR: wrong now, or loses messages.
    """

    HINT = 1
    WARNING = 2
    ERROR = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Hit:
    """One object with a problem.

    Attributes:
        evidence: what was observed, with numbers.
        names: values for NAME, VHOST etc. in the remedy.
        severity: None for the check's severity.
        weight: hits with the highest weight are shown first.
    """

    object: str
    evidence: str
    names: dict[str, str] = field(default_factory=dict)
    severity: Severity | None = None
    weight: float = 0.0


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        id: for --only and --ignore.
        title: the problem.
        why: its consequences.
        remedy: a command or code; capitalised words are placeholders, and `ctl` is the broker's administration command.
        find: examines an observation.
        needs: the parts of the observation that the check requires.
        is_watching: whether it needs two samples.
    """

    id: str
    severity: Severity
    title: str
    why: str
    remedy: str
    find: Callable[[Observation], Iterable[Hit]]
    needs: tuple[str, ...]
    is_watching: bool = False


@dataclass(frozen=True)
class DoctorFinding:
    """All hits of one check with the same severity."""

    check: Check
    severity: Severity
    hits: tuple[Hit, ...]

    def remedy(self, program: str) -> str:
        """Return the remedy for the first hit; `program` is the broker's administration command."""
        text = self.check.remedy.replace("`ctl ", f"`{program} ")
        for word, name in self.hits[0].names.items():
            in_shell = re.escape(name).replace("'", r"'\''")
            for pattern, said in (
                (rf"\^{word}\$", f"^{in_shell}$"),  # in a policy, within quotes
                (rf"'{word}'", repr(name)),  # in Python code
                (rf"(?<![\w-]){word}(?![\w-])", shlex.quote(name)),
            ):
                text = re.sub(pattern, lambda _, said=said: said, text)  # type: ignore[misc]
        return text


@dataclass(frozen=True)
class Diagnosis:
    """The result of all checks.

    Attributes:
        findings: the most severe first.
        unmade: the reasons why checks were skipped, by id.
        made: the number of checks made.
    """

    findings: tuple[DoctorFinding, ...]
    unmade: dict[str, str]
    made: int

    @property
    def worst(self) -> int:
        """The highest severity; 0 without findings."""
        return max((finding.severity for finding in self.findings), default=0)


def diagnose(observation: Observation, checks: Iterable[Check]) -> Diagnosis:
    """Run all checks for which the observation suffices."""
    found: list[DoctorFinding] = []
    unmade: dict[str, str] = {}
    made = 0
    for check in checks:
        reason = _obstacle(check, observation)
        if reason:
            unmade[check.id] = reason
            continue
        made += 1
        hits: dict[Severity, list[Hit]] = {}
        for hit in check.find(observation):
            hits.setdefault(hit.severity or check.severity, []).append(hit)
        found += [
            DoctorFinding(check, severity, tuple(sorted(some, key=lambda hit: -hit.weight)))
            for severity, some in hits.items()
        ]
    found.sort(key=lambda finding: -finding.severity)
    return Diagnosis(tuple(found), unmade, made)


def _obstacle(check: Check, observation: Observation) -> str:
    missing = [observation.now.missing[part] for part in check.needs if part in observation.now.missing]
    if missing:
        return missing[0]
    if check.is_watching and observation.before is None:
        return "needs two samples: run without --once"
    return ""
