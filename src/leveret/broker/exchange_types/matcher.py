"""What the matchers of all exchange types have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.names import RandomBytes
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding, Bindings, Destination


# bindings that a trial looks at in one step
STEP: Final = 128


class Matcher:
    """How the exchanges of one type choose among their bindings; this one takes all (fanout).

    outgoing: the bindings of the exchange, by their destinations, kept by the exchange. arguments: of its declaration.
    is_per_message: messages with equal routing keys may take different ways, so each is asked for; is_hop_bound: unless
    it has not come over a link; is_by_chance: of the bindings that a trial finds, one takes each message. is_indexed:
    each binding has to be taken out of an index, which is not done at once where a destination goes with very many;
    stale_batches: how many batches of stale bindings are still to be removed (stale_bindings.py).
    """

    def __init__(
        self, outgoing: dict[Destination, Bindings], arguments: dict[str, Value], random_bytes: RandomBytes
    ) -> None:
        self.outgoing = outgoing
        self.is_per_message = False
        self.is_hop_bound = False
        self.is_by_chance = False
        self.is_indexed = False
        self.stale_batches: i64 = 0
        self._all: list[Binding] = []  # empty: they have changed; others may still follow the list that was

    def refusal(self, key: str, arguments: bytes) -> str:
        """The text of the 406 that a new binding deserves, "" if it is fine."""
        return ""

    def add(self, binding: Binding) -> None:
        """Put a new binding into the index, if there is one."""
        self._all = []

    def remove(self, binding: Binding) -> None:
        """Take a binding out of the index."""
        self._all = []

    def lose(self, destination: Destination) -> None:
        """A destination is gone. Where it is_indexed, `remove` takes each binding to it out of the index later."""
        self._all = []

    def weight(self, envelope: Envelope) -> i64:
        """How much `match` has to look at, about; 0 = little. Where it is much, a publish prefers `trial`."""
        return 0 if self._all or self.is_per_message else len(self.outgoing)

    def standing(self, found: list[Binding]) -> list[Binding]:
        """Without those that are gone."""
        if self.stale_batches == 0:
            return found
        return [binding for binding in found if not binding.destination.is_deleted]

    def match(self, envelope: Envelope) -> list[Binding]:
        """The bindings that take a message; one may come twice. Not to be changed."""
        return self.all()

    def all(self) -> list[Binding]:
        """All bindings, gathered when they have changed."""
        if not self._all:
            for alike in self.outgoing.values():
                self._all.extend(alike.values())
        return self._all

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        """Find the bindings that would take a message, in steps and without a trace: nothing is kept, no chance is
        drawn. What is by chance finds all among which it would draw. Of the bindings that come or go between steps,
        some are found."""
        return self.find_all(found)

    def find_all(self, found: list[Binding]) -> Iterator[None]:
        """A trial that finds all bindings."""
        for alike in list(self.outgoing.values()):
            for binding in list(alike.values()):
                if len(found) % STEP == 0:
                    yield
                found.append(binding)
