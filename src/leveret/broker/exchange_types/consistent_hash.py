"""x-consistent-hash: each routing key, header or property has one destination, by weight (RabbitMQ's plugin).

The binding key is the weight. Each destination bids for a hash, and the highest bid wins (weighted rendezvous hashing):
when a destination is removed, only its own share moves, and a new one takes a part of each other share. Bids depend
neither on the order of the bindings nor on the process, so a restart changes nothing.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.matcher import STEP, Matcher
from leveret.broker.names import RandomBytes
from leveret.broker.queues.queue import Queue
from leveret.broker.terms import binary
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding, Bindings, Destination

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_WORD: Final[i64] = 0xFFFF_FFFF


class Bidder:
    """One destination, which bids with its weight and the hash of its name."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.weight = float(int(binding.key))
        self.hash = hash_of(place(binding.destination).encode("utf-8", "surrogateescape"))

    def bid(self, hash: i64) -> float:
        """Return its bid for a message with this hash."""
        return self.weight / -math.log(fraction(hash, self.hash))


class ConsistentHash(Matcher):
    """The matcher of x-consistent-hash.

    As in the plugin, a destination that is bound twice keeps the weight of its first binding, and loses its share when
    one of the bindings is removed.
    """

    def __init__(
        self, outgoing: dict[Destination, Bindings], arguments: dict[str, Value], random_bytes: RandomBytes
    ) -> None:
        super().__init__(outgoing, arguments, random_bytes)
        header, wanted = arguments.get("hash-header"), arguments.get("hash-property")
        # the header that is hashed
        self._header = header.encode("utf-8", "surrogateescape") if isinstance(header, str) else None
        # the property that is hashed; without either, the routing key is
        self._property = wanted if isinstance(wanted, str) else None
        self.is_per_message = self._header is not None or self._property is not None
        self._shares: dict[str, Bidder] = {}

    def refusal(self, key: str, arguments: bytes) -> str:
        if _INTEGER.fullmatch(key) is None:
            return f"The binding key must be an integer: {binary(key.encode('utf-8', 'surrogateescape'))}"
        return "" if int(key) >= 1 else "The binding key must be greater than 0"

    def add(self, binding: Binding) -> None:
        name = place(binding.destination)
        if name not in self._shares:
            self._shares[name] = Bidder(binding)

    def remove(self, binding: Binding) -> None:
        self.lose(binding.destination)

    def lose(self, destination: Destination) -> None:
        self._shares.pop(place(destination), None)

    def match(self, envelope: Envelope) -> list[Binding]:
        hash = hash_of(self.hashed(envelope))
        best: Bidder | None = None
        highest = 0.0
        for share in self._shares.values():
            bid = share.bid(hash)
            if bid > highest:
                highest = bid
                best = share
        return [best.binding] if best is not None else []

    def weight(self, envelope: Envelope) -> i64:
        return len(self._shares)

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        hash = hash_of(self.hashed(envelope))
        best: Bidder | None = None
        highest = 0.0
        for index, share in enumerate(list(self._shares.values())):
            if index % STEP == 0:
                yield
            bid = share.bid(hash)
            if bid > highest:
                highest = bid
                best = share
        if best is not None:
            found.append(best.binding)

    def share_of(self, binding: Binding) -> Bidder | None:
        """Return the share of a binding's destination, None if it has lost it: see the class."""
        return self._shares.get(place(binding.destination))

    def subject(self) -> str:
        """Return in words what is hashed."""
        if self._header is not None:
            return "header '" + self._header.decode("utf-8", "backslashreplace") + "'"
        return f"property {self._property}" if self._property is not None else "routing key"

    def hashed(self, envelope: Envelope) -> bytes:
        if self._header is not None:
            return envelope.headers().get(self._header, b"")
        if self._property is not None:
            return envelope.property(self._property)
        return envelope.keys[0].encode("utf-8", "surrogateescape")


def place(destination: Destination) -> str:
    """Return a destination's kind and name: a queue and an exchange may have the same name."""
    return ("queue " if isinstance(destination, Queue) else "exchange ") + destination.name


def hash_of(data: bytes) -> i64:
    """Return a hash of 32 bits, the same in every process."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=4).digest(), "big")


def fraction(left: i64, right: i64) -> float:
    """Return a number between 0 and 1, evenly distributed, from two hashes."""
    mixed = left ^ right
    for _ in range(2):
        mixed = (mixed ^ mixed >> 16) * 0x45D9_F3B & _WORD
    mixed = mixed ^ mixed >> 16
    return (float(mixed) + 0.5) / 4294967296.0
