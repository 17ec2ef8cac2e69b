"""The topic exchange: patterns of words separated by dots, * for one word, # for any number of words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchange_types.binding_set import BindingSet, added, removed, take
from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.matcher import Matcher
from leveret.broker.names import RandomBytes
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding, Bindings, Destination

# words that a routing key can have: it has at most 255 octets
WORDS_MAX: Final[i64] = 128


class TrieNode:
    """A node of the trie: one or more words that a group of patterns has in common at this place."""

    def __init__(self, words: list[str], is_loose: bool) -> None:
        self.words = words  # the words of this node
        self.is_loose = is_loose or "#" in words  # a # precedes its children, so a key may reach them at several places
        self.children: dict[str, TrieNode] = {}  # by their first word
        self.bindings: BindingSet = None  # whose pattern ends here
        self.cost: i64 = len(words)  # words that the lookup of one key compares here and below, at most
        self.literals: i64 = 0  # children that do not begin with a wildcard
        self.sum: i64 = 0  # of their costs
        self.peak: i64 = 0  # the highest of their costs
        self.peak_count: i64 = 0  # how many of them have it

    def put(self, child: TrieNode) -> None:
        """Add a child."""
        word = child.words[0]
        self.children[word] = child
        if word != "*" and word != "#":
            self.literals += 1
            self.sum += child.cost
            self._rise(child.cost)

    def drop(self, child: TrieNode) -> None:
        """Remove a child."""
        word = child.words[0]
        del self.children[word]
        if word != "*" and word != "#":
            self.literals -= 1
            self.sum -= child.cost
            self._fall(child.cost)

    def measure(self, parent: TrieNode | None) -> bool:
        """Update the cost after a change of children or words, and the parent's figures; True if it has changed."""
        cost: i64 = len(self.words)
        star = self.children.get("*")
        if star is not None:
            cost += star.cost
        rest = self.children.get("#")
        if rest is not None:
            cost += rest.cost
        if self.is_loose:
            # each word of the key finds at most one child, and is compared to find it
            cost += min(self.sum, WORDS_MAX * self.peak) + min(self.literals, WORDS_MAX)
        else:
            cost += self.peak  # the next word finds one child at most
        before = self.cost
        if cost == before:
            return False
        self.cost = cost
        if parent is not None and self.words[0] != "*" and self.words[0] != "#":
            parent.sum += cost - before
            parent._rise(cost)
            parent._fall(before)
        return True

    def _rise(self, cost: i64) -> None:
        if cost > self.peak:
            self.peak = cost
            self.peak_count = 1
        elif cost == self.peak:
            self.peak_count += 1

    def _fall(self, cost: i64) -> None:
        """Remove a child's former cost from the peak."""
        if cost < self.peak:
            return
        self.peak_count -= 1
        if self.peak_count > 0:
            return
        self.peak = 0
        for word, child in self.children.items():
            if word != "*" and word != "#":
                self._rise(child.cost)


def words_of(key: str) -> list[str]:
    """Return the words of a key or pattern; an empty one has none."""
    return key.split(".") if key else []


class Loose:
    """The lookup of one routing key behind a #, where it may have reached a node at several places.

    A place is the number of words that are consumed, and stored as a bit: however many ways lead through a pattern, a
    node is visited once, and a lookup costs no more than the nodes' cost.
    """

    def __init__(self, words: list[str]) -> None:
        self._end = len(words)
        self._all = (2 << len(words)) - 1
        self._where: dict[str, int] = {}  # the places of each word
        bit = 1
        for word in words:
            self._where[word] = self._where.get(word, 0) | bit
            bit <<= 1
        # in a key these are ordinary words, which only a wildcard matches
        self._where.pop("*", None)
        self._where.pop("#", None)

    def match(self, node: TrieNode, places: int, found: list[Binding]) -> None:
        """Find the bindings of a node and below, where the key has reached the node at these places."""
        where, every = self._where, self._all
        for word in node.words:
            if word == "#":
                places = every & -(places & -places)
            elif word == "*":
                places = places << 1 & every
            else:
                places = (places & where.get(word, 0)) << 1
            if places == 0:
                return
        if places >> self._end:
            take(node.bindings, found)
        children = node.children
        if not children:
            return
        for wildcard in ("*", "#"):
            child = children.get(wildcard)
            if child is not None:
                self.match(child, places, found)
        if node.literals == 0:
            return
        if node.literals < len(where):
            for word, child in children.items():
                if places & where.get(word, 0):
                    self.match(child, places, found)
        else:
            for word, its in where.items():
                if places & its:
                    child = children.get(word)
                    if child is not None:
                        self.match(child, places, found)


