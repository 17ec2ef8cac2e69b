"""Deliveries without acknowledgement whose caller was cancelled: the broker has forgotten them, so they are kept."""

from __future__ import annotations

from collections import deque
from typing import Final

from leveret.client.model import Delivery

PSEUDO_QUEUES: Final = "amq.leveret."
"""What the names begin with of queues that answer a question: an answer that nobody waits for is no message."""


class Unclaimed:
    """Those of one channel, by their queue, the oldest first. The next get or consume of that queue that needs no
    acknowledgement either has them before anything else."""

    def __init__(self) -> None:
        self._by_queue: dict[str, deque[Delivery]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_queue.values()))

    def add(self, queue: str, delivery: Delivery) -> None:
        """Keep one."""
        if not queue.startswith(PSEUDO_QUEUES):
            self._by_queue.setdefault(queue, deque()).append(delivery)

    def take(self, queue: str) -> Delivery | None:
        """The oldest of a queue, or None."""
        kept = self._by_queue.get(queue)
        if kept is None:
            return None
        delivery = kept.popleft()
        if not kept:
            del self._by_queue[queue]
        return delivery

    def exchange(self, queue: str, newest: Delivery | None) -> Delivery | None:
        """The oldest of a queue, in exchange for the newest, which a get has fetched."""
        if queue not in self._by_queue:
            return newest
        if newest is not None:
            self.add(queue, newest)
        return self.take(queue)

    def take_all(self, queue: str) -> deque[Delivery]:
        """All of a queue."""
        return self._by_queue.pop(queue, deque())
