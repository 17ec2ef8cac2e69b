"""The direct exchange: a binding takes the messages whose routing key is its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from leveret.broker.kinds.envelope import Envelope
from leveret.broker.kinds.matcher import Matcher
from leveret.broker.names import RandomBytes
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.binding import Binding


class Direct(Matcher):
    def __init__(self, bindings: dict[int, Binding], arguments: dict[str, Value], random_bytes: RandomBytes) -> None:
        super().__init__(bindings, arguments, random_bytes)
        self._by_key: dict[str, dict[int, Binding]] = {}

    def add(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.key, {})[id(binding)] = binding

    def remove(self, binding: Binding) -> None:
        same = self._by_key[binding.key]
        del same[id(binding)]
        if not same:
            del self._by_key[binding.key]

    def match(self, envelope: Envelope) -> list[Binding]:
        found: list[Binding] = []
        for key in envelope.keys:
            same = self._by_key.get(key)
            if same is not None:
                found.extend(same.values())
        return found

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        yield
        found.extend(self.match(envelope))