class Topic(Matcher):
    """The matcher of topic exchanges: a trie of patterns, in which words without a branch between them share a node."""

    def __init__(
        self, outgoing: dict[Destination, Bindings], arguments: dict[str, Value], random_bytes: RandomBytes
    ) -> None:
        super().__init__(outgoing, arguments, random_bytes)
        self.is_indexed = True
        self._root = TrieNode([], False)

    @property
    def cost(self) -> i64:
        """How many words of patterns the lookup of one routing key compares, at most."""
        return self._root.cost

    def add(self, binding: Binding) -> None:
        node = self._root
        path = [node]
        left = words_of(binding.key)
        while left:
            child = node.children.get(left[0])
            if child is None:
                child = TrieNode(left, node.is_loose)
                node.put(child)
                node = child
                break
            size: i64 = len(child.words)
            same: i64 = 1
            while same < size and same < len(left) and child.words[same] == left[same]:
                same += 1
            node = child if same == size else _split(node, child, same)
            path.append(node)
            left = left[same:]
        node.bindings = added(node.bindings, binding)
        _measure(path)

    def remove(self, binding: Binding) -> None:
        node = self._root
        path = [node]
        left = words_of(binding.key)
        while left:
            node = node.children[left[0]]
            path.append(node)
            left = left[len(node.words) :]
        node.bindings = removed(node.bindings, binding)
        if node.bindings is not None:
            return
        if not node.children and len(path) > 1:
            path.pop()
            path[-1].drop(node)
            node = path[-1]
        if len(path) > 1 and node.bindings is None and len(node.children) == 1:
            _join(path[-2], node)
        _measure(path)

    def admits(self, binding: Binding, most: i64) -> bool:
        """Whether the cost with one more binding is at most `most`."""
        if self._root.cost + WORDS_MAX <= most and "#." not in binding.key:
            return True  # nothing follows a #, so each of its words is compared once
        before = self._root.cost
        self.add(binding)
        cost = self._root.cost
        self.remove(binding)
        return cost <= max(most, before)

    def weight(self, envelope: Envelope) -> i64:
        return self._root.cost * len(envelope.keys)

    def match(self, envelope: Envelope) -> list[Binding]:
        """Return all bindings whose pattern matches a key; one that matches several keys may be there twice."""
        found: list[Binding] = []
        for key in envelope.keys:
            _match(self._root, words_of(key), 0, found)
        return self.standing(found)

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        every: list[Binding] = []
        for key in envelope.keys:
            yield
            _match(self._root, words_of(key), 0, every)
        found.extend(self.standing(every))


def _match(node: TrieNode, words: list[str], index: i64, found: list[Binding]) -> None:
    """Find the bindings below this node that match the key, whose first `index` words led to the node."""
    end: i64 = len(words)
    if index == end:
        take(node.bindings, found)
    children = node.children
    if not children:
        return
    if index < end:
        word = words[index]
        # a literal "*" or "#" in a key is an ordinary word, which only a wildcard matches
        child = children.get(word) if word != "*" and word != "#" else None
        if child is not None:
            _follow(child, words, index, found)
        star = children.get("*")
        if star is not None:
            _follow(star, words, index, found)
    rest = children.get("#")
    if rest is not None:
        if not rest.children and len(rest.words) == 1:
            take(rest.bindings, found)  # it ends the pattern and matches all remaining words
        else:
            Loose(words).match(rest, 1 << int(index), found)


def _follow(node: TrieNode, words: list[str], index: i64, found: list[Binding]) -> None:
    """Find the bindings of this node, whose first word matches the key's next word, and below."""
    end: i64 = len(words)
    size: i64 = len(node.words)
    at: i64 = 1
    index += 1
    while at < size:
        wanted = node.words[at]
        if wanted == "#":
            if at + 1 == size and not node.children:
                take(node.bindings, found)
            else:
                Loose(words).match(node, 1 << int(index - at), found)
            return
        if index == end or (wanted != "*" and wanted != words[index]):
            return
        at += 1
        index += 1
    _match(node, words, index, found)


def _split(parent: TrieNode, child: TrieNode, at: i64) -> TrieNode:
    """Split a node's words in two nodes; return the first one, which takes its place."""
    parent.drop(child)
    first = TrieNode(child.words[:at], parent.is_loose)
    child.words = child.words[at:]
    child.measure(None)
    first.put(child)
    first.measure(None)
    parent.put(first)
    return first


def _join(parent: TrieNode, node: TrieNode) -> None:
    """Merge a node with its only child."""
    for child in node.children.values():
        parent.drop(node)
        node.words = node.words + child.words
        node.is_loose = child.is_loose
        node.children = child.children
        node.bindings = child.bindings
        node.literals, node.sum = child.literals, child.sum
        node.peak, node.peak_count = child.peak, child.peak_count
        node.measure(None)
        parent.put(node)
        break


def _measure(path: list[TrieNode]) -> None:
    """Update the costs on this path, after the last node and perhaps the one before it have changed."""
    last: i64 = len(path) - 1
    for at in range(last, -1, -1):
        if not path[at].measure(path[at - 1] if at > 0 else None) and at < last:
            break
