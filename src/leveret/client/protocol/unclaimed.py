"""No-ack deliveries of calls that were cancelled. The broker has forgotten them, so the client keeps them."""

from __future__ import annotations

from collections import deque
from typing import Final

from leveret.client.protocol.model import Delivery

PSEUDO_QUEUES: Final = "amq.leveret."
"""Prefix of the pseudo-queues; their answers are no messages and need not be kept."""


class Unclaimed:
    """The unclaimed deliveries of one channel by queue, the oldest first. The next no-ack get or consume of the queue
    gets them before any other message."""

    def __init__(self) -> None:
        self._by_queue: dict[str, deque[Delivery]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_queue.values()))

    def add(self, queue: str, delivery: Delivery) -> None:
        """Keep a delivery, unless it is from a pseudo-queue."""
        if not queue.startswith(PSEUDO_QUEUES):
            self._by_queue.setdefault(queue, deque()).append(delivery)

    def take(self, queue: str) -> Delivery | None:
        """Remove and return the oldest delivery of a queue, or None."""
        kept = self._by_queue.get(queue)
        if kept is None:
            return None
        delivery = kept.popleft()
        if not kept:
            del self._by_queue[queue]
        return delivery

    def exchange(self, queue: str, newest: Delivery | None) -> Delivery | None:
        """Return the oldest delivery of a queue and keep `newest`, which a get has fetched, in its place."""
        if queue not in self._by_queue:
            return newest
        if newest is not None:
            self.add(queue, newest)
        return self.take(queue)

    def take_all(self, queue: str) -> deque[Delivery]:
        """Remove and return all deliveries of a queue."""
        return self._by_queue.pop(queue, deque())
