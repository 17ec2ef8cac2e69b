"""An exchange: its declaration, its bindings, and the matcher that chooses among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.counters import Passage
from leveret.broker.delayed.delay import DELAYED, DELAYED_TYPE
from leveret.broker.exchange_types.exchange_arguments import ALTERNATE, EXCHANGE
from leveret.broker.exchange_types.recent_history import RecentHistory
from leveret.broker.exchange_types.table import KINDS
from leveret.broker.exchanges.binding import Binding, Bindings, Destination
from leveret.broker.names import RandomBytes
from leveret.broker.policies import NO_EFFECT, Effect
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.delayed.schedule import Schedule


class Exchange:
    """An exchange; each binding is in `outgoing` of its source and in `incoming` of its destination."""

    def __init__(
        self,
        name: str,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, Value],
        random_bytes: RandomBytes,
    ) -> None:
        self.name = name
        self.kind = kind  # the name of its type
        self.durable = durable
        self.is_journalled = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        self.alternate: str | None = None  # the alternate exchange, which need not exist; None = none
        self.incoming: dict[Exchange, Bindings] = {}  # bindings to it, by source
        self.outgoing: dict[Destination, Bindings] = {}  # bindings from it, by destination
        self.binding_count: i64 = 0  # number of outgoing bindings
        self.onward: dict[Exchange, None] = {}  # the exchanges among its destinations
        self.is_deleted = False
        self.schedule: Schedule | None = None  # of a delayed exchange: its messages
        self.passage = Passage()
        self.user = ""  # the user that declared it, if that was since the start
        self.watch = 0  # number under which the watcher hears of its bindings, 0 = it does not
        matching = str(arguments[DELAYED_TYPE]) if kind == DELAYED else kind
        self.matcher = KINDS[matching](self.outgoing, arguments, random_bytes)
        # a recent history that the journal must record, if it is durable
        self.history = self.matcher if durable and isinstance(self.matcher, RecentHistory) else None
        self.govern(NO_EFFECT)

    def govern(self, effect: Effect) -> None:
        """Apply the effect of policies, which exchange_arguments.py combines with its own arguments."""
        self.effect = effect
        arguments = effect.on(self.arguments, EXCHANGE)
        alternate = arguments.get(ALTERNATE)
        self.alternate = alternate if isinstance(alternate, str) else None
        self.matcher.configure(arguments)

    def add(self, binding: Binding) -> None:
        """Add a new binding."""
        destination = binding.destination
        alike = self.outgoing.get(destination)
        if alike is None:
            alike = self.outgoing[destination] = destination.incoming[self] = {}
            if isinstance(destination, Exchange):
                self.onward[destination] = None
        alike[binding.identity] = binding
        self.binding_count += 1
        self.matcher.add(binding)

    def remove(self, binding: Binding) -> None:
        """Remove a binding."""
        destination = binding.destination
        alike = self.outgoing[destination]
        del alike[binding.identity]
        if not alike:
            self._pop(destination)
        self.binding_count -= 1
        self.matcher.remove(binding)

    def lose(self, destination: Destination) -> Bindings:
        """Remove and return all bindings to a deleted destination; the matcher still has them for a while."""
        lost = self._pop(destination)
        self.binding_count -= len(lost)
        self.matcher.lose(destination)
        return lost

    def _pop(self, destination: Destination) -> Bindings:
        if isinstance(destination, Exchange):
            del self.onward[destination]
        del destination.incoming[self]
        return self.outgoing.pop(destination)

    def every(self) -> Iterator[Binding]:
        """Yield all outgoing bindings; others may be added and removed meanwhile."""
        for alike in list(self.outgoing.values()):
            for binding in list(alike.values()):
                if self.is_deleted or binding.destination.is_deleted:
                    break
                yield binding

    def record(self, vhost: str) -> dict[str, Value]:
        """Return the journal record of a durable exchange. number: that of its schedule."""
        record: dict[str, Value] = {
            "op": "exchange.declare",
            "vhost": vhost,
            "name": self.name,
            "type": self.kind,
            "auto_delete": self.auto_delete,
            "internal": self.internal,
            "arguments": self.arguments,
        }
        if self.schedule is not None:
            record["number"] = int(self.schedule.number)
        return record
