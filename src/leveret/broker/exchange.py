"""An exchange: its declaration, its bindings, and the matcher that chooses among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.binding import Binding
from leveret.broker.counters import Passage
from leveret.broker.delay import DELAYED, DELAYED_TYPE
from leveret.broker.kinds.recent_history import RecentHistory
from leveret.broker.kinds.table import KINDS
from leveret.broker.names import RandomBytes
from leveret.broker.policies import NO_EFFECT, Effect
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.schedule import Schedule


class Exchange:
    """kind: the name of its type. bindings: those of which it is the destination; outgoing: of which it is the source.

    onward: those of outgoing that lead to exchanges. effect: what policies say of it. alternate: where messages go that
    no binding takes, None = nowhere; it need not exist. history: what the journal must hear of, None = nothing.
    schedule: what a delayed one holds, None for others.
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
        self.bindings: dict[tuple[str, str, bytes], Binding] = {}
        self.outgoing: dict[int, Binding] = {}
        self.onward: dict[int, Binding] = {}
        self.schedule: Schedule | None = None
        self.passage = Passage()
        self.user = ""  # who declared it, if that was since the start
        self.is_watched = False  # the watcher hears of its bindings
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
        self.outgoing[id(binding)] = binding
        if isinstance(binding.destination, Exchange):
            self.onward[id(binding)] = binding
        self.matcher.add(binding)

    def remove(self, binding: Binding) -> None:
        """Take out a binding."""
        del self.outgoing[id(binding)]
        self.onward.pop(id(binding), None)
        self.matcher.remove(binding)

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
