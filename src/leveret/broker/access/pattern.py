"""Patterns of names in permissions: Erlang's regular expressions (PCRE), as far as Python supports them.

They are matched against the octets of a name, as in RabbitMQ: "." is one octet of UTF-8. PCRE's own syntax is
translated; a pattern that Python does not support is refused when it is set, and matches nothing if it comes from a
definitions file. A pattern that could take Python's matcher long is matched by automaton.py, or refused. Python's
classes \\w and \\d are ASCII only, while Erlang's \\w includes the letters of Latin-1.
"""

from __future__ import annotations

import re
import warnings
from typing import Final

from leveret.broker.access.automaton import Automaton, TooHard, is_quick

TEXT_MAX: Final = 4096

# POSIX classes inside of brackets
_CLASSES: Final = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": "\\x00-\\x7f", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": "\\s",
    "upper": "A-Z", "word": "\\w", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_ESCAPES: Final = {"\\z": "\\Z", "\\Z": "(?=\\n?\\Z)", "\\e": "\\x1b"}
_TOKEN: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[:(\^?)([a-z]+):\]|\(\?<(?![=!])", re.DOTALL)


class Pattern:
    """A compiled pattern. It matches anywhere in a name; the empty pattern matches the empty name only."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_any = text == ".*"  # it matches every name
        self._pattern: re.Pattern[bytes] | None = None
        self._automaton: Automaton | None = None
        if not self.is_any and not refused_pattern(text):
            self._pattern, self._automaton = _compiled(text or "^$")

    def matches(self, name: str) -> bool:
        if self.is_any:
            return True
        octets = name.encode("utf-8", "surrogateescape")
        if self._automaton is not None:
            return self._automaton.search(octets)
        return self._pattern is not None and self._pattern.search(octets) is not None


def refused_pattern(text: str) -> str:
    """Return what is wrong with a pattern, "" if it is valid."""
    try:
        _compiled(text)
    except TooHard as hard:
        return f"it may take too long to match, and {hard}"
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return ""


def _compiled(text: str) -> tuple[re.Pattern[bytes] | None, Automaton | None]:
    """Return Python's matcher if it is quick for this pattern, else an automaton."""
    if len(text) > TEXT_MAX:
        raise TooHard("it is too long")
    pattern = _translated(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about nested brackets, which mean the same in PCRE
        compiled = re.compile(pattern)
        return (compiled, None) if is_quick(pattern) else (None, Automaton(pattern))


def _translated(text: str) -> bytes:
    return _TOKEN.sub(_in_python, text).encode("utf-8", "surrogateescape")


def _in_python(token: re.Match[str]) -> str:
    found = token.group()
    if found.startswith("\\Q"):
        return re.escape(found[2:].removesuffix("\\E"))
    if found.startswith("\\"):
        return _ESCAPES.get(found, found)
    if found == "(?<":
        return "(?P<"
    characters = _CLASSES.get(token.group(2))
    if characters is None or token.group(1):
        # Python would read it as single characters
        raise re.error(f"unknown class {found}")
    return characters
