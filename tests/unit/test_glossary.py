"""No name in the source or heading in the docs uses a word that docs/internals/glossary.md has retired."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import leveret

PACKAGE = Path(leveret.__file__).parent
DOCS = Path(__file__).parents[2] / "docs"
INTERFACES = {
    ("admin/paths/delayed.py", "parked"),
    ("cli/doctor/checks/delays.py", "parked"),
    ("cli/store.py", "parked"),
    ("control/delayed.py", "parked"),
}
"""Names that are fields of the HTTP API, of commands, or of `leveret store dump`."""


def retired() -> set[str]:
    section = (DOCS / "internals" / "glossary.md").read_text().partition("## Retired words\n")[2]
    rows = re.findall(r"^\| (.+?) \|", section, re.MULTILINE)[1:]
    words = {word for row in rows for word in row.split(", ")}
    assert len(words) > 15
    return words | {f"{word}s" for word in words}


def parts_of(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def names_in(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_no_name_in_the_source_uses_a_retired_word() -> None:
    words = retired()
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        names = [*place.with_suffix("").parts, *names_in(path.read_text())]
        found |= {(place.as_posix(), name) for name in names if parts_of(name) & words}
    assert found == INTERFACES


def test_a_class_name_stands_for_one_class_unless_the_glossary_says_more() -> None:
    page = (DOCS / "internals" / "glossary.md").read_text()
    section = page.partition("## Classes of the same name\n")[2].partition("\n## ")[0]
    allowed = set(re.findall(r"`([A-Z]\w+)`", section))
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if PACKAGE / "control" / "commands" not in path.parents:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(path.relative_to(PACKAGE).as_posix())
    recurring = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in recurring.items() if name not in allowed} == {}
    assert allowed == set(recurring), "the glossary allows only what is there"


def test_no_heading_of_the_docs_uses_a_retired_word() -> None:
    words = retired()
    headings = {
        f"{path.name}: {heading}"
        for path in DOCS.rglob("*.md")
        for heading in re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
        if set(re.findall(r"\w+", heading.lower())) & words
    }
    assert headings == set()
