"""Counters: messages by queue, channel, exchange and virtual host; traffic; opened and closed connections and channels.

On the fast path a route and a consumer count for themselves; their numbers are added here when they are read, or when
the route or consumer ends. Names and meanings are those of RabbitMQ's message_stats.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

FIELDS: Final = (
    "publish", "confirm", "return_unroutable", "drop_unroutable", "deliver", "deliver_no_ack", "get", "get_no_ack",
    "get_empty", "redeliver", "ack",
)  # fmt: skip


class Counters:
    """Messages of a queue, a channel or a virtual host since its creation."""

    def __init__(self) -> None:
        self.publish: i64 = 0  # taken from publishers; of a queue: routed to it
        self.confirm: i64 = 0  # answered with basic.ack
        self.return_unroutable: i64 = 0
        self.drop_unroutable: i64 = 0
        self.deliver: i64 = 0  # deliver, get: to be acknowledged; …_no_ack: not
        self.deliver_no_ack: i64 = 0
        self.get: i64 = 0
        self.get_no_ack: i64 = 0
        self.get_empty: i64 = 0
        self.redeliver: i64 = 0  # deliver and get with the redelivered flag
        self.ack: i64 = 0
        self.window: object = None  # where the reader of rates keeps its samples

    def add(self, other: Counters) -> None:
        """Add another counter's values to this one's."""
        self.publish += other.publish
        self.confirm += other.confirm
        self.return_unroutable += other.return_unroutable
        self.drop_unroutable += other.drop_unroutable
        self.add_outgoing(other)

    def add_outgoing(self, other: Counters) -> None:
        """Add only what consumers caused. What publishers did is counted once, not with each queue."""
        self.deliver += other.deliver
        self.deliver_no_ack += other.deliver_no_ack
        self.get += other.get
        self.get_no_ack += other.get_no_ack
        self.get_empty += other.get_empty
        self.redeliver += other.redeliver
        self.ack += other.ack

    def values(self) -> tuple[int, ...]:
        """Return the values in the order of FIELDS."""
        return (
            int(self.publish), int(self.confirm), int(self.return_unroutable), int(self.drop_unroutable),
            int(self.deliver), int(self.deliver_no_ack), int(self.get), int(self.get_no_ack), int(self.get_empty),
            int(self.redeliver), int(self.ack),
        )  # fmt: skip


class Passage:
    """Messages published to an exchange, and the copies of them that queues got."""

    def __init__(self) -> None:
        self.publish_in: i64 = 0
        self.publish_out: i64 = 0
        self.window: object = None

    def add(self, other: Passage) -> None:
        """Add another counter's values to this one's."""
        self.publish_in += other.publish_in
        self.publish_out += other.publish_out

    def values(self) -> tuple[int, ...]:
        return (int(self.publish_in), int(self.publish_out))


class Octets:
    """Traffic of connections: octets, and the number of reads and writes."""

    def __init__(self) -> None:
        self.received: i64 = 0
        self.reads: i64 = 0
        self.sent: i64 = 0
        self.writes: i64 = 0
        self.window: object = None

    def add(self, other: Octets) -> None:
        """Add another counter's values to this one's."""
        self.received += other.received
        self.reads += other.reads
        self.sent += other.sent
        self.writes += other.writes

    def values(self) -> tuple[int, ...]:
        """Return the octets received and sent."""
        return (int(self.received), int(self.sent))


class Churn:
    """Connections, channels and queues that came and went since the start."""

    def __init__(self) -> None:
        self.connection_created = 0
        self.connection_closed = 0
        self.channel_created = 0
        self.channel_closed = 0
        self.queue_declared = 0  # repeated declarations are counted, passive ones are not
        self.queue_created = 0
        self.queue_deleted = 0
        self.window: object = None

    def values(self) -> tuple[int, ...]:
        return (
            self.connection_created, self.connection_closed, self.channel_created, self.channel_closed,
            self.queue_declared, self.queue_created, self.queue_deleted,
        )  # fmt: skip
