"""x-modulus-hash: the routing key's hash modulo the number of bindings (RabbitMQ's sharding plugin)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from leveret.broker.kinds.envelope import Envelope
from leveret.broker.kinds.matcher import Matcher
from leveret.broker.names import RandomBytes
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.binding import Binding


class ModulusHash(Matcher):
    def __init__(self, bindings: dict[int, Binding], arguments: dict[str, Value], random_bytes: RandomBytes) -> None:
        super().__init__(bindings, arguments, random_bytes)
        self._sorted: list[Binding] = []

    def add(self, binding: Binding) -> None:
        self._sorted.clear()

    def remove(self, binding: Binding) -> None:
        self._sorted.clear()

    def match(self, envelope: Envelope) -> list[Binding]:
        if not self.bindings:
            return []
        if not self._sorted:
            # by name, so that the order in which queues were bound, and a restart, change nothing
            self._sorted = sorted(self.bindings.values(), key=_order)
        octets = "\0".join(envelope.keys).encode("utf-8", "surrogateescape")
        return [self._sorted[zlib.crc32(octets) % len(self._sorted)]]


def _order(binding: Binding) -> tuple[str, str, bytes]:
    return binding.key, binding.destination.name, binding.arguments
