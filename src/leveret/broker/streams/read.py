"""An unacknowledged delivery of a stream's message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.session.unacked import Delivery

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel
    from leveret.broker.streams.reader import Reader


class Read(Delivery):
    """A delivery of the message with this offset, which stays in the stream whatever becomes of the delivery."""

    def __init__(self, reader: Reader, offset: i64) -> None:
        self.reader = reader
        self.offset = offset

    def settle(self, channel: BrokerChannel) -> None:
        """Handle an ack or reject, which are the same here; the reader may get another message."""
        self.release()
        reader = self.reader
        stream = reader.stream
        if reader.named is not None:
            reader.named.acknowledged(self.offset)
        stream.counters.ack += 1
        channel.counters.ack += 1
        if not stream.is_touched and not stream.is_deleted:
            stream.touch()

    def release(self) -> None:
        """Subtract it from the unacknowledged messages."""
        self.reader.consumer.unacked -= 1
        self.reader.stream.unacked -= 1
