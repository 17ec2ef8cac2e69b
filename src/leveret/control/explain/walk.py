"""The way of one message through the exchanges, step by step and without a trace.

Each exchange's matcher is tried (`Matcher.trial`), and what follows from its bindings is what follows for a message
that is published (`routing.follow`, `routing.alternate_of`, `routing.holds_us`): there is no second opinion.
"""

from __future__ import annotations

from typing import Final, TypeVar

from leveret.broker import routing
from leveret.broker.binding import Binding
from leveret.broker.exchange import Exchange
from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.queue import Queue
from leveret.broker.vhost import VHost
from leveret.control.sliced import CHUNK, Steps

Item = TypeVar("Item")
# bindings by which a message came to one place that are remembered
EXPIRY_ROUTES_MAX: Final = 3


class Visit:
    """What happens at one exchange. found: the bindings that take the message; held_us: how long a delayed exchange
    keeps it before it goes on, 0 = not at all; alternate: where it goes because nothing takes it."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.found: list[Binding] = []
        self._taken: set[int] = set()
        self.held_us = 0
        self.alternate: Exchange | None = None

    def note(self, part: list[Binding]) -> None:
        """Some of those that it has found."""
        self._taken.update(map(id, part))

    def takes(self, binding: Binding) -> bool:
        """Whether a binding is among those that it has found."""
        return id(binding) in self._taken

    @property
    def count(self) -> int:
        """How many those are."""
        return len(self._taken)

    @property
    def is_by_chance(self) -> bool:
        """Whether one of several bindings takes the message, and nobody can say which."""
        return self.exchange.matcher.is_by_chance and len(self.found) > 1


class Walk:
    """visits: by exchange, in order; queues: that the message may reach; certain, certain_exchanges: the names of those
    that it reaches whatever chance decides; ways: the first bindings that lead to a place, by `place_of`."""

    def __init__(self, vhost: VHost, exchange: Exchange, envelope: Envelope) -> None:
        self.vhost = vhost
        self.start = exchange
        self.envelope = envelope
        self.visits: dict[str, Visit] = {}
        self.queues: dict[str, Queue] = {}
        self.certain: set[str] = set()
        self.certain_exchanges: set[str] = set()
        self.ways: dict[tuple[bool, str], list[Binding]] = {}
        self.alternates: dict[str, str] = {}  # exchange -> the one whose alternate it is, where that was the way

    def steps(self) -> Steps[None]:
        """Go all the way. ProtocolError for an x-delay that is none, as a publisher would be told."""
        seen = {self.start.name}
        todo = [self.start]
        while todo:
            visit = Visit(todo.pop())
            self.visits[visit.exchange.name] = visit
            visit.held_us = int(routing.holds_us(visit.exchange, self.envelope))
            if visit.held_us > 0:
                continue
            for _ in visit.exchange.matcher.trial(self.envelope, visit.found):
                yield
            yield from self._go_on(visit, self.queues, seen, todo, True)
        yield from self._find_certain()

    def _go_on(
        self, visit: Visit, queues: dict[str, Queue], seen: set[str], todo: list[Exchange], notes: bool
    ) -> Steps[None]:
        if not visit.found:
            visit.alternate = routing.alternate_of(self.vhost, visit.exchange)
            if visit.alternate is not None and visit.alternate.name not in seen:
                seen.add(visit.alternate.name)
                todo.append(visit.alternate)
                self.alternates[visit.alternate.name] = visit.exchange.name
        for start in range(0, len(visit.found), CHUNK):
            part = visit.found[start : start + CHUNK]
            routing.follow(part, queues, seen, todo)
            visit.note(part)
            for binding in part if notes else ():
                ways = self.ways.setdefault(place_of(binding), [])
                if len(ways) < EXPIRY_ROUTES_MAX:
                    ways.append(binding)
            yield

    def _find_certain(self) -> Steps[None]:
        """The same way once more, but not beyond a decision by chance."""
        if not any(visit.is_by_chance for visit in self.visits.values()):
            self.certain = set(self.queues)
            self.certain_exchanges = set(self.visits)
            return
        found: dict[str, Queue] = {}
        seen = {self.start.name}
        todo = [self.start]
        while todo:
            visit = self.visits[todo.pop().name]
            if visit.held_us == 0 and not visit.is_by_chance:
                yield from self._go_on(visit, found, seen, todo, False)
        self.certain = set(found)
        self.certain_exchanges = seen

    def is_second_way(self, binding: Binding) -> bool:
        """Whether a binding leads to an exchange that has the message already, so that it is not gone again."""
        name = binding.destination.name
        if isinstance(binding.destination, Queue):
            return False
        first = self.ways.get(place_of(binding), [binding])[0]
        return name == self.start.name or name in self.alternates or first is not binding


class Changed(Exception):
    """Exchanges, queues or bindings changed while a way was looked for, so it can't go on."""


def steady(vhost: VHost, steps: Steps[Item]) -> Steps[Item]:
    """The same steps, as long as nothing changes between them. Changed if something does."""
    generation = int(vhost.generation)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Item = end.value
            return found
        yield
        if int(vhost.generation) != generation:
            raise Changed


def place_of(binding: Binding) -> tuple[bool, str]:
    """Where a binding leads: whether that is a queue, and its name."""
    return isinstance(binding.destination, Queue), binding.destination.name
