"""What has happened, counted: messages by queue, channel, exchange and virtual host, and the comings and goings.

On the way of a message its route and its consumer count; what they have is brought here when somebody asks, or when
they end. Names and meanings are those of RabbitMQ's message_stats.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

FIELDS: Final = (
    "publish", "confirm", "return_unroutable", "drop_unroutable", "deliver", "deliver_no_ack", "get", "get_no_ack",
    "get_empty", "redeliver", "ack",
)  # fmt: skip


class Counters:
    """Messages of a queue, a channel or a virtual host since it is there.

    publish: taken from publishers (of a queue: those that were routed to it); confirm: answered with basic.ack;
    deliver, get: to be acknowledged, …_no_ack: not; redeliver: how many of them not for the first time. window: what a
    reader of rates keeps here.
    """

    def __init__(self) -> None:
        self.publish: i64 = 0
        self.confirm: i64 = 0
        self.return_unroutable: i64 = 0
        self.drop_unroutable: i64 = 0
        self.deliver: i64 = 0
        self.deliver_no_ack: i64 = 0
        self.get: i64 = 0
        self.get_no_ack: i64 = 0
        self.get_empty: i64 = 0
        self.redeliver: i64 = 0
        self.ack: i64 = 0
        self.window: object = None

    def add(self, other: Counters) -> None:
        """Count what the other has counted, too."""
        self.publish += other.publish
        self.confirm += other.confirm
        self.return_unroutable += other.return_unroutable
        self.drop_unroutable += other.drop_unroutable
        self.add_outgoing(other)

    def add_outgoing(self, other: Counters) -> None:
        """The same but for what publishers did: that is counted once, and not with each queue."""
        self.deliver += other.deliver
        self.deliver_no_ack += other.deliver_no_ack
        self.get += other.get
        self.get_no_ack += other.get_no_ack
        self.get_empty += other.get_empty
        self.redeliver += other.redeliver
        self.ack += other.ack

    def values(self) -> tuple[int, ...]:
        """In the order of FIELDS."""
        return (
            int(self.publish), int(self.confirm), int(self.return_unroutable), int(self.drop_unroutable),
            int(self.deliver), int(self.deliver_no_ack), int(self.get), int(self.get_no_ack), int(self.get_empty),
            int(self.redeliver), int(self.ack),
        )  # fmt: skip


class Passage:
    """Messages of an exchange: published to it, and copies that queues got of these."""

    def __init__(self) -> None:
        self.publish_in: i64 = 0
        self.publish_out: i64 = 0
        self.window: object = None

    def add(self, other: Passage) -> None:
        """Count what the other has counted, too."""
        self.publish_in += other.publish_in
        self.publish_out += other.publish_out

    def values(self) -> tuple[int, ...]:
        return (int(self.publish_in), int(self.publish_out))


class Octets:
    """What went over connections: octets, and pieces of them as the network brings and takes them."""

    def __init__(self) -> None:
        self.received: i64 = 0
        self.reads: i64 = 0
        self.sent: i64 = 0
        self.writes: i64 = 0
        self.window: object = None

    def add(self, other: Octets) -> None:
        """Count what the other has counted, too."""
        self.received += other.received
        self.reads += other.reads
        self.sent += other.sent
        self.writes += other.writes

    def values(self) -> tuple[int, ...]:
        """Octets received and sent."""
        return (int(self.received), int(self.sent))


class Churn:
    """Comings and goings since the start. queue_declared: repeated declarations are counted, passive ones are not."""

    def __init__(self) -> None:
        self.connection_created = 0
        self.connection_closed = 0
        self.channel_created = 0
        self.channel_closed = 0
        self.queue_declared = 0
        self.queue_created = 0
        self.queue_deleted = 0
        self.window: object = None

    def values(self) -> tuple[int, ...]:
        return (
            self.connection_created, self.connection_closed, self.channel_created, self.channel_closed,
            self.queue_declared, self.queue_created, self.queue_deleted,
        )  # fmt: skip
