"""Routes one message through the exchanges, step by step and without side effects.

Each exchange's matcher is tried (`Matcher.trial`), and its bindings are followed by the same functions as for a
published message (`routing.follow`, `routing.alternate_of`, `routing.holds_us`), so the results cannot differ.
"""

from __future__ import annotations

from typing import Final, TypeVar

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchanges import routing
from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.queues.queue import Queue
from leveret.broker.vhost import VHost
from leveret.control.sliced import CHUNK, Steps

Item = TypeVar("Item")
# bindings remembered for one destination
EXPIRY_ROUTES_MAX: Final = 3


class Visit:
    """What happens to the message at one exchange."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.found: list[Binding] = []  # the bindings that take the message
        self._taken: set[int] = set()
        self.held_us = 0  # how long a delayed exchange holds it, 0 = not at all
        self.alternate: Exchange | None = None  # the alternate exchange, if no binding takes it

    def note(self, part: list[Binding]) -> None:
        """Remember some of the bindings that were found."""
        self._taken.update(map(id, part))

    def takes(self, binding: Binding) -> bool:
        """Return whether a binding was found."""
        return id(binding) in self._taken

    @property
    def count(self) -> int:
        """The number of bindings found."""
        return len(self._taken)

    @property
    def is_by_chance(self) -> bool:
        """Whether one of several bindings takes the message at random."""
        return self.exchange.matcher.is_by_chance and len(self.found) > 1


class Walk:
    """The route of a message from an exchange."""

    def __init__(self, vhost: VHost, exchange: Exchange, envelope: Envelope) -> None:
        self.vhost = vhost
        self.start = exchange
        self.envelope = envelope
        self.visits: dict[str, Visit] = {}  # by exchange, in order
        self.queues: dict[str, Queue] = {}  # the message may reach them
        self.certain: set[str] = set()  # queues that it reaches whatever random choices are made
        self.certain_exchanges: set[str] = set()  # exchanges that it reaches so
        self.ways: dict[tuple[bool, str], list[Binding]] = {}  # first bindings to a destination, by `place_of`
        self.alternates: dict[str, str] = {}  # alternate exchange -> the exchange by which it was reached

    def steps(self) -> Steps[None]:
        """Follow the whole route. Raises ProtocolError for an invalid x-delay, with the text for publishers."""
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
        """Follow the route again, but not beyond random choices."""
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
        """Return whether a binding leads to an exchange that has the message already, so it is not followed."""
        name = binding.destination.name
        if isinstance(binding.destination, Queue):
            return False
        first = self.ways.get(place_of(binding), [binding])[0]
        return name == self.start.name or name in self.alternates or first is not binding


class Changed(Exception):
    """Exchanges, queues or bindings changed during a walk, so it can't continue."""


def steady(vhost: VHost, steps: Steps[Item]) -> Steps[Item]:
    """Do the same steps as long as nothing changes between them. Raises Changed otherwise."""
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
    """Return the destination of a binding: whether it is a queue, and its name."""
    return isinstance(binding.destination, Queue), binding.destination.name
