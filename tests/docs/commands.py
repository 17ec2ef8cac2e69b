"""Finds the commands that pages show, in code blocks or indented."""

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
# sentences about leveret itself go on with another word, and a punctuation mark ends the command
TOLD = re.compile(rf"\bleveret ((?:{'|'.join(COMMANDS)})(?: [a-z_-]+| --[a-z-]+)*)")
INLINE = re.compile(r"(?<!`)`(leveret [a-z][^`]*)`(?!`)")
CONNECTIONS = ("spark commit", "spark rpc", "spark sink", "spark stream", "spark stream task")
"""Names of Spark connections; not commands."""
STARTS = ("leveret", ".venv/bin/leveret", "make")
LEAD = re.compile(r"^\$ |^(?:[A-Z_]+=\S+ )+")


@dataclass(frozen=True)
class Shown:
    """A command on a page, as words, without the parts of the line that a shell interprets."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def shown() -> Iterator[Shown]:
    """Yield every command of leveret, or of make, on all pages."""
    for page in PAGES:
        text = page.read_text()
        blocks = FENCED.findall(text) + INDENTED.findall(OTHER.sub("", text))
        for block in blocks:
            for line in block.replace("\\\n", " ").splitlines():
                words = _words(line.strip())
                if words and words[0] in STARTS:
                    yield Shown(str(page.relative_to(ROOT)), tuple(words))


def told() -> Iterator[Shown]:
    """Yield every leveret command that a sentence names: in the program, the page's scripts, the documentation."""
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
    """Join string literals that continue in the next line."""
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
    except ValueError:  # a quotation that continues in the next line
        return []
    return words
