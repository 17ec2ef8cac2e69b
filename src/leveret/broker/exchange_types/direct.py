"""The direct exchange: a binding takes the messages whose routing key equals its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.exchange_types.binding_set import BindingSet, added, removed, take
from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.matcher import STEP, Matcher
from leveret.broker.names import RandomBytes
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding, Bindings, Destination


class Direct(Matcher):
    def __init__(
        self, outgoing: dict[Destination, Bindings], arguments: dict[str, Value], random_bytes: RandomBytes
    ) -> None:
        super().__init__(outgoing, arguments, random_bytes)
        self.is_indexed = True
        self._by_key: dict[str, BindingSet] = {}

    def add(self, binding: Binding) -> None:
        self._by_key[binding.key] = added(self._by_key.get(binding.key), binding)

    def remove(self, binding: Binding) -> None:
        binding_set = removed(self._by_key[binding.key], binding)
        if binding_set is None:
            del self._by_key[binding.key]
        else:
            self._by_key[binding.key] = binding_set

    def match(self, envelope: Envelope) -> list[Binding]:
        found: list[Binding] = []
        for key in envelope.keys:
            take(self._by_key.get(key), found)
        return self.standing(found)

    def weight(self, envelope: Envelope) -> i64:
        return len(envelope.keys)

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        every: list[Binding] = []
        for index, key in enumerate(envelope.keys):
            if index % STEP == 0:
                yield
            take(self._by_key.get(key), every)
        found.extend(self.standing(every))
