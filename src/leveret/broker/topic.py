"""The topic exchange's trie: words separated by dots, * for one word, # for any number of words."""

from __future__ import annotations

from leveret.broker.binding import Binding


class Node:
    """One word of a pattern; the bindings whose pattern ends here."""

    def __init__(self) -> None:
        self.children: dict[str, Node] = {}
        self.bindings: list[Binding] = []


def words_of(key: str) -> list[str]:
    """The words of a key or pattern; an empty one has none."""
    return key.split(".") if key else []


class Trie:
    """Patterns of one exchange. A lookup costs the number of nodes that match a prefix of the key."""

    def __init__(self) -> None:
        self._root = Node()

    def add(self, binding: Binding) -> None:
        node = self._root
        for word in words_of(binding.key):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = Node()
            node = child
        node.bindings.append(binding)

    def remove(self, binding: Binding) -> None:
        path: list[tuple[Node, str]] = []
        node = self._root
        for word in words_of(binding.key):
            path.append((node, word))
            node = node.children[word]
        node.bindings.remove(binding)
        for parent, word in reversed(path):
            child = parent.children[word]
            if child.bindings or child.children:
                break
            del parent.children[word]

    def match(self, key: str) -> list[Binding]:
        """All bindings whose pattern matches the routing key; one that matches in several ways may come twice."""
        found: list[Binding] = []
        self._match(self._root, words_of(key), 0, found, set())
        return found

    def _match(
        self, node: Node, words: list[str], index: int, found: list[Binding], seen: set[tuple[int, int]]
    ) -> None:
        if index == len(words):
            found.extend(node.bindings)
        else:
            word = words[index]
            # a literal "*" or "#" in a key is an ordinary word, for which only a wildcard can stand
            child = node.children.get(word) if word != "*" and word != "#" else None
            if child is not None:
                self._match(child, words, index + 1, found, seen)
            star = node.children.get("*")
            if star is not None:
                self._match(star, words, index + 1, found, seen)
        rest = node.children.get("#")
        if rest is None:
            return
        for start in range(index, len(words) + 1):
            # several # in one pattern reach the same place in many ways: each is followed once
            place = (id(rest), start)
            if place not in seen:
                seen.add(place)
                self._match(rest, words, start, found, seen)
