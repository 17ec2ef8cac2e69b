"""A message in a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.session.unacked import Delivery

if TYPE_CHECKING:
    from leveret.broker.queues.consumer import Consumer
    from leveret.broker.queues.message_list import MessageList
    from leveret.broker.queues.queue import Queue


class Entry(Delivery):
    """A message in a queue."""

    def __init__(
        self, message_list: MessageList, content: bytes, key: bytes, id: i64, expires_us: i64, position: i64
    ) -> None:
        self.message_list = message_list
        self.content = content  # header frame and body frames, as the publisher split them
        self.key = key  # exchange and routing key as in basic.deliver
        self.id = id  # its id in the journal, 0 = it is not in the journal
        self.expires_us = expires_us  # when its time to live ends, 0 = never
        self.position = position  # its place in its message list, kept when it is requeued
        self.redelivered = False
        self.consumer: Consumer | None = None  # its consumer while it is unacknowledged; None = basic.get

    @property
    def queue(self) -> Queue:
        """The queue of its message list."""
        return self.message_list.queue

    def shown(self) -> bytes:
        """Return the content as clients see it."""
        return self.content

    def octets(self) -> i64:
        """Return its size in memory, without the object itself."""
        return len(self.content)
