"""Message batches, or runs: messages that were published back to back and differ in their bodies only, as one object.

A publisher of such messages (same route, same properties, same length) fills the read buffer with equal strides. They
are routed, journalled and queued as one run; an entry is made of a message that is delivered singly. (`redelivered`
applies to all: requeued messages are entries, so only a restart makes runs of redelivered messages.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from leveret.broker.messages.entry import Entry

if TYPE_CHECKING:
    from leveret.broker.queues.message_list import MessageList


# gaps of up to 1/GAP_SHARE of a content's size are kept
GAP_SHARE: Final[i64] = 10


class BatchBuffer:
    """Part of a read buffer: `count` contents of `size` octets, each `stride` octets behind the one before.

    The publisher's method frame is between two contents. key: exchange and routing key as in basic.deliver.
    """

    def __init__(self, data: bytes, stride: i64, size: i64, count: i64, key: bytes) -> None:
        self.data = data
        self.stride = stride
        self.size = size
        self.count = count
        self.key = key

    def compact(self) -> None:
        """Remove larger gaps between the contents; for messages that stay, in memory or on disk."""
        if (self.stride - self.size) * GAP_SHARE > self.size:
            self.data = self.contents_from(0)
            self.stride = self.size

    def contents_from(self, index: i64) -> bytes:
        """Return the contents from this index on, back to back."""
        size = self.size
        stride = self.stride
        data = self.data
        at = index * stride
        if stride == size:
            return data[at:]
        out = BytesWriter()
        end: i64 = len(data)
        while at < end:
            out.write(data[at : at + size])
            at += stride
        return out.getvalue()


class MessageBatch:
    """A buffer in one message list. id and position are those of its first message; the others follow without gaps."""

    def __init__(
        self, message_list: MessageList, buffer: BatchBuffer, id: i64, expires_us: i64, position: i64
    ) -> None:
        self.message_list = message_list
        self.buffer = buffer
        self.id = id  # the journal's id, 0 = not journalled
        self.expires_us = expires_us
        self.position = position
        self.taken: i64 = 0  # how many have left the queue, from the front
        self.redelivered = False

    def entry(self, index: i64) -> Entry:
        """Return the message at this index as an entry of its own."""
        buffer = self.buffer
        at = index * buffer.stride
        id = self.id + index if self.id != 0 else 0
        content = buffer.data[at : at + buffer.size]
        entry = Entry(self.message_list, content, buffer.key, id, self.expires_us, self.position + index)
        entry.redelivered = self.redelivered
        return entry
