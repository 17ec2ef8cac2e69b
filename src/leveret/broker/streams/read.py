"""A message of a stream that was delivered and is not acknowledged yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.session.unacked import Delivery

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel
    from leveret.broker.streams.reader import Reader


class Read(Delivery):
    """offset: of the message. The message itself stays where it is, whatever becomes of the delivery."""

    def __init__(self, reader: Reader, offset: i64) -> None:
        self.reader = reader
        self.offset = offset

    def settle(self, channel: BrokerChannel) -> None:
        """It was acknowledged, or rejected, which is the same here: the reader may have another one."""
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
        """It is not outstanding any more."""
        self.reader.consumer.unacked -= 1
        self.reader.stream.unacked -= 1
