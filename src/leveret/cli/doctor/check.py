"""A check, what it hits, and what comes of making them all."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from leveret.cli.doctor.observation import Observation


class Severity(IntEnum):
    """HINT: could be better; WARNING: will hurt under load or after a failure; ERROR: wrong now, or loses messages."""

    HINT = 1
    WARNING = 2
    ERROR = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Hit:
    """One object that a check found fault with. evidence: what was seen, with numbers; names: stand in the remedy for
    NAME, VHOST and the like; severity: where it is not the check's; weight: the heaviest hits of a check are told
    first."""

    object: str
    evidence: str
    names: dict[str, str] = field(default_factory=dict)
    severity: Severity | None = None
    weight: float = 0.0


@dataclass(frozen=True)
class Check:
    """id: for --only and --ignore; title: what is wrong; why: what comes of it; remedy: a command or code, in which
    words in capitals stand for names and `ctl` for the command that administers the broker; find: the check itself,
    over what was seen; needs: parts without which it can't be made; is_watching: whether it needs two looks."""

    id: str
    severity: Severity
    title: str
    why: str
    remedy: str
    find: Callable[[Observation], Iterable[Hit]]
    needs: tuple[str, ...]
    is_watching: bool = False


@dataclass(frozen=True)
class Finding:
    """All that one check found, at one severity."""

    check: Check
    severity: Severity
    hits: tuple[Hit, ...]

    def remedy(self, program: str) -> str:
        """What to do about the first of them. program: what administers the broker."""
        text = self.check.remedy.replace("`ctl ", f"`{program} ")
        for word, name in self.hits[0].names.items():
            in_shell = re.escape(name).replace("'", r"'\''")
            for pattern, said in (
                (rf"\^{word}\$", f"^{in_shell}$"),  # in a policy, within quotes
                (rf"'{word}'", repr(name)),  # in Python
                (rf"(?<![\w-]){word}(?![\w-])", shlex.quote(name)),
            ):
                text = re.sub(pattern, lambda _, said=said: said, text)  # type: ignore[misc]
        return text


@dataclass(frozen=True)
class Diagnosis:
    """findings: the worst first; unmade: why checks were not made, by id; made: how many were."""

    findings: tuple[Finding, ...]
    unmade: dict[str, str]
    made: int

    @property
    def worst(self) -> int:
        """The highest severity; 0 if nothing was found."""
        return max((finding.severity for finding in self.findings), default=0)


def diagnose(observation: Observation, checks: Iterable[Check]) -> Diagnosis:
    """Make the checks that can be made."""
    found: list[Finding] = []
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
            Finding(check, severity, tuple(sorted(some, key=lambda hit: -hit.weight)))
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
