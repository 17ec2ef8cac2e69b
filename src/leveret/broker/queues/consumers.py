"""The consumers of a queue, and which of them gets the next message.

RabbitMQ's rules (3.10.8, measured): a message goes to a consumer of the highest priority that can take one, and among
equal priorities to the one first in line, which then goes to the end. A consumer that can take none leaves the line,
and joins its end when something has changed for it, so neither costs anything while others are served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

if TYPE_CHECKING:
    from leveret.broker.queues.consumer import Consumer


class PriorityLevel:
    """The consumers of one priority: a line (round robin), and those that stand aside because they can take nothing."""

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.count: i64 = 0  # number of all of them
        self._aside: i64 = 0  # how many consumers have stepped aside so far
        self._ring: list[Consumer] = []  # those in line, as a ring whose first one is at _turn
        self._turn: i64 = 0

    def line_up(self, consumer: Consumer) -> None:
        """Put a consumer at the end of the line."""
        consumer.aside = 0
        self._ring.insert(self._turn, consumer)
        self._turn += 1

    def take_out(self, consumer: Consumer) -> None:
        """Remove a consumer."""
        if consumer.aside != 0:
            consumer.aside = 0
            return
        index: i64 = self._ring.index(consumer)
        del self._ring[index]
        if index < self._turn:
            self._turn -= 1

    def next(self, is_crowded: bool) -> Consumer | None:
        """Return the first in line that can take a message, or None; those before it step aside."""
        ring = self._ring
        while ring:
            if self._turn >= len(ring):
                self._turn = 0
            consumer = ring[self._turn]
            if consumer.can_take(is_crowded):
                self._turn += 1
                return consumer
            del ring[self._turn]
            self._aside += 1
            consumer.aside = self._aside
        return None


class Consumers:
    """All consumers of a queue, by priority."""

    def __init__(self) -> None:
        # if set, it gets all messages: the only consumer, or the active one of several (x-single-active-consumer)
        self.only: Consumer | None = None
        self.count: i64 = 0
        self.has_active = False  # x-single-active-consumer
        self._all: dict[Consumer, None] = {}
        self._levels: list[PriorityLevel] = []  # highest priority first

    def all(self) -> list[Consumer]:
        """Return the consumers in the order in which they were added."""
        return list(self._all)

    def count_deliveries(self) -> None:
        """Update the counters of the queue and of the consumers' channels."""
        for consumer in self._all:
            consumer.count()

    def admits(self, exclusive: bool) -> bool:
        """Return whether another consumer may be added: exclusive ones share a queue with no other."""
        only = self.only
        return not (exclusive and (self.count > 0 or self.has_active)) and (only is None or not only.is_exclusive)

    def add(self, consumer: Consumer) -> None:
        """Add a consumer, last in line of its priority. With x-single-active-consumer the first one is active."""
        self._all[consumer] = None
        self.count += 1
        level = self._level(consumer.priority)
        level.count += 1
        consumer.level = level
        level.line_up(consumer)
        if self.count == 1:
            self.only = consumer
        elif not self.has_active:
            self.only = None

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer; if it was the active one, another becomes active."""
        level = consumer.level
        if level is None:
            return
        consumer.count()
        consumer.level = None
        del self._all[consumer]
        self.count -= 1
        level.take_out(consumer)
        level.count -= 1
        if level.count == 0:
            self._levels.remove(level)
        if self.count == 1 or self.only is consumer:
            # the oldest of the highest priority; RabbitMQ does this only when something else happens on the queue
            self.only = max(self._all, key=_priority) if self._all else None

    def next(self, is_crowded: bool) -> Consumer | None:
        """Return the consumer that gets the queue's next message; None if none can take one."""
        for level in self._levels:
            consumer = level.next(is_crowded)
            if consumer is not None:
                return consumer
        return None

    def _level(self, priority: int) -> PriorityLevel:
        at = 0
        for level in self._levels:
            if level.priority == priority:
                return level
            if level.priority < priority:
                break
            at += 1
        made = PriorityLevel(priority)
        self._levels.insert(at, made)
        return made


def _priority(consumer: Consumer) -> int:
    return consumer.priority
