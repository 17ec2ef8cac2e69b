"""x-random: each message goes to one of the bindings, chosen at random (RabbitMQ's plugin)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.matcher import Matcher
from leveret.broker.names import RandomBytes
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding, Bindings, Destination


class RandomChoice(Matcher):
    def __init__(
        self, outgoing: dict[Destination, Bindings], arguments: dict[str, Value], random_bytes: RandomBytes
    ) -> None:
        super().__init__(outgoing, arguments, random_bytes)
        self.is_per_message = True
        self.is_by_chance = True
        self._random_bytes = random_bytes

    def match(self, envelope: Envelope) -> list[Binding]:
        bindings = self.all()
        if not bindings:
            return []
        return [bindings[int.from_bytes(self._random_bytes(4), "big") % len(bindings)]]

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        return self.find_all(found)
