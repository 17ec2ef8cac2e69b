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


class Node:
    """A part of the patterns that begin with the same words.

    words: those of this part. children: what follows, by its first word. bindings: those whose pattern ends here.
    is_loose: a # stands in front of what follows, so several places of a key may have come this far.

    cost: how many words one routing key can have a lookup compare here and in all that follows, at most. Of children
    that begin with no wildcard: literals, how many there are; sum, their costs; peak, the highest of these, and
    peak_count, how many children have it.
    """

    def __init__(self, words: list[str], is_loose: bool) -> None:
        self.words = words
        self.is_loose = is_loose or "#" in words
        self.children: dict[str, Node] = {}
        self.bindings: BindingSet = None
        self.cost: i64 = len(words)
        self.literals: i64 = 0
        self.sum: i64 = 0
        self.peak: i64 = 0
        self.peak_count: i64 = 0

    def put(self, child: Node) -> None:
        """Take a new child."""
        word = child.words[0]
        self.children[word] = child
        if word != "*" and word != "#":
            self.literals += 1
            self.sum += child.cost
            self._rise(child.cost)

    def drop(self, child: Node) -> None:
        """Let a child go."""
        word = child.words[0]
        del self.children[word]
        if word != "*" and word != "#":
            self.literals -= 1
            self.sum -= child.cost
            self._fall(child.cost)

    def measure(self, parent: Node | None) -> bool:
        """Find the cost anew, after a child or the words have changed, and tell the parent; True if it is another."""
        cost: i64 = len(self.words)
        star = self.children.get("*")
        if star is not None:
            cost += star.cost
        rest = self.children.get("#")
        if rest is not None:
            cost += rest.cost
        if self.is_loose:
            # each word of the key finds a child at most, and is compared to find it
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
        """A child does not have this cost any more."""
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
    """The words of a key or pattern; an empty one has none."""
    return key.split(".") if key else []


class Loose:
    """One routing key on its way through the patterns, where a # may have let it come to a node at several places.

    A place is the number of words that are left behind; each is a bit, so however many ways lead through a pattern, a
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
        # in a key these are words as any other, for which only a wildcard can stand
        self._where.pop("*", None)
        self._where.pop("#", None)

    def match(self, node: Node, places: int, found: list[Binding]) -> None:
        """Find the bindings of a node, and of all that follows, where the key has come to it at these places."""
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
    """A trie of patterns, of which words that nothing else branches off are one node."""

    def __init__(
        self, outgoing: dict[Destination, Bindings], arguments: dict[str, Value], random_bytes: RandomBytes
    ) -> None:
        super().__init__(outgoing, arguments, random_bytes)
        self.is_indexed = True
        self._root = Node([], False)

    @property
    def cost(self) -> i64:
        """How many words of patterns a lookup of one routing key compares at most."""
        return self._root.cost

    def add(self, binding: Binding) -> None:
        node = self._root
        path = [node]
        left = words_of(binding.key)
        while left:
            child = node.children.get(left[0])
            if child is None:
                child = Node(left, node.is_loose)
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
        """Whether the cost is at most this with one more binding."""
        if self._root.cost + WORDS_MAX <= most and "#." not in binding.key:
            return True  # there is nothing behind a #, so each of its words is compared once
        before = self._root.cost
        self.add(binding)
        cost = self._root.cost
        self.remove(binding)
        return cost <= max(most, before)

    def weight(self, envelope: Envelope) -> i64:
        return self._root.cost * len(envelope.keys)

    def match(self, envelope: Envelope) -> list[Binding]:
        """All bindings whose pattern matches one of the keys; one that matches several keys may come twice."""
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


def _match(node: Node, words: list[str], index: i64, found: list[Binding]) -> None:
    """Find the bindings below this node that match the key; its first `index` words have led to the node."""
    end: i64 = len(words)
    if index == end:
        take(node.bindings, found)
    children = node.children
    if not children:
        return
    if index < end:
        word = words[index]
        # a literal "*" or "#" in a key is an ordinary word, for which only a wildcard can stand
        child = children.get(word) if word != "*" and word != "#" else None
        if child is not None:
            _follow(child, words, index, found)
        star = children.get("*")
        if star is not None:
            _follow(star, words, index, found)
    rest = children.get("#")
    if rest is not None:
        if not rest.children and len(rest.words) == 1:
            take(rest.bindings, found)  # it ends the pattern, and stands for all that is left
        else:
            Loose(words).match(rest, 1 << int(index), found)


def _follow(node: Node, words: list[str], index: i64, found: list[Binding]) -> None:
    """The same for a node whose first word stands for the next one of the key."""
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


def _split(parent: Node, child: Node, at: i64) -> Node:
    """Cut a node's words in two; returns the first part, which stands in its place."""
    parent.drop(child)
    first = Node(child.words[:at], parent.is_loose)
    child.words = child.words[at:]
    child.measure(None)
    first.put(child)
    first.measure(None)
    parent.put(first)
    return first


def _join(parent: Node, node: Node) -> None:
    """Make one of a node and its only child."""
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


def _measure(path: list[Node]) -> None:
    """The last of these nodes has changed, and perhaps the one before."""
    last: i64 = len(path) - 1
    for at in range(last, -1, -1):
        if not path[at].measure(path[at - 1] if at > 0 else None) and at < last:
            break
