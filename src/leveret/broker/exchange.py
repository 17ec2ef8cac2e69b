"""An exchange: its declaration, its bindings, and the matcher that chooses among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.binding import Binding, Bindings, Destination
from leveret.broker.counters import Passage
from leveret.broker.delay import DELAYED, DELAYED_TYPE
from leveret.broker.exchange_types.recent_history import RecentHistory
from leveret.broker.exchange_types.table import KINDS
from leveret.broker.names import RandomBytes
from leveret.broker.policies import NO_EFFECT, Effect
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.schedule import Schedule


class Exchange:
    """kind: the name of its type. outgoing: the bindings of which it is the source, by their destinations; incoming:
    those of which it is the destination, by their sources. Who has both ends finds the same bindings in both.

    binding_count: how many are outgoing; onward: the exchanges that they lead to. effect: what policies say of it.
    alternate: where messages go that no binding takes, None = nowhere; it need not exist. history: what the journal
    must hear of, None = nothing. schedule: what a delayed one holds, None for others. watch: a number of the watcher
    that hears of its bindings, 0 = none does.
    """

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
        self.kind = kind
        self.durable = durable
        self.is_journalled = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        self.alternate: str | None = None
        self.govern(NO_EFFECT)
        self.incoming: dict[Exchange, Bindings] = {}
        self.outgoing: dict[Destination, Bindings] = {}
        self.binding_count: i64 = 0
        self.onward: dict[Exchange, None] = {}
        self.is_deleted = False
        self.schedule: Schedule | None = None
        self.passage = Passage()
        self.user = ""  # who declared it, if that was since the start
        self.watch = 0
        matching = str(arguments[DELAYED_TYPE]) if kind == DELAYED else kind
        self.matcher = KINDS[matching](self.outgoing, arguments, random_bytes)
        self.history = self.matcher if durable and isinstance(self.matcher, RecentHistory) else None

    def govern(self, effect: Effect) -> None:
        """Policies say this of it from now on; what it was declared with goes first."""
        self.effect = effect
        alternate = self.arguments.get("alternate-exchange", effect.settings.get("alternate-exchange"))
        self.alternate = alternate if isinstance(alternate, str) else None

    def add(self, binding: Binding) -> None:
        """Put in a new binding."""
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
        """Take out a binding."""
        destination = binding.destination
        alike = self.outgoing[destination]
        del alike[binding.identity]
        if not alike:
            self._pop(destination)
        self.binding_count -= 1
        self.matcher.remove(binding)

    def lose(self, destination: Destination) -> Bindings:
        """This destination is gone; returns the bindings to it, which the index has still."""
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
        """All outgoing bindings. Others may come and go meanwhile."""
        for alike in list(self.outgoing.values()):
            for binding in list(alike.values()):
                if self.is_deleted or binding.destination.is_deleted:
                    break
                yield binding

    def record(self, vhost: str) -> dict[str, Value]:
        """The journal's record of it, if it is durable. number: that of its schedule."""
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
