"""Estimates about the messages of a queue, when asked: how many are persistent, how much they take.

For a stream the numbers are exact. For other queues the oldest messages are examined, and if there are more, these are
assumed to be like them. Of a page only its size is known, which is a little more than its bodies have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.queues.limits import body_octets
from leveret.broker.storage.page import Page
from leveret.broker.streams.stream import Stream

if TYPE_CHECKING:
    from leveret.broker.queues.message_list import MessageList
    from leveret.broker.queues.queue import Queue

# how many items of a message list, and how many unacknowledged messages, are examined
LOOKED_AT_MAX: Final[i64] = 500


class Census:
    """Estimated sizes and numbers of a queue's messages."""

    def __init__(self, queue: Queue) -> None:
        self.octets: i64 = 0  # of the bodies of ready messages
        self.persistent: i64 = 0  # number of persistent ready messages
        self.on_disk: i64 = 0  # number of ready messages in pages
        self.octets_unacked: i64 = 0  # this and the next one: the same for unacknowledged messages
        self.persistent_unacked: i64 = 0
        self.memory_octets: i64 = 0  # memory that all of them take
        if isinstance(queue, Stream):
            self._look_at_stream(queue)
            return
        for message_list in queue.message_lists:
            self._look_at_list(message_list)
        if queue.unacked > 0:
            self._look_at_unacked(queue)

    def _look_at_stream(self, stream: Stream) -> None:
        self.octets = stream.body_octets()
        self.persistent = stream.count()
        self.on_disk = max(0, stream.history.end - stream.first)
        self.memory_octets = stream.tail_octets

    def _look_at_list(self, message_list: MessageList) -> None:
        count = message_list.ready.count()
        if count == 0:
            return
        looked_at: i64 = 0  # number of messages examined; octets and persistent are theirs
        octets: i64 = 0
        persistent: i64 = 0
        for item in message_list.ready.front(LOOKED_AT_MAX):
            if isinstance(item, Page):
                looked_at += item.count
                octets += item.size
                persistent += item.live
                self.on_disk += item.count
            elif isinstance(item, MessageBatch):
                alike = item.buffer.count - item.taken
                looked_at += alike
                octets += alike * body_octets(item.buffer.data)
                persistent += alike if item.id != 0 else 0
            else:
                looked_at += 1
                octets += body_octets(item.content)
                persistent += 1 if item.id != 0 else 0
        if looked_at > 0:
            self.octets += octets * count // looked_at
            self.persistent += persistent * count // looked_at
        self.memory_octets += message_list.ready.octets

    def _look_at_unacked(self, queue: Queue) -> None:
        looked_at: i64 = 0
        for consumer in queue.consumers.all():
            if looked_at >= LOOKED_AT_MAX:
                break
            for _, delivery in consumer.channel.unacked.tagged(LOOKED_AT_MAX - looked_at):
                if isinstance(delivery, Entry) and delivery.consumer is consumer:
                    looked_at += 1
                    self.octets_unacked += body_octets(delivery.content)
                    if delivery.id != 0:
                        self.persistent_unacked += 1
        if looked_at == 0:  # none of a consumer: they came by basic.get, or the consumer is gone
            count = queue.count()
            if count > 0:
                self.octets_unacked = self.octets * queue.unacked // count
                self.persistent_unacked = self.persistent * queue.unacked // count
        elif looked_at != queue.unacked:
            self.octets_unacked = self.octets_unacked * queue.unacked // looked_at
            self.persistent_unacked = self.persistent_unacked * queue.unacked // looked_at
        self.memory_octets += self.octets_unacked
