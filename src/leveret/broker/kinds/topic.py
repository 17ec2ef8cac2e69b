"""The topic exchange: patterns of words separated by dots, * for one word, # for any number of words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from leveret.broker.kinds.alike import Alike, added, removed, take
from leveret.broker.kinds.envelope import Envelope
from leveret.broker.kinds.matcher import Matcher
from leveret.broker.names import RandomBytes
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.binding import Binding, Bindings, Destination


class Node:
    """One word of a pattern; the bindings whose pattern ends here."""

    def __init__(self) -> None:
        self.children: dict[str, Node] = {}
        self.bindings: Alike = None


def words_of(key: str) -> list[str]:
    """The words of a key or pattern; an empty one has none."""
    return key.split(".") if key else []


class Topic(Matcher):
    """A trie of patterns. A lookup costs the number of nodes that match a prefix of the key."""

    def __init__(
        self, outgoing: dict[Destination, Bindings], arguments: dict[str, Value], random_bytes: RandomBytes
    ) -> None:
        super().__init__(outgoing, arguments, random_bytes)
        self.is_indexed = True
        self._root = Node()

    def add(self, binding: Binding) -> None:
        node = self._root
        for word in words_of(binding.key):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = Node()
            node = child
        node.bindings = added(node.bindings, binding)

    def remove(self, binding: Binding) -> None:
        path: list[tuple[Node, str]] = []
        node = self._root
        for word in words_of(binding.key):
            path.append((node, word))
            node = node.children[word]
        node.bindings = removed(node.bindings, binding)
        for parent, word in reversed(path):
            child = parent.children[word]
            if child.bindings is not None or child.children:
                break
            del parent.children[word]

    def match(self, envelope: Envelope) -> list[Binding]:
        """All bindings whose pattern matches one of the keys; one that matches in several ways may come twice."""
        found: list[Binding] = []
        for key in envelope.keys:
            _match(self._root, words_of(key), 0, found, set())
        return self.standing(found)

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        yield
        found.extend(self.match(envelope))


def _match(node: Node, words: list[str], index: int, found: list[Binding], seen: set[tuple[int, int]]) -> None:
    if index == len(words):
        take(node.bindings, found)
    else:
        word = words[index]
        # a literal "*" or "#" in a key is an ordinary word, for which only a wildcard can stand
        child = node.children.get(word) if word != "*" and word != "#" else None
        if child is not None:
            _match(child, words, index + 1, found, seen)
        star = node.children.get("*")
        if star is not None:
            _match(star, words, index + 1, found, seen)
    rest = node.children.get("#")
    if rest is None:
        return
    if not rest.children:
        # it ends the pattern, and stands for all that is left
        if (id(rest), -1) not in seen:
            seen.add((id(rest), -1))
            take(rest.bindings, found)
        return
    for start in range(index, len(words) + 1):
        # several # in one pattern reach the same place in many ways: each is followed once
        place = (id(rest), start)
        if place not in seen:
            seen.add(place)
            _match(rest, words, start, found, seen)
