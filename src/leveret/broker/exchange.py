"""An exchange: which of its bindings take a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.binding import Binding
from leveret.broker.delay import DELAYED, DELAYED_TYPE
from leveret.broker.headers import matches
from leveret.broker.topic import Trie
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.schedule import Schedule

KINDS: Final = ("direct", "fanout", "topic", "headers", DELAYED)


class Exchange:
    """kind: its type; matching: the type by whose rules it chooses among its bindings. outgoing: those, by identity.

    schedule: what it holds, None if it is not delayed.
    """

    def __init__(
        self, name: str, kind: str, durable: bool, auto_delete: bool, internal: bool, arguments: dict[str, Value]
    ) -> None:
        self.name = name
        self.kind = kind
        self.is_delayed = kind == DELAYED
        self.matching = str(arguments[DELAYED_TYPE]) if self.is_delayed else kind
        self.schedule: Schedule | None = None
        self.durable = durable
        self.is_journalled = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        alternate = arguments.get("alternate-exchange")
        # where messages go that no binding takes; it need not exist
        self.alternate: str | None = alternate if isinstance(alternate, str) else None
        self.bindings: dict[tuple[str, str, bytes], Binding] = {}  # those of which it is the destination
        self.outgoing: dict[int, Binding] = {}
        self._by_key: dict[str, list[Binding]] = {}
        self._trie = Trie()

    def add(self, binding: Binding) -> None:
        """Put a new binding of this exchange into its index."""
        self.outgoing[id(binding)] = binding
        if self.matching == "topic":
            self._trie.add(binding)
        elif self.matching == "direct":
            self._by_key.setdefault(binding.key, []).append(binding)

    def remove(self, binding: Binding) -> None:
        """Take a binding of this exchange out of its index."""
        del self.outgoing[id(binding)]
        if self.matching == "topic":
            self._trie.remove(binding)
        elif self.matching == "direct":
            same = self._by_key[binding.key]
            same.remove(binding)
            if not same:
                del self._by_key[binding.key]

    def match(self, key: str, headers: dict[str, Value]) -> list[Binding]:
        """The bindings that take a message with this routing key and these headers."""
        if self.matching == "fanout":
            return list(self.outgoing.values())
        if self.matching == "direct":
            return self._by_key.get(key, [])
        if self.matching == "topic":
            return self._trie.match(key)
        return [binding for binding in self.outgoing.values() if matches(binding.arguments, headers)]
