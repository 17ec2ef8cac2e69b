"""x-recent-history: a fanout exchange that keeps its last messages for later bindings (RabbitMQ's plugin)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.exchange_arguments import LENGTH
from leveret.broker.exchange_types.matcher import Matcher
from leveret.broker.names import RandomBytes
from leveret.broker.storage.log import meta_record
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding, Bindings, Destination

NO_STORE: Final = b"x-recent-history-no-store"
LENGTH_DEFAULT: Final = 20
# of one history; each message counts with its size in memory, which is KEPT_OCTETS more than its content
HISTORY_OCTETS_MAX: Final[i64] = 64 << 20
KEPT_OCTETS: Final[i64] = 400
# of all histories, at the beginning of each journal file
SNAPSHOT_OCTETS_MAX: Final = 16 << 20


class Kept(Envelope):
    """A message in the history. Its number grows with each message of its exchange; the journal may have one twice."""

    def __init__(self, keys: list[str], key: bytes, content: bytes, number: int) -> None:
        super().__init__(keys, key, content)
        self.number = number

    def record(self, vhost: str, exchange: str) -> bytes:
        """Return the journal's record of it."""
        fields: dict[str, Value] = {"op": "history", "vhost": vhost, "exchange": exchange, "number": self.number}
        return meta_record(fields | {"key": self.key, "content": self.content})


class RecentHistory(Matcher):
    """The matcher of x-recent-history."""

    def __init__(
        self, outgoing: dict[Destination, Bindings], arguments: dict[str, Value], random_bytes: RandomBytes
    ) -> None:
        super().__init__(outgoing, arguments, random_bytes)
        self.is_per_message = True
        length = arguments.get(LENGTH)
        self._length = length if isinstance(length, int) else LENGTH_DEFAULT
        self._octets: i64 = 0
        self._number = 0
        self.history: deque[Kept] = deque()  # the last messages, oldest first, without those with the no-store header
        self.news: Kept | None = None  # the last message, if it was kept; the journal of a durable exchange records it

    def match(self, envelope: Envelope) -> list[Binding]:
        self.news = None
        if envelope.headers().get(NO_STORE) != b"t\1":
            self.news = Kept(envelope.keys, envelope.key, envelope.content, self._number + 1)
            self._keep(self.news)
        return self.all()

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        return self.find_all(found)

    def restore(self, kept: Kept) -> None:
        """Add a message of the history from the journal, in its order."""
        if kept.number > self._number:
            self._keep(kept)

    def newest(self, octets: int) -> list[Kept]:
        """Return the last messages that fit into `octets` together, oldest first."""
        found: list[Kept] = []
        for kept in reversed(self.history):
            octets -= len(kept.content)
            if octets < 0:
                break
            found.append(kept)
        return found[::-1]

    def _keep(self, kept: Kept) -> None:
        self._number = kept.number
        self.history.append(kept)
        self._octets += len(kept.content) + KEPT_OCTETS
        while len(self.history) > self._length or self._octets > HISTORY_OCTETS_MAX:
            self._octets -= len(self.history.popleft().content) + KEPT_OCTETS
