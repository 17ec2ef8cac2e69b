"""A priority queue: messages of a higher priority are delivered first (RabbitMQ's "Priority Queue Support").

A message without a priority has 0, and none has more than the queue allows. As in RabbitMQ, only the next message
expires by its TTL: one of a lower priority waits for those before it; and a full queue drops the next message, whatever
its priority.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.dead_letters.undeliverable import UNDELIVERABLE
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.queues.message_list import MessageList
from leveret.broker.queues.queue import Queue
from leveret.wire.scan import priority_of
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.queues.consumer import Consumer
    from leveret.broker.vhost import VHost


class PriorityQueue(Queue):
    """A queue with one message list for each priority that was ever used; a list's index is its priority."""

    def __init__(
        self, vhost: VHost, name: str, durable: bool, auto_delete: bool, arguments: dict[str, Value], max_priority: int
    ) -> None:
        super().__init__(vhost, name, durable, auto_delete, arguments)
        self.max_priority: i64 = max_priority  # 0 to 255

    def list_of(self, content: bytes) -> MessageList:
        return self.list_at(min(priority_of(content), self.max_priority))

    def list_at(self, index: i64) -> MessageList:
        if index >= UNDELIVERABLE:
            return super().list_at(index)
        at: i64 = 0
        for message_list in self.message_lists:
            if message_list.index == index:
                return message_list
            if message_list.index < index:
                break
            at += 1
        made = MessageList(self, index)
        self.message_lists.insert(at, made)
        return made

    def count(self) -> i64:
        count: i64 = 0
        for message_list in self.message_lists:
            count += message_list.ready.count()
        return count

    def peek(self, may_wait: bool = False) -> Entry | None:
        for message_list in self.message_lists:
            entry = message_list.ready.peek(may_wait)
            if entry is not None or message_list.ready.count() > 0:
                return entry
        return None

    def head(self) -> Entry | MessageBatch | None:
        for message_list in self.message_lists:
            found = message_list.ready.head()
            if found is not None or message_list.ready.count() > 0:
                return found
        return None

    def taker(self) -> Consumer | None:
        return None  # of what comes in one turn the highest priority goes first

    def expires_us(self) -> i64:
        for message_list in self.message_lists:
            if message_list.ready.count() > 0:
                return message_list.ready.expires_us()
        return 0
