"""The syntax of Python's regular expressions of octets, as a tree (Python library reference, `re`).

`re.compile` checks a pattern first, so what is parsed here is valid. As Python's own parser does, alternatives give up
what they all begin with, and alternatives of one octet each become a set, so that they are no choice.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# kinds of nodes
SET: Final[i64] = 0  # one octet
CHECK: Final[i64] = 1  # what must hold at this place
GROUP: Final[i64] = 2  # a capturing group, or one with flags of its own
BRANCH: Final[i64] = 3  # alternatives
REPEAT: Final[i64] = 4
HARD: Final[i64] = 5  # lookahead and lookbehind, atomic groups, possessive repetitions, back references, conditions

# what a CHECK node asks for
AT_START: Final[i64] = 1
AT_END: Final[i64] = 2
AT_LAST_LINE: Final[i64] = 3
BOUNDARY: Final[i64] = 4
NO_BOUNDARY: Final[i64] = 5

UNLIMITED: Final[i64] = -1

_ALL: Final = frozenset(range(256))
WORD: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_CLASSES: Final = {"d": frozenset(b"0123456789"), "s": frozenset(b" \t\n\r\f\v"), "w": WORD}
_CHECKS: Final = {"A": AT_START, "Z": AT_END, "z": AT_END, "b": BOUNDARY, "B": NO_BOUNDARY}
_CONTROLS: Final = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_OCTAL: Final = "01234567"
_DIGITS: Final = "0123456789"
_SPACE: Final = " \t\n\r\v\f"


class SyntaxNode:
    """A part of a pattern.

    Attributes:
        kind: SET, CHECK, GROUP, BRANCH, REPEAT or HARD.
        octets: of a SET, before the case is ignored.
        is_negated: the SET is of all other octets.
        is_plain: the SET is a literal, or a class that is not negated.
        check: of a CHECK.
        parts: the sequences in it: one of a GROUP and a REPEAT, the alternatives of a BRANCH.
        least, most: how often a REPEAT may match; most can be UNLIMITED.
        is_transparent: the GROUP only puts its content together.
        flags: of a GROUP, "" if it has none of its own.
        is_condition: the HARD node chooses between its parts.
    """

    def __init__(self, kind: i64, parts: list[list[SyntaxNode]]) -> None:
        self.kind = kind
        self.parts = parts
        self.octets: frozenset[int] = frozenset()
        self.is_negated = self.is_plain = self.is_transparent = self.is_condition = False
        self.check: i64 = 0
        self.least: i64 = 1
        self.most: i64 = 1
        self.flags = ""

    def is_same(self, other: SyntaxNode) -> bool:
        """Whether both are the same set or the same check."""
        if self.kind != other.kind or self.kind > CHECK:
            return False
        is_alike = self.is_negated == other.is_negated and self.is_plain == other.is_plain
        return is_alike and self.check == other.check and self.octets == other.octets


class Syntax:
    """A parsed pattern. flags: the letters of its own flags, such as "is"; parts: its sequence of nodes."""

    def __init__(self, pattern: bytes) -> None:
        self.flags = ""
        self._text = pattern.decode("latin-1")
        self._at: i64 = 0
        self._is_verbose = False
        self.parts = self._alternatives(True)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _has(self, text: str) -> bool:
        """Whether this text is next; then it is passed."""
        is_next = self._text.startswith(text, int(self._at))
        if is_next:
            self._at += len(text)
        return is_next

    def _next(self) -> str:
        """Return the next character, "" at the end, and pass it."""
        found = self._text[self._at : self._at + 1]
        self._at += 1
        return found

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _while(self, characters: str, most: i64 = 1 << 30) -> str:
        """Read the longest run of these characters, up to `most` of them."""
        start = self._at
        while self._at - start < most and self._peek() != "" and self._peek() in characters:
            self._at += 1
        return self._text[start : self._at]

    def _until(self, end: str) -> None:
        """Pass everything up to and including this character."""
        found = self._text.find(end, int(self._at))
        self._at = len(self._text) if found < 0 else found + len(end)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _alternatives(self, is_whole: bool = False) -> list[SyntaxNode]:
        """Parse up to the end or the ")" of the group, which is not passed."""
        found = [self._sequence(is_whole)]
        while self._has("|"):
            found.append(self._sequence(False))
        if len(found) == 1:
            return found[0]
        common: list[SyntaxNode] = []
        while all(len(each) > 0 and each[0].is_same(found[0][0]) for each in found):
            common.append(found[0][0])
            found = [each[1:] for each in found]
        if all(len(each) == 1 and each[0].kind == SET and each[0].is_plain for each in found):
            octets: frozenset[int] = frozenset()
            for each in found:
                octets |= each[0].octets
            return [*common, _set(octets, True)]
        return [*common, SyntaxNode(BRANCH, found)]

    def _sequence(self, is_whole: bool) -> list[SyntaxNode]:
        found: list[SyntaxNode] = []
        while self._peek() != "" and self._peek() not in "|)":
            character = self._next()
            if self._is_verbose and character in _SPACE:
                continue
            if self._is_verbose and character == "#":
                self._until("\n")
            elif character == "(":
                self._group(found, is_whole and not found)
            elif character in "*+?" or (character == "{" and self._is_quantifier()):
                self._repeat(character, found)
            else:
                found.append(self._single(character))
        return _unpacked(found)

    def _single(self, character: str) -> SyntaxNode:
        if character == "^":
            return _check(AT_START)
        if character == "$":
            return _check(AT_LAST_LINE)
        if character == ".":
            return _set(_ALL if "s" in self.flags else _ALL - {10}, False)
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        return _set(frozenset({ord(character)}), True)

    def _is_quantifier(self) -> bool:
        """Whether a "{", which was passed, begins a quantifier; the position stays."""
        start = self._at
        if self._peek() == "}":
            return False
        self._while(_DIGITS)
        self._has(",")
        self._while(_DIGITS)
        is_one = self._has("}")
        self._at = start
        return is_one

    def _repeat(self, character: str, found: list[SyntaxNode]) -> None:
        """Let the last node repeat."""
        least: i64 = 1 if character == "+" else 0
        most: i64 = 1 if character == "?" else UNLIMITED
        if character == "{":
            low = self._while(_DIGITS)
            high = self._while(_DIGITS) if self._has(",") else low
            self._has("}")
            least = int(low) if low else 0
            most = int(high) if high else UNLIMITED
        node = found.pop()
        repeat = SyntaxNode(REPEAT, [_unpacked([node])])
        repeat.least, repeat.most = least, most
        if self._has("+"):
            found.append(SyntaxNode(HARD, [[repeat]]))
            return
        self._has("?")
        found.append(repeat)

    def _group(self, found: list[SyntaxNode], may_have_flags: bool) -> None:
        """Parse what follows a "("."""
        if not self._has("?"):
            found.append(self._closed(GROUP))
        elif self._has("P<"):
            self._until(">")
            found.append(self._closed(GROUP))
        elif self._has("P="):
            self._until(")")
            found.append(SyntaxNode(HARD, []))
        elif self._has(":"):
            found.append(self._closed(GROUP))
            found[-1].is_transparent = True
        elif self._has("#"):
            self._until(")")
        elif self._has("=") or self._has("!") or self._has("<=") or self._has("<!") or self._has(">"):
            found.append(self._closed(HARD))
        elif self._has("("):
            self._until(")")
            found.append(self._condition())
        else:
            self._flags(found)

    def _closed(self, kind: i64) -> SyntaxNode:
        """Parse the inside of a group, and its end."""
        node = SyntaxNode(kind, [self._alternatives()])
        self._has(")")
        return node

    def _condition(self) -> SyntaxNode:
        node = SyntaxNode(HARD, [self._sequence(False)])
        node.is_condition = True
        if self._has("|"):
            node.parts.append(self._sequence(False))
        self._has(")")
        return node

    def _flags(self, found: list[SyntaxNode]) -> None:
        """Parse flags: those of the whole pattern, or those of a group that follows."""
        letters = self._while("aiLmsux")
        removed = self._while("aiLmsux") if self._has("-") else ""
        if self._has(")"):
            self.flags += letters
            self._is_verbose = self._is_verbose or "x" in letters
            return
        self._has(":")
        was_verbose = self._is_verbose
        self._is_verbose = (was_verbose or "x" in letters) and "x" not in removed
        node = self._closed(GROUP)
        self._is_verbose = was_verbose
        node.flags = f"{letters}-{removed}"
        found.append(node)

    # -- octets --------------------------------------------------------------------------------------------------------

    def _escape(self) -> SyntaxNode:
        """Parse what follows a backslash outside of a class."""
        character = self._next()
        if character in _CHECKS:
            return _check(_CHECKS[character])
        if character in "123456789":
            start = self._at - 1
            number = character + self._while(_DIGITS, 1)
            digits = number + self._peek()
            if len(digits) == 3 and all(digit in _OCTAL for digit in digits):
                self._at = start
                return _set(frozenset({int(self._while(_OCTAL, 3), 8)}), True)
            return SyntaxNode(HARD, [])
        return self._octets(character)

    def _octets(self, character: str) -> SyntaxNode:
        """Return the set of a backslash and this character, which has the same meaning within classes."""
        if character.lower() in _CLASSES:
            octets = _CLASSES[character.lower()]
            return _set(octets if character.islower() else _ALL - octets, True)
        if character == "x":
            return _set(frozenset({int(self._while("0123456789abcdefABCDEF", 2), 16)}), True)
        if character in _OCTAL:
            return _set(frozenset({int(character + self._while(_OCTAL, 2), 8)}), True)
        return _set(frozenset({_CONTROLS.get(character, ord(character))}), True)

    def _class(self) -> SyntaxNode:
        """Parse what follows a "["."""
        is_negated = self._has("^")
        found: set[int] = set()
        is_first = True
        while is_first or not self._has("]"):
            is_first = False
            octets = self._member()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                found.update(range(min(octets), min(self._member()) + 1))
            else:
                found |= octets
        node = _set(frozenset(found), not is_negated)
        node.is_negated = is_negated
        return node

    def _member(self) -> frozenset[int]:
        character = self._next()
        return self._octets(self._next()).octets if character == "\\" else frozenset({ord(character)})


def _set(octets: frozenset[int], is_plain: bool) -> SyntaxNode:
    node = SyntaxNode(SET, [])
    node.octets = octets
    node.is_plain = is_plain
    return node


def _check(check: i64) -> SyntaxNode:
    node = SyntaxNode(CHECK, [])
    node.check = check
    return node


def _unpacked(nodes: list[SyntaxNode]) -> list[SyntaxNode]:
    """Return the sequence with the contents of transparent groups in their places."""
    found: list[SyntaxNode] = []
    for node in nodes:
        if node.is_transparent:
            found += node.parts[0]
        else:
            found.append(node)
    return found
