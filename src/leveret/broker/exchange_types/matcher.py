"""The base class of all exchange types' matchers, which is also the fanout exchange."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.names import RandomBytes
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding, Bindings, Destination


# bindings that a trial examines in one step
STEP: Final = 128


class Matcher:
    """How the exchanges of one type choose among their bindings; this one takes all (fanout)."""

    def __init__(
        self, outgoing: dict[Destination, Bindings], arguments: dict[str, Value], random_bytes: RandomBytes
    ) -> None:
        self.outgoing = outgoing  # bindings by destination, maintained by the exchange
        # messages with equal routing keys may have different routes, so it is asked for each
        self.is_per_message = False
        self.is_hop_bound = False  # is_per_message applies only to messages that came over a federation link
        self.is_by_chance = False  # one of the bindings that a trial finds takes each message, at random
        self.is_indexed = False  # bindings have to be removed from an index, in steps if a deleted destination has many
        self.stale_batches: i64 = 0  # batches of stale bindings that are still to be removed (stale_bindings.py)
        # empty after a change; not cleared, because callers may still iterate over the old list
        self._all: list[Binding] = []

    def configure(self, arguments: dict[str, Value]) -> None:
        """Take over other arguments, which a policy has changed."""

    def forget(self, envelope: Envelope) -> None:
        """Undo what `match` has kept of a message, because the message goes no further."""

    def refusal(self, key: str, arguments: bytes) -> str:
        """Return the text of the 406 for a new binding, "" if it is valid."""
        return ""

    def add(self, binding: Binding) -> None:
        """Put a new binding into the index, if there is one."""
        self._all = []

    def remove(self, binding: Binding) -> None:
        """Remove a binding from the index."""
        self._all = []

    def lose(self, destination: Destination) -> None:
        """Handle a deleted destination. If is_indexed, `remove` takes each of its bindings out of the index later."""
        self._all = []

    def weight(self, envelope: Envelope) -> i64:
        """Return about how many bindings `match` examines, 0 = few; for many, a publish uses `trial`."""
        return 0 if self._all or self.is_per_message else len(self.outgoing)

    def standing(self, found: list[Binding]) -> list[Binding]:
        """Return these bindings without those whose destinations are deleted."""
        if self.stale_batches == 0:
            return found
        return [binding for binding in found if not binding.destination.is_deleted]

    def match(self, envelope: Envelope) -> list[Binding]:
        """Return the bindings that take a message, some maybe twice. Callers must not change the list."""
        return self.all()

    def all(self) -> list[Binding]:
        """Return all bindings, collected anew after a change."""
        if not self._all:
            for alike in self.outgoing.values():
                self._all.extend(alike.values())
        return self._all

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        """Find the bindings that would take a message, in steps and without side effects.

        Nothing is stored and no random choice is made: if is_by_chance, all candidates are found. Of bindings that are
        added or removed between steps, some are found.
        """
        return self.find_all(found)

    def find_all(self, found: list[Binding]) -> Iterator[None]:
        """Find all bindings, as a trial."""
        for alike in list(self.outgoing.values()):
            for binding in list(alike.values()):
                if len(found) % STEP == 0:
                    yield
                found.append(binding)
