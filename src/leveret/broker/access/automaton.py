"""Regular expressions matched in a time that is bounded by pattern length × text length.

Python's matcher tries one path after the other, and "(a+)+$" has as many as a name has subsets. A user who may set
policies or permissions could block the whole broker with it. Such patterns are matched here instead (K. Thompson,
"Regular Expression Search Algorithm", 1968): a set of places in the pattern is advanced octet by octet.
"""

from __future__ import annotations

import re
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

# maximum number of places in a pattern; larger patterns are refused when they are set
PLACES_MAX: Final = 4096
# this many choices in sequence cost Python's matcher a few milliseconds on a name of 255 octets, three cost a second
CHOICES_MAX: Final = 2

_AT_START: Final = 1
_AT_END: Final = 2
_AT_LAST_LINE: Final = 3
_BOUNDARY: Final = 4
_NO_BOUNDARY: Final = 5
_CHECKS: Final[dict[Any, int]] = {
    code.AT_BEGINNING: _AT_START, code.AT_BEGINNING_STRING: _AT_START, code.AT_END: _AT_LAST_LINE,
    code.AT_END_STRING: _AT_END, code.AT_BOUNDARY: _BOUNDARY, code.AT_NON_BOUNDARY: _NO_BOUNDARY,
}  # fmt: skip
_WORD: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_CATEGORIES: Final[dict[Any, frozenset[int]]] = {
    code.CATEGORY_DIGIT: frozenset(b"0123456789"),
    code.CATEGORY_SPACE: frozenset(b" \t\n\r\f\v"),
    code.CATEGORY_WORD: _WORD,
}
_ALL: Final = frozenset(range(256))
_OPPOSITES: Final[dict[Any, Any]] = {
    code.CATEGORY_NOT_DIGIT: code.CATEGORY_DIGIT, code.CATEGORY_NOT_SPACE: code.CATEGORY_SPACE,
    code.CATEGORY_NOT_WORD: code.CATEGORY_WORD,
}  # fmt: skip


class TooHard(Exception):
    """Raised for a pattern that needs backtracking and has too many choices, or is too long; str() says why."""


class AutomatonState:
    """A state of the automaton."""

    def __init__(self, octets: frozenset[int] | None, next: int, check: int = 0, other: int = -1) -> None:
        self.octets = octets  # the octets that lead to `next`; None = next is reached without one
        self.next = next
        self.check = check  # what must hold at this position, 0 = nothing
        self.other = other  # a second place that is reached without an octet; -1 = none


