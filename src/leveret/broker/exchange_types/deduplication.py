"""x-message-deduplication: a fanout exchange that routes no message whose key it has seen (a community plugin's).

The plugin is rabbitmq-message-deduplication. A key is a message's x-deduplication-header (deduplication_key.py);
messages without one are always routed. A duplicate has no route: it goes to the alternate exchange, or is returned if
it is mandatory. The cache is in memory, so it is empty after a restart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.exchange_arguments import CACHE_SIZE, CACHE_TTL, number
from leveret.broker.exchange_types.matcher import Matcher
from leveret.broker.messages.deduplication_key import KEPT_OCTETS, cache_ttl_ms, key_of
from leveret.broker.names import RandomBytes
from leveret.broker.queues.queue_arguments import TTL_MS_MAX
from leveret.broker.timers import Timers
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding, Bindings, Destination

# keys that are removed with each new one while there are too many, or while they have expired
REMOVED_MAX: Final = 4


class KeyCache:
    """Keys that an exchange has seen, each for a time; the oldest make room for new ones."""

    def __init__(self) -> None:
        self.size = 1  # how many keys it may have
        self.ttl_ms = -1  # how long it has them, -1 = until they make room
        self._until_us: OrderedDict[bytes, int] = OrderedDict()  # when each expires, 0 = never; the oldest in front

    def has(self, key: bytes, now_us: i64) -> bool:
        """Return whether the key is here and has not expired."""
        until_us = self._until_us.get(key, -1)
        return until_us == 0 or until_us > now_us

    def add(self, key: bytes, now_us: i64, ttl_ms: int) -> None:
        """Add a key that is not here, or has expired. ttl_ms: for how long, -1 = without a limit."""
        until = self._until_us
        until.pop(key, None)
        room = REMOVED_MAX
        while until and room > 0:
            oldest = next(iter(until))
            if len(until) < self.size and not 0 < until[oldest] <= now_us:
                break
            del until[oldest]
            room -= 1
        until[key] = int(now_us) + min(ttl_ms, TTL_MS_MAX) * 1000 if ttl_ms >= 0 else 0

    def remove(self, key: bytes) -> None:
        """Remove a key if it is here."""
        self._until_us.pop(key, None)

    def count(self) -> int:
        """Return how many keys it has, expired ones among them."""
        return len(self._until_us)

    def octets(self) -> int:
        """Return its memory, approximately."""
        return len(self._until_us) * int(KEPT_OCTETS)


class Deduplication(Matcher):
    """The matcher of x-message-deduplication."""

    def __init__(
        self, outgoing: dict[Destination, Bindings], arguments: dict[str, Value], random_bytes: RandomBytes
    ) -> None:
        super().__init__(outgoing, arguments, random_bytes)
        self.is_per_message = True
        self.cache = KeyCache()
        self.timers = Timers()  # the virtual host's, for the time
        self.configure(arguments)

    def configure(self, arguments: dict[str, Value]) -> None:
        self.cache.size = max(number(arguments.get(CACHE_SIZE)), 1)
        self.cache.ttl_ms = number(arguments.get(CACHE_TTL))

    def match(self, envelope: Envelope) -> list[Binding]:
        key = key_of(envelope.content)
        if key:
            now_us = self.timers.now_us
            if self.cache.has(key, now_us):
                envelope.is_duplicate = True
                return []
            self.cache.add(key, now_us, cache_ttl_ms(envelope.content, self.cache.ttl_ms))
            if envelope.seen_by is None:
                envelope.seen_by = []
            envelope.seen_by.append(self)
        return self.all()

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        return self.find_all([] if self.is_duplicate(envelope) else found)

    def is_duplicate(self, envelope: Envelope) -> bool:
        """Return whether a message would not be routed now."""
        key = key_of(envelope.content)
        return key != b"" and self.cache.has(key, self.timers.now_us)

    def forget(self, envelope: Envelope) -> None:
        self.cache.remove(key_of(envelope.content))
