"""How long the deliveries of a channel have been unacknowledged (RabbitMQ's consumer_timeout, 3.10.8).

Nothing is stored per message. Now and then the next delivery tag is noted with the time, so smaller tags were delivered
before. A delivery is therefore found overdue a little late, never early; RabbitMQ itself checks only once a minute.

A queue or a consumer may have a timeout of its own, x-consumer-timeout in ms (RabbitMQ 3.11.15 and later). The
consumer's takes precedence, then the queue's, then the broker's; 0 = none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.messages.entry import Entry
from leveret.broker.streams.read import Read
from leveret.session.unacked import Delivery
from leveret.wire.errors import PRECONDITION_FAILED, ProtocolError
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel
    from leveret.broker.queues.consumer import Consumer
    from leveret.broker.queues.queue import Queue

# checks within the shortest timeout; a delivery may be overdue for two of these intervals until it is found
LOOKS: Final[i64] = 60
# per channel; if some timeouts are a thousand times as long as others, deliveries with long ones are found later still
NOTES_MAX: Final = 4096
INTERVAL_US_MAX: Final[i64] = 30_000_000
NOT_GIVEN: Final[i64] = -1


def given_timeout_ms(arguments: dict[str, Value]) -> i64:
    """Return x-consumer-timeout, NOT_GIVEN without one. Invalid values are ignored, as in 3.10.8."""
    value = arguments.get("x-consumer-timeout")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        return NOT_GIVEN
    return value


class AckTimeout:
    """The acknowledgement timeouts, and the check of a channel."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms: i64 = timeout_ms  # the broker's, 0 = none
        self.interval_us: i64 = INTERVAL_US_MAX  # how often to check, according to the shortest timeout
        self.has_own = False  # a queue or consumer has, or had, a timeout of its own
        self.set(timeout_ms)

    def set(self, timeout_ms: int) -> None:
        """Change the broker's timeout, also for earlier deliveries."""
        self.timeout_ms = timeout_ms
        self._shorten(timeout_ms)

    def allow_for(self, timeout_ms: i64) -> None:
        """Take a timeout of a queue or consumer into account."""
        if timeout_ms != NOT_GIVEN:
            self.has_own = True
            self._shorten(timeout_ms)

    def _shorten(self, timeout_ms: i64) -> None:
        if timeout_ms > 0:
            self.interval_us = min(self.interval_us, timeout_ms * 1000 // LOOKS)

    def overdue_ms(self, channel: BrokerChannel, now_us: i64) -> i64:
        """Return the timeout in ms that a delivery of this channel has exceeded, 0 = none. Call about every second."""
        if now_us - channel.looked_us < self.interval_us:
            return 0
        channel.looked_us = now_us
        notes = channel.notes
        oldest = channel.unacked.first_tag()
        while notes and (oldest == 0 or notes[0][0] <= oldest):
            del notes[0]
        if oldest == 0:
            return 0
        if len(notes) < NOTES_MAX and (not notes or notes[-1][0] < channel.next_tag):
            notes.append((int(channel.next_tag), int(now_us)))
        return self._overdue_ms(channel, now_us)

    def _overdue_ms(self, channel: BrokerChannel, now_us: i64) -> i64:
        notes = channel.notes
        index: i64 = 0
        # without such timeouts, the oldest delivery is overdue first
        for tag, delivery in channel.unacked.tagged(0 if self.has_own else 1):
            while index < len(notes) and notes[index][0] <= tag:
                index += 1
            if index == len(notes):
                break
            timeout_ms = self._timeout_ms(delivery)
            if 0 < timeout_ms <= (now_us - notes[index][1]) // 1000:
                return timeout_ms
        return 0

    def _timeout_ms(self, delivery: Delivery) -> i64:
        if isinstance(delivery, Read):
            consumer: Consumer | None = delivery.reader.consumer
            queue: Queue = delivery.reader.stream
        else:
            assert isinstance(delivery, Entry)
            consumer, queue = delivery.consumer, delivery.queue
        if consumer is not None and consumer.timeout_ms != NOT_GIVEN:
            return consumer.timeout_ms
        timeout_ms = queue.timeout_ms
        return self.timeout_ms if timeout_ms == NOT_GIVEN else timeout_ms


def timed_out(channel: BrokerChannel, timeout_ms: i64) -> ProtocolError:
    """Return the error that closes the channel; it names no method, since none of the client's caused it."""
    text = (
        f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used: {timeout_ms} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more"
    )
    return ProtocolError(PRECONDITION_FAILED, text)
