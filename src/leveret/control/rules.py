"""Rules for tables of JSON: what each field may be, and RabbitMQ's words for what it is not.

A check takes the field's name and value and gives a complaint, "" if there is none (rabbit_parameter_validation).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from leveret.broker.pattern import refused_pattern
from leveret.control.erlang import pairs, term

Check = Callable[[str, object], str]


class Rule(NamedTuple):
    """mandatory: the field must be there."""

    check: Check
    mandatory: bool = False


def complaints(name: str, rules: Mapping[str, Rule], table: object) -> list[str]:
    """What is wrong with a table that is called `name`, in RabbitMQ's order: fields that nobody knows first, then the
    others, the last one first. An empty array counts as an empty table."""
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
    """An integer or a number with a fraction."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "" if is_number else f"{name} should be a number, actually was {term(value)}"


def integer(name: str, value: object) -> str:
    """An integer."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return "" if is_integer else f"{name} should be a number, actually was {term(value)}"


def text(name: str, value: object) -> str:
    """A text."""
    return "" if isinstance(value, str) else f"{name} should be binary, actually was {term(value)}"


def boolean(name: str, value: object) -> str:
    """True or false."""
    return "" if isinstance(value, bool) else f"{name} should be boolean, actually was {term(value)}"


def regex(name: str, value: object) -> str:
    """A regular expression."""
    if not isinstance(value, str):
        return f"{name} should be a binary but was {term(value)}"
    complaint = regex_complaint(value)
    return f"{name} should be regular expression but is invalid: {complaint}" if complaint else ""


def regex_complaint(pattern: str) -> str:
    """What is wrong with a regular expression, and where, as PCRE has it where the words are known; "" if it is one."""
    words, _, at = refused_pattern(pattern).partition(" at position ")
    if not words:
        return ""
    found = next((pcre for python, pcre in _WORDS.items() if words.startswith(python)), (words, 0))
    where = len(pattern) if found[1] is None else int(at or 0) + found[1]
    return f'{{"{found[0]}",{where}}}'


# how Python's words begin -> PCRE's, and how far behind Python's position it stops reading; None: at the end
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
    """One of these words."""

    def check(name: str, value: object) -> str:
        if not isinstance(value, str):
            return text(name, value)
        if value in words:
            return ""
        return f"{name} should be one of {term(words)}, actually was {term(value)}"

    return check
