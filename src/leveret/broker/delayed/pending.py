"""Figures of delayed messages: how many wait for each destination, and which are due first."""

from __future__ import annotations

from heapq import heappush, heappushpop

from mypy_extensions import i64

from leveret.broker.delayed.holder import HeldPart
from leveret.broker.delayed.search import Visitor
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch


class Pending:
    """The delayed messages for one destination."""

    def __init__(self, vhost: str, layout: str, is_exchange: bool, destination: str) -> None:
        self.vhost = vhost
        self.layout = layout
        self.is_exchange = is_exchange
        self.destination = destination
        self.count: i64 = 0  # messages that still wait
        self.undeliverable: i64 = 0  # messages that are due but have no route
        self.next_us: i64 = 0  # due time of the first one, 0 = none
        self.last_us: i64 = 0  # due time of the last one


class PendingTotals(Visitor):
    """Counts messages by layout and destination."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, bool, str], Pending] = {}

    def see(self, part: HeldPart, item: Entry | MessageBatch, count: i64) -> None:
        holder = part.holder
        address = holder.address(item.buffer.key if isinstance(item, MessageBatch) else item.key)
        vhost, is_exchange = holder.queue.vhost.name, holder.level < 0
        key = (vhost, holder.layout, is_exchange, address.destination)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = Pending(vhost, holder.layout, is_exchange, address.destination)
        if part.is_undeliverable:
            found.undeliverable += count
            return
        found.count += count
        due_us = item.expires_us + address.later_us
        if found.next_us == 0 or due_us < found.next_us:
            found.next_us = due_us
        found.last_us = max(found.last_us, due_us)

    def rows(self) -> list[Pending]:
        """Return the figures sorted by virtual host, layout and destination."""
        return [found for _, found in sorted(self._found.items())]


class PendingMessage:
    """One message, or the first of several that differ in their bodies only."""

    def __init__(self, part: HeldPart, key: bytes, content: bytes, due_us: i64) -> None:
        self.part = part
        self.key = key  # exchange and routing key
        self.content = content  # as stored
        self.due_us = due_us


class Earliest(Visitor):
    """Collects the `most` messages that are due first."""

    def __init__(self, most: int) -> None:
        self.count: i64 = 0  # of all messages seen
        self._most = most
        self._order = 0
        # a heap, the last due in front
        self._found: list[tuple[int, int, PendingMessage]] = []

    def see(self, part: HeldPart, item: Entry | MessageBatch, count: i64) -> None:
        self.count += count
        key = item.buffer.key if isinstance(item, MessageBatch) else item.key
        due_us = part.holder.due_us(key, item.expires_us)
        index: i64 = 0
        while index < count and index < self._most:
            self._order -= 1
            if len(self._found) < self._most:
                heappush(self._found, (-int(due_us), self._order, self._single(part, item, key, due_us)))
            elif -due_us > self._found[0][0]:
                heappushpop(self._found, (-int(due_us), self._order, self._single(part, item, key, due_us)))
            else:
                return
            index += 1

    def _single(self, part: HeldPart, item: Entry | MessageBatch, key: bytes, due_us: i64) -> PendingMessage:
        return PendingMessage(part, key, item.buffer.data if isinstance(item, MessageBatch) else item.content, due_us)

    def singles(self) -> list[PendingMessage]:
        """Return them by due time; of those with the same time, the first seen comes first."""
        return [single for _, _, single in sorted(self._found, key=_order)]


class Count(Visitor):
    """Counts messages."""

    def __init__(self) -> None:
        self.count: i64 = 0

    def see(self, part: HeldPart, item: Entry | MessageBatch, count: i64) -> None:
        self.count += count


def _order(found: tuple[int, int, PendingMessage]) -> tuple[int, int]:
    return -found[0], -found[1]
