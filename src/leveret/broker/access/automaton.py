"""Regular expressions matched in a time that is bounded by pattern length × text length.

Python's matcher tries one path after the other, and "(a+)+$" has as many as a name has subsets. A user who may set
policies or permissions could block the whole broker with it. Such patterns are matched here instead (K. Thompson,
"Regular Expression Search Algorithm", 1968): a set of places in the pattern is advanced octet by octet.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.access.pattern_syntax import (
    AT_END,
    AT_LAST_LINE,
    AT_START,
    BOUNDARY,
    BRANCH,
    CHECK,
    GROUP,
    REPEAT,
    SET,
    UNLIMITED,
    WORD,
    Syntax,
    SyntaxNode,
)

# maximum number of places in a pattern; larger patterns are refused when they are set
PLACES_MAX: Final = 4096
# this many choices in sequence cost Python's matcher a few milliseconds on a name of 255 octets, three cost a second
CHOICES_MAX: Final = 2

_ALL: Final = frozenset(range(256))


class TooHard(Exception):
    """Raised for a pattern that needs backtracking and has too many choices, or is too long; str() says why."""


class AutomatonState:
    """A state of the automaton."""

    def __init__(self, octets: frozenset[int] | None, next: int, check: i64 = 0, other: int = -1) -> None:
        self.octets = octets  # the octets that lead to `next`; None = next is reached without one
        self.next = next
        self.check = check  # what must hold at this position, 0 = nothing
        self.other = other  # a second place that is reached without an octet; -1 = none


class Automaton:
    """The automaton of a pattern of octets. Raises TooHard for back references and the like, and for long patterns."""

    def __init__(self, pattern: bytes) -> None:
        syntax = Syntax(pattern)
        self._flags = syntax.flags
        self._places: list[AutomatonState] = [AutomatonState(None, -1)]  # the end
        self._start = self._sequence(syntax.parts, 0)

    # -- construction, from the end to the beginning: each part gets the index of the place that follows it ------------

    def _place(self, octets: frozenset[int] | None, next: int, check: i64 = 0, other: int = -1) -> int:
        if len(self._places) >= PLACES_MAX:
            raise TooHard("it is too long")
        self._places.append(AutomatonState(octets, next, check, other))
        return len(self._places) - 1

    def _sequence(self, nodes: list[SyntaxNode], next: int) -> int:
        for index in range(len(nodes) - 1, -1, -1):
            next = self._part(nodes[index], next)
        return next

    def _part(self, node: SyntaxNode, next: int) -> int:
        if node.kind == SET:
            octets = self._any_case(node.octets)
            return self._place(_ALL - octets if node.is_negated else octets, next)
        if node.kind == CHECK:
            if "m" in self._flags or "L" in self._flags:
                raise TooHard("it matches the ends of lines")
            return self._place(None, next, node.check)
        if node.kind == GROUP:
            if node.flags:
                raise TooHard("it has flags within a group")
            return self._sequence(node.parts[0], next)
        if node.kind == BRANCH:
            found = self._sequence(node.parts[-1], next)
            for part in reversed(node.parts[:-1]):
                found = self._place(None, self._sequence(part, next), 0, found)
            return found
        if node.kind == REPEAT:
            return self._repeat(node, next)
        raise TooHard("it contains a lookahead, a lookbehind or a backreference")

    def _repeat(self, node: SyntaxNode, next: int) -> int:
        nodes = node.parts[0]
        if node.most == UNLIMITED:
            loop = self._place(None, -1, 0, next)
            self._places[loop].next = self._sequence(nodes, loop)
            found = loop
        else:
            found = next
            for _ in range(node.most - node.least):
                found = self._place(None, self._sequence(nodes, found), 0, next)
        for _ in range(node.least):
            found = self._sequence(nodes, found)
        return found

    def _any_case(self, octets: frozenset[int]) -> frozenset[int]:
        if "i" not in self._flags:
            return octets
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


def _holds(check: i64, text: bytes, at: int) -> bool:
    if check == 0:
        return True
    if check == AT_START:
        return at == 0
    if check == AT_END:
        return at == len(text)
    if check == AT_LAST_LINE:
        return at == len(text) or (at == len(text) - 1 and text[at] == 10)
    is_boundary = (at > 0 and text[at - 1] in WORD) != (at < len(text) and text[at] in WORD)
    return is_boundary == (check == BOUNDARY)


def is_quick(pattern: bytes) -> bool:
    """Return whether Python's matcher is fast enough: few choices, and none within a repetition."""
    return _choices(Syntax(pattern).parts) <= CHOICES_MAX


def _choices(nodes: list[SyntaxNode]) -> int:
    """Return the number of choices in sequence; a choice within a repetition counts as too many."""
    found = 0
    for node in nodes:
        inner = sum([_choices(part) for part in node.parts])
        if node.kind == REPEAT:
            found += inner if inner == 0 or node.most == 1 else CHOICES_MAX + 1
            found += 1 if node.least != node.most else 0
        else:
            found += inner + (1 if node.kind == BRANCH or node.is_condition else 0)
    return found
