"""What the matchers of all exchange types have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from leveret.broker.kinds.envelope import Envelope
from leveret.broker.names import RandomBytes
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.binding import Binding


# bindings that a trial looks at in one step
STEP: Final = 128


class Matcher:
    """How the exchanges of one type choose among their bindings; this one takes all (fanout).

    bindings: those of the exchange, by identity, kept by the exchange. arguments: of its declaration. is_per_message:
    messages with equal routing keys may take different ways, so each is asked for; is_hop_bound: unless it has not come
    over a link; is_by_chance: of the bindings that a trial finds, one takes each message.
    """

    def __init__(self, bindings: dict[int, Binding], arguments: dict[str, Value], random_bytes: RandomBytes) -> None:
        self.bindings = bindings
        self.is_per_message = False
        self.is_hop_bound = False
        self.is_by_chance = False

    def refusal(self, key: str, arguments: bytes) -> str:
        """The text of the 406 that a new binding deserves, "" if it is fine."""
        return ""

    def add(self, binding: Binding) -> None:
        """Put a new binding into the index, if there is one."""

    def remove(self, binding: Binding) -> None:
        """Take a binding out of the index."""

    def match(self, envelope: Envelope) -> list[Binding]:
        """The bindings that take a message; one may come twice."""
        return list(self.bindings.values())

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        """Find the bindings that would take a message, in steps and without a trace: nothing is kept, no chance is
        drawn. What is by chance finds all among which it would draw. Between steps no binding must come or go."""
        return self.all(found)

    def all(self, found: list[Binding]) -> Iterator[None]:
        """A trial that finds all bindings."""
        for index, binding in enumerate(self.bindings.values()):
            if index % STEP == 0:
                yield
            found.append(binding)
