"""Writes the table of checks in docs/reference/doctor.md: doctor_table.py [--check]. With --check it reports whether it
is up to date, and changes nothing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from leveret.cli.doctor.checks import CHECKS, SUBJECTS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "doctor.md"
SECTION = re.compile(r"(<!-- checks -->\n).*?(<!-- end -->)", re.DOTALL)


def section() -> str:
    """Return all checks by subject: what, why, and what to do."""
    lines = [f"{len(CHECKS)} checks.", ""]
    for subject, checks in SUBJECTS.items():
        lines += [f"### {subject}", "", "| id | finds | why | what to do |", "|---|---|---|---|"]
        for check in checks:
            looks = " (two looks)" if check.is_watching else ""
            cells = (f"`{check.id}` {check.severity.word}{looks}", check.title, check.why, _remedy(check.remedy))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _remedy(text: str) -> str:
    return text.replace("`ctl ", "`leveret ctl ")


def written(page: str) -> str:
    return SECTION.sub(lambda found: found[1] + section() + found[2], page)


if __name__ == "__main__":
    before = PAGE.read_text()
    after = written(before)
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if before == after else f"{PAGE} is not what tools/doctor_table.py writes")
    PAGE.write_text(after)
