"""x-modulus-hash: the routing key's hash modulo the number of bindings (RabbitMQ's sharding plugin)."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from leveret.broker.kinds.envelope import Envelope
from leveret.broker.kinds.matcher import STEP, Matcher
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
        return [self._sorted[place_of(envelope.keys, len(self._sorted))]]

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        chunks: list[list[Binding]] = []
        for index, binding in enumerate(self.bindings.values()):
            if index % STEP == 0:
                yield
                chunks.append([])
            chunks[-1].append(binding)
        for chunk in chunks:
            chunk.sort(key=_order)
            yield
        wanted = place_of(envelope.keys, len(self.bindings)) if chunks else -1
        for index, binding in enumerate(heapq.merge(*chunks, key=_order)):
            if index == wanted:
                found.append(binding)
                break
            if index % STEP == 0:
                yield


def place_of(keys: list[str], count: int) -> int:
    """Which of so many bindings, by key and destination, takes a message with these routing keys; from 0 on."""
    octets = "\0".join(keys).encode("utf-8", "surrogateescape")
    return zlib.crc32(octets) % count


def _order(binding: Binding) -> tuple[str, str, bytes]:
    return binding.key, binding.destination.name, binding.arguments
