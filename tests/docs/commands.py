"""The commands that pages show, wherever they show them: in blocks, or indented."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from leveret.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCED = re.compile(r"^ *```(?:sh|bash|console)[^\n]*\n(.*?)^ *```$", re.M | re.S)
OTHER = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
INDENTED = re.compile(r"(?:^(?:    |\t).*\n)+", re.M)
SOURCES = ROOT / "src" / "leveret"
# what a sentence says of leveret itself begins with another word, and ends the command with a mark
TOLD = re.compile(rf"\bleveret ((?:{'|'.join(COMMANDS)})(?: [a-z_-]+| --[a-z-]+)*)")
INLINE = re.compile(r"(?<!`)`(leveret [a-z][^`]*)`(?!`)")
CONNECTIONS = ("spark commit", "spark rpc", "spark sink", "spark stream", "spark stream task")
"""How Spark's connections are called; no commands."""
STARTS = ("leveret", ".venv/bin/leveret", "make")
LEAD = re.compile(r"^\$ |^(?:[A-Z_]+=\S+ )+")


@dataclass(frozen=True)
class Shown:
    """A command on a page, as words without what a shell makes of the rest of the line."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def shown() -> Iterator[Shown]:
    """Every command of leveret's, or of make, on all pages."""
    for page in PAGES:
        text = page.read_text()
        blocks = FENCED.findall(text) + INDENTED.findall(OTHER.sub("", text))
        for block in blocks:
            for line in block.replace("\\\n", " ").splitlines():
                words = _words(line.strip())
                if words and words[0] in STARTS:
                    yield Shown(str(page.relative_to(ROOT)), tuple(words))


def told() -> Iterator[Shown]:
    """Every command of leveret's that a sentence names: of the program, of the page's scripts, of the documentation."""
    for file in sorted(path for path in SOURCES.rglob("*") if path.suffix in (".py", ".js")):
        for text in TOLD.findall(_together(file.read_text())):
            if text not in CONNECTIONS:
                yield Shown(str(file.relative_to(ROOT)), ("leveret", *text.split()))
    for page in PAGES:
        for text in INLINE.findall(page.read_text()):
            words = _words(" ".join(text.split()))
            if words:
                yield Shown(str(page.relative_to(ROOT)), tuple(words))


def _together(text: str) -> str:
    """Texts that go on in the next line, as one."""
    return re.sub(r'"\s*\n\s*f?"', "", text)


def _words(line: str) -> list[str]:
    line = LEAD.sub("", line)
    reader = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    reader.whitespace_split = True
    words: list[str] = []
    try:
        for word in reader:
            if word and word[0] in "|&;<>":
                break
            words.append(word)
    except ValueError:  # a quotation that goes on in the next line
        return []
    return words
