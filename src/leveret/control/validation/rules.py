"""Validation of JSON tables, with RabbitMQ's error texts (rabbit_parameter_validation).

A check takes a field's name and value and returns a complaint, "" if the value is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from leveret.broker.access.pattern import refused_pattern
from leveret.control.validation.erlang import pairs, term

Check = Callable[[str, object], str]


class Rule(NamedTuple):
    """The check of one field, and whether the field must be present."""

    check: Check
    mandatory: bool = False


def complaints(name: str, rules: Mapping[str, Rule], table: object) -> list[str]:
    """Return what is wrong with a table that is called `name`, in RabbitMQ's order: unknown fields first, then the
    others, last one first. An empty array counts as an empty table."""
    if table == []:
        table = {}
    if not isinstance(table, dict):
        return [f"{name} not a list {term(table)}"]
    found = []
    for field, rule in rules.items():
        if field in table:
            found.append(rule.check(field, table[field]))
        elif rule.mandatory:
            found.append(f'Key "{field}" not found in {name}')
    unknown = {field: value for field, value in table.items() if field not in rules}
    if unknown:
        found.append(f"Unrecognised terms {pairs(unknown)} in {name}")
    return [complaint for complaint in reversed(found) if complaint]


def number(name: str, value: object) -> str:
    """Check for a number, integer or float."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "" if is_number else f"{name} should be a number, actually was {term(value)}"


def integer(name: str, value: object) -> str:
    """Check for an integer."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return "" if is_integer else f"{name} should be a number, actually was {term(value)}"


def text(name: str, value: object) -> str:
    """Check for a text."""
    return "" if isinstance(value, str) else f"{name} should be binary, actually was {term(value)}"


def boolean(name: str, value: object) -> str:
    """Check for a boolean."""
    return "" if isinstance(value, bool) else f"{name} should be boolean, actually was {term(value)}"


def regex(name: str, value: object) -> str:
    """Check for a regular expression."""
    if not isinstance(value, str):
        return f"{name} should be a binary but was {term(value)}"
    complaint = regex_complaint(value)
    return f"{name} should be regular expression but is invalid: {complaint}" if complaint else ""


def regex_complaint(pattern: str) -> str:
    """Return what is wrong with a regular expression, and where, if possible in PCRE's words; "" if it is valid."""
    words, _, at = refused_pattern(pattern).partition(" at position ")
    if not words:
        return ""
    found = next((pcre for python, pcre in _WORDS.items() if words.startswith(python)), (words, 0))
    where = len(pattern) if found[1] is None else int(at or 0) + found[1]
    return f'{{"{found[0]}",{where}}}'


# start of Python's error text -> PCRE's text, and how far behind Python's position PCRE reports it; None: at the end
_WORDS: Final[dict[str, tuple[str, int | None]]] = {
    "missing ), unterminated subpattern": ("missing )", None),
    "unterminated character set": ("missing terminating ] for character class", None),
    "bad escape (end of pattern)": (r"\\ at end of pattern", None),
    "unbalanced parenthesis": ("unmatched parentheses", 0),
    "multiple repeat": ("nothing to repeat", 0),
    "unknown extension": ("unrecognized character after (? or (?-", 1),
    "bad character range": ("range out of order in character class", 2),
}


def one_of(*words: str) -> Check:
    """Return a check for one of these words."""

    def check(name: str, value: object) -> str:
        if not isinstance(value, str):
            return text(name, value)
        if value in words:
            return ""
        return f"{name} should be one of {term(words)}, actually was {term(value)}"

    return check