class Automaton:
    """The automaton of a pattern of octets. Raises TooHard for back references and the like, and for long patterns."""

    def __init__(self, pattern: bytes) -> None:
        parsed = parser.parse(pattern)
        self._flags = int(parsed.state.flags)
        self._places: list[AutomatonState] = [AutomatonState(None, -1)]  # the end
        self._start = self._sequence(list(parsed), 0)

    # -- construction, from the end to the beginning: each part gets the index of the place that follows it ------------

    def _place(self, octets: frozenset[int] | None, next: int, check: int = 0, other: int = -1) -> int:
        if len(self._places) >= PLACES_MAX:
            raise TooHard("it is too long")
        self._places.append(AutomatonState(octets, next, check, other))
        return len(self._places) - 1

    def _sequence(self, parts: list[Any], next: int) -> int:
        for index in range(len(parts) - 1, -1, -1):
            op, argument = parts[index]
            next = self._part(op, argument, next)
        return next

    def _part(self, op: Any, argument: Any, next: int) -> int:
        if op is code.LITERAL or op is code.NOT_LITERAL or op is code.ANY or op is code.IN:
            return self._place(self._octets(op, argument), next)
        if op is code.AT:
            check = _CHECKS.get(argument)
            if check is None or self._flags & (re.MULTILINE | re.LOCALE):
                raise TooHard("it matches the ends of lines")
            return self._place(None, next, check)
        if op is code.SUBPATTERN:
            if argument[1] or argument[2]:
                raise TooHard("it has flags within a group")
            return self._sequence(list(argument[3]), next)
        if op is code.BRANCH:
            branches: list[Any] = list(argument[1])
            found = self._sequence(list(branches.pop()), next)
            while branches:
                found = self._place(None, self._sequence(list(branches.pop()), next), 0, found)
            return found
        if op is code.MAX_REPEAT or op is code.MIN_REPEAT:
            return self._repeat(int(argument[0]), argument[1], list(argument[2]), next)
        raise TooHard("it contains a lookahead, a lookbehind or a backreference")

    def _repeat(self, least: int, most: Any, parts: list[Any], next: int) -> int:
        if most is code.MAXREPEAT:
            loop = self._place(None, -1, 0, next)
            self._places[loop].next = self._sequence(parts, loop)
            found = loop
        else:
            found = next
            for _ in range(int(most) - least):
                found = self._place(None, self._sequence(parts, found), 0, next)
        for _ in range(least):
            found = self._sequence(parts, found)
        return found

    def _octets(self, op: Any, argument: Any) -> frozenset[int]:
        if op is code.ANY:
            return _ALL if self._flags & re.DOTALL else _ALL - {10}
        if op is code.LITERAL:
            return self._any_case({argument})
        if op is code.NOT_LITERAL:
            return _ALL - self._any_case({argument})
        found: set[int] = set()
        is_negated = False
        for kind, value in argument:
            if kind is code.NEGATE:
                is_negated = True
            elif kind is code.LITERAL:
                found.add(value)
            elif kind is code.RANGE:
                found.update(range(value[0], value[1] + 1))
            elif value in _CATEGORIES:
                found.update(_CATEGORIES[value])
            else:
                found.update(_ALL - _CATEGORIES[_OPPOSITES[value]])
        octets = self._any_case(found)
        return _ALL - octets if is_negated else octets

    def _any_case(self, octets: set[int]) -> frozenset[int]:
        if not self._flags & re.IGNORECASE:
            return frozenset(octets)
        raw = bytes(sorted(octets))
        return frozenset(raw) | frozenset(raw.lower()) | frozenset(raw.upper())

    # -- matching ------------------------------------------------------------------------------------------------------

    def search(self, text: bytes) -> bool:
        """Return whether the pattern matches anywhere in the text, in at most places × octets steps."""
        here: set[int] = set()
        for at in range(len(text) + 1):
            if self._reach(self._start, text, at, here):
                return True
            if at == len(text):
                break
            there: set[int] = set()
            octet = text[at]
            for index in here:
                place = self._places[index]
                if place.octets is not None and octet in place.octets and self._reach(place.next, text, at + 1, there):
                    return True
            here = there
        return False

    def _reach(self, first: int, text: bytes, at: int, reached: set[int]) -> bool:
        """Add a place and all places that it reaches without an octet; return True if the end is among them."""
        left = [first]
        while left:
            index = left.pop()
            if index in reached:
                continue
            if index == 0:
                return True
            reached.add(index)
            place = self._places[index]
            if place.octets is None and _holds(place.check, text, at):
                left.append(place.next)
                if place.other >= 0:
                    left.append(place.other)
        return False


def _holds(check: int, text: bytes, at: int) -> bool:
    if check == 0:
        return True
    if check == _AT_START:
        return at == 0
    if check == _AT_END:
        return at == len(text)
    if check == _AT_LAST_LINE:
        return at == len(text) or (at == len(text) - 1 and text[at] == 10)
    is_boundary = (at > 0 and text[at - 1] in _WORD) != (at < len(text) and text[at] in _WORD)
    return is_boundary == (check == _BOUNDARY)


def is_quick(pattern: bytes) -> bool:
    """Return whether Python's matcher is fast enough: few choices, and none within a repetition."""
    return _choices(list(parser.parse(pattern))) <= CHOICES_MAX


def _choices(parts: list[Any]) -> int:
    """Return the number of choices in sequence; a choice within a repetition counts as too many."""
    found = 0
    for op, argument in parts:
        if op is code.MAX_REPEAT or op is code.MIN_REPEAT or op is code.POSSESSIVE_REPEAT:
            inner = _choices(list(argument[2]))
            found += inner if inner == 0 or argument[1] == 1 else CHOICES_MAX + 1
            found += 1 if argument[0] != argument[1] else 0
        elif op is code.SUBPATTERN:
            found += _choices(list(argument[3]))
        elif op is code.BRANCH:
            found += 1 + sum([_choices(list(branch)) for branch in argument[1]])
        elif op is code.ASSERT or op is code.ASSERT_NOT:
            found += _choices(list(argument[1]))
        elif op is code.GROUPREF_EXISTS:
            found += 1 + sum([_choices(list(each)) for each in argument[1:] if each is not None])
        elif op is code.ATOMIC_GROUP:
            found += _choices(list(argument))
    return found
