"""A message in a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.session.unacked import Delivery

if TYPE_CHECKING:
    from leveret.broker.consumer import Consumer
    from leveret.broker.message_list import MessageList
    from leveret.broker.queue import Queue


class Entry(Delivery):
    """content: header frame and body frames as the publisher cut them; key: exchange and routing key as they stand in
    basic.deliver; id: the journal's number of the message, 0 = not in the journal; expires_us: when its time to live
    ends, 0 = never; position: its place in its message list, kept when it is requeued; consumer: who has it while it
    is unacknowledged (None: fetched by basic.get)."""

    def __init__(
        self, message_list: MessageList, content: bytes, key: bytes, id: i64, expires_us: i64, position: i64
    ) -> None:
        self.message_list = message_list
        self.content = content
        self.key = key
        self.id = id
        self.expires_us = expires_us
        self.position = position
        self.redelivered = False
        self.consumer: Consumer | None = None

    @property
    def queue(self) -> Queue:
        """Whose message it is."""
        return self.message_list.queue

    def shown(self) -> bytes:
        """The content as clients see it."""
        return self.content

    def octets(self) -> i64:
        """What it takes in memory, besides the object itself."""
        return len(self.content)
