"""x-random: each message to one of the bindings, by chance (RabbitMQ's plugin)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from leveret.broker.kinds.envelope import Envelope
from leveret.broker.kinds.matcher import Matcher
from leveret.broker.names import RandomBytes
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.binding import Binding


class AnyOne(Matcher):
    def __init__(self, bindings: dict[int, Binding], arguments: dict[str, Value], random_bytes: RandomBytes) -> None:
        super().__init__(bindings, arguments, random_bytes)
        self.is_per_message = True
        self.is_by_chance = True
        self._random_bytes = random_bytes
        self._all: list[Binding] = []

    def add(self, binding: Binding) -> None:
        self._all.clear()

    def remove(self, binding: Binding) -> None:
        self._all.clear()

    def match(self, envelope: Envelope) -> list[Binding]:
        if not self.bindings:
            return []
        if not self._all:
            self._all = list(self.bindings.values())
        return [self._all[int.from_bytes(self._random_bytes(4), "big") % len(self._all)]]

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        return self.all(found)
