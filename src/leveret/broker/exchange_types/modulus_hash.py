"""x-modulus-hash: the routing key's hash modulo the number of bindings (RabbitMQ's sharding plugin)."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.matcher import STEP, Matcher
from leveret.broker.names import RandomBytes
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding, Bindings, Destination


class ModulusHash(Matcher):
    def __init__(
        self, outgoing: dict[Destination, Bindings], arguments: dict[str, Value], random_bytes: RandomBytes
    ) -> None:
        super().__init__(outgoing, arguments, random_bytes)
        self._sorted: list[Binding] = []

    def add(self, binding: Binding) -> None:
        self._sorted.clear()

    def remove(self, binding: Binding) -> None:
        self._sorted.clear()

    def lose(self, destination: Destination) -> None:
        self._sorted.clear()

    def match(self, envelope: Envelope) -> list[Binding]:
        if not self.outgoing:
            return []
        if not self._sorted:
            # sorted by name, so that neither the order of the declarations nor a restart changes the result
            self._sorted = sorted([each for alike in self.outgoing.values() for each in alike.values()], key=_order)
        return [self._sorted[place_of(envelope.keys, len(self._sorted))]]

    def weight(self, envelope: Envelope) -> i64:
        return 0 if self._sorted else len(self.outgoing)

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        bindings: list[Binding] = []
        yield from self.find_all(bindings)
        chunks: list[list[Binding]] = []
        for start in range(0, len(bindings), STEP):
            chunks.append(sorted(bindings[start : start + STEP], key=_order))
            yield
        wanted = place_of(envelope.keys, len(bindings)) if bindings else -1
        for index, binding in enumerate(heapq.merge(*chunks, key=_order)):
            if index == wanted:
                found.append(binding)
                break
            if index % STEP == 0:
                yield


def place_of(keys: list[str], count: int) -> int:
    """Return the index, among `count` sorted bindings, of the one that takes a message with these routing keys."""
    octets = "\0".join(keys).encode("utf-8", "surrogateescape")
    return zlib.crc32(octets) % count


def _order(binding: Binding) -> tuple[str, str, bytes]:
    return binding.key, binding.destination.name, binding.arguments
