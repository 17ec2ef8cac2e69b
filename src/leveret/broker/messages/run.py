"""Messages that differ in their bodies only, published back to back: one object for all of them.

A publisher that sends alike messages (same route, same properties, same length) fills the read buffer with equal
strides. They are routed, journalled and queued as one run; an entry is made of one when it is delivered singly.
(redelivered is of all: what is requeued comes back as entries, so only a restart makes runs of such messages.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from leveret.broker.messages.entry import Entry

if TYPE_CHECKING:
    from leveret.broker.queues.message_list import MessageList


# so small a part of what stands in the read buffer does not matter
GAP_SHARE: Final[i64] = 10


class Stretch:
    """Part of a read buffer: `count` contents of `size` octets, each `stride` octets behind the one before.

    Between two contents stands the publisher's method frame. key: exchange and routing key as they stand in
    basic.deliver.
    """

    def __init__(self, data: bytes, stride: i64, size: i64, count: i64, key: bytes) -> None:
        self.data = data
        self.stride = stride
        self.size = size
        self.count = count
        self.key = key

    def compact(self) -> None:
        """Leave out what stands between the contents, if it is worth a copy: of what stays, in memory or on disk."""
        if (self.stride - self.size) * GAP_SHARE > self.size:
            self.data = self.contents_from(0)
            self.stride = self.size

    def contents_from(self, index: i64) -> bytes:
        """The contents from this index on, back to back."""
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


class Run:
    """A stretch in one message list. id and position are those of its first message, the others' follow without a gap.

    id: the journal's number, 0 = not in the journal; taken: how many have left the queue, from the front.
    """

    def __init__(self, message_list: MessageList, stretch: Stretch, id: i64, expires_us: i64, position: i64) -> None:
        self.message_list = message_list
        self.stretch = stretch
        self.id = id
        self.expires_us = expires_us
        self.position = position
        self.taken: i64 = 0
        self.redelivered = False

    def entry(self, index: i64) -> Entry:
        """The message at this index as an entry of its own."""
        stretch = self.stretch
        at = index * stretch.stride
        id = self.id + index if self.id != 0 else 0
        content = stretch.data[at : at + stretch.size]
        entry = Entry(self.message_list, content, stretch.key, id, self.expires_us, self.position + index)
        entry.redelivered = self.redelivered
        return entry
