"""Shapes of federations: which broker links to which, and where messages and bindings must arrive."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random

Link = tuple[str, str]


@dataclass(frozen=True)
class Shape:
    """A set of links, each (downstream, upstream), all with the same max-hops."""

    names: tuple[str, ...]
    links: tuple[Link, ...]
    max_hops: int

    @cached_property
    def _ways(self) -> list[tuple[str, ...]]:
        """All paths from an upstream to a downstream over up to max-hops links, without a broker twice: x-received-from
        keeps messages, and x-bound-from bindings, from going round."""

        def longer(way: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
            yield way
            if len(way) <= self.max_hops:
                for down, up in self.links:
                    if up == way[-1] and down not in way:
                        yield from longer((*way, down))

        return [way for name in self.names for way in longer((name,))]

    def copies(self, published_at: str, queue_at: str) -> int:
        """Return how many copies of a message reach a queue that is bound to it: one on each path."""
        return sum(way[0] == published_at and way[-1] == queue_at for way in self._ways)

    def wanted(self, link: Link, bound: dict[str, Collection[str]]) -> set[str]:
        """Return the keys that a link must bind at its upstream, if queues are bound by `bound`."""
        down, up = link
        ends = {way[-1] for way in self._ways if way[:2] == (up, down)}
        return {key for end in ends for key in bound.get(end, ())}


def ring(count: int, max_hops: int) -> Shape:
    """A ring in which each broker links to the one before it."""
    names = tuple(f"r{index}" for index in range(count))
    return Shape(names, tuple((names[index], names[index - 1]) for index in range(count)), max_hops)


def complete(count: int) -> Shape:
    """A shape in which each broker links to all others."""
    names = tuple(f"c{index}" for index in range(count))
    return Shape(names, tuple((one, other) for one in names for other in names if one != other), 1)


PAIR = Shape(("a", "b"), (("a", "b"), ("b", "a")), 1)
TREE = Shape(
    ("root", "left", "right", "leaf1", "leaf2", "leaf3"),
    (("left", "root"), ("right", "root"), ("leaf1", "left"), ("leaf2", "left"), ("leaf3", "right")),
    2,
)
# the four shapes of the specification
SHAPES = {"pair": PAIR, "complete": complete(3), "tree": TREE, "ring": ring(6, 5)}


def random_shape(random: Random) -> Shape:
    """Return one of those, a smaller ring, a chain, or random links among a few brokers."""
    kind = random.randrange(10)
    if kind < 3:
        return PAIR
    if kind < 4:
        return complete(3)
    if kind < 5:
        return random.choice((TREE, ring(6, 5)))
    if kind < 7:
        return ring(random.choice((3, 4)), random.randrange(1, 4))
    names = tuple("abcd"[: random.randrange(2, 5)])
    pairs = [(one, other) for one in names for other in names if one != other]
    links = tuple(sorted(random.sample(pairs, random.randrange(1, min(len(pairs), 5) + 1))))
    return Shape(names, links, random.randrange(1, len(names) + 1))


def matches(pattern: str, key: str) -> bool:
    """Whether a topic pattern matches a key of two words; supports only the patterns used here."""
    return pattern in ("#", key) or (pattern.endswith(".*") and pattern.partition(".")[0] == key.partition(".")[0])
