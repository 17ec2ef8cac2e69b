"""Writes the lists of commands in docs/reference/ctl.md: ctl_table.py [--check]. With --check it reports whether they
are up to date, and changes nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from leveret.cli.ctl.parse import usage
from leveret.cli.ctl.spec import Spec
from leveret.cli.ctl.tables import CTL, DIAGNOSTICS, diagnostics

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "ctl.md"
SECTION = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def section(specs: Mapping[str, Spec], program: str) -> str:
    """Return the supported commands by subject, and then the others with the reason."""
    theirs = [spec for spec in specs.values() if not spec.is_ours]
    absent = [spec for spec in theirs if spec.absent]
    lines = [f"{len(theirs) - len(absent)} of {len(theirs)} commands of `{program}` do something here.", ""]
    groups: dict[str, list[Spec]] = {}
    for spec in specs.values():
        if not spec.absent:
            groups.setdefault(spec.group, []).append(spec)
    for group, members in groups.items():
        lines += [f"**{group}**", "", "| command | |", "|---|---|"]
        for spec in members:
            call = usage(spec, program).split("] ", 2)[2].replace("|", "\\|")
            lines.append(f"| `{call}` | {spec.help}{' (leveret only)' if spec.is_ours else ''} |")
        lines.append("")
    lines += ["**Not here**", "", "| command | why |", "|---|---|"]
    lines += [f"| `{spec.name}` | {spec.absent} |" for spec in absent]
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    own = {spec.name: spec for spec in diagnostics.SPECS}
    sections = {"ctl": section(CTL, "rabbitmqctl"), "diagnostics": section(own, "rabbitmq-diagnostics")}
    shared = len(DIAGNOSTICS) - len(own)
    sections["diagnostics"] = f"{shared} commands are rabbitmqctl's. Besides them:\n\n" + sections["diagnostics"]
    return SECTION.sub(lambda found: found[1] + sections[found[2]] + found[3], page)


if __name__ == "__main__":
    before = PAGE.read_text()
    after = written(before)
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if before == after else f"{PAGE} is not what tools/ctl_table.py writes")
    PAGE.write_text(after)
