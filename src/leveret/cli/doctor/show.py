"""The output of `leveret doctor`: sections on a terminal, plain lines elsewhere, or JSON."""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from leveret.cli.doctor.check import Diagnosis, DoctorFinding, Severity
from leveret.cli.doctor.checks import SUBJECTS
from leveret.cli.doctor.observation import Observation
from leveret.cli.terminal import counted

STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.HINT: "cyan"}
WIDTH_MAX: Final = 120
INDENT: Final = " " * 4


def show(diagnosis: Diagnosis, seen: Observation, where: str, shown: int) -> None:
    """Print the diagnosis, with the evidence of at most `shown` objects for each finding."""
    console = Console(highlight=False, soft_wrap=True)
    width = min(console.width, WIDTH_MAX) if console.is_terminal else WIDTH_MAX
    console.print(f"{seen.product} {seen.version} at {where}{_sizes(seen)}\n")
    for finding in diagnosis.findings:
        _show_finding(console, finding, _program(seen), width, shown)
    _show_unmade(console, diagnosis, width)
    counts = [_counted(severity, diagnosis) for severity in sorted(Severity, reverse=True)]
    checks = "check was" if diagnosis.made == 1 else "checks were"
    console.print(
        f"{diagnosis.made} {checks} run: {', '.join(counts)}" + ("" if diagnosis.findings else "; no findings")
    )


def as_json(diagnosis: Diagnosis, seen: Observation, where: str) -> str:
    """Return the diagnosis as JSON, with all objects."""
    document: dict[str, Any] = {
        "broker": {"product": seen.product, "version": seen.version, "where": where},
        "checks_made": diagnosis.made,
        "findings": [
            {
                "id": finding.check.id,
                "severity": finding.severity.word,
                "title": finding.check.title,
                "why": finding.check.why,
                "remedy": finding.remedy(_program(seen)),
                "objects": [{"object": hit.object, "evidence": hit.evidence} for hit in finding.hits],
            }
            for finding in diagnosis.findings
        ],
        "not_made": diagnosis.unmade,
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def show_list() -> None:
    """Print all checks by subject."""
    for subject, checks in SUBJECTS.items():
        click.echo(click.style(subject, bold=True))
        for check in checks:
            watching = ", two samples" if check.is_watching else ""
            click.echo(f"  {check.id:30} {check.severity.word:8} {check.title}{watching}")


def _show_finding(console: Console, finding: DoctorFinding, program: str, width: int, shown: int) -> None:
    title = Text.assemble(
        (f"{finding.severity.word:7} ", STYLES[finding.severity]),
        (finding.check.title, "bold"),
        f"  [{finding.check.id}]",
    )
    console.print(title)
    for hit in finding.hits[:shown]:
        console.print(Text(_wrapped(f"- {hit.object}: {hit.evidence}", width, INDENT + "  ")[2:]))
    if len(finding.hits) > shown:
        console.print(f"{INDENT}  and {len(finding.hits) - shown:,} more")
    console.print(Text(_wrapped(f"why: {finding.check.why}", width, INDENT)))
    console.print(Text(_wrapped(f"do:  {finding.remedy(program)}", width, INDENT)), end="\n\n")


def _show_unmade(console: Console, diagnosis: Diagnosis, width: int) -> None:
    reasons: dict[str, list[str]] = defaultdict(list)
    for name, reason in diagnosis.unmade.items():
        reasons[reason].append(name)
    for reason, names in reasons.items():
        console.print(Text(_wrapped(f"skipped: {', '.join(names)}: {reason}", width, "")), style="dim")
    if reasons:
        console.print()


def _wrapped(text: str, width: int, indent: str) -> str:
    """Wrap between words only, so that commands can be copied."""
    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + "     ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _program(seen: Observation) -> str:
    return "leveret ctl" if seen.is_leveret else "rabbitmqctl"


def _counted(severity: Severity, diagnosis: Diagnosis) -> str:
    count = sum(len(finding.hits) for finding in diagnosis.findings if finding.severity is severity)
    return counted(count, severity.word)


def _sizes(seen: Observation) -> str:
    sizes = [f"{len(seen.rows(part)):,} {part}" for part in ("queues", "connections") if part in seen.now.parts]
    span = f"; two samples, {seen.span_s:.1f} s apart" if seen.before else ""
    return (": " + ", ".join(sizes) if sizes else "") + span
