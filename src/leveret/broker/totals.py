"""Sums over the objects of a virtual host, a few objects at a time."""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.channel import BrokerChannel
from leveret.broker.counters import Counters, Octets
from leveret.broker.peer import Peer
from leveret.broker.queues.queue import Queue
from leveret.broker.vhost import VHost


class Totals:
    """The totals of one virtual host."""

    def __init__(self, vhost: VHost) -> None:
        vhost.tally.count_publishes()
        self.counters = Counters()  # of everything that exists or existed
        self.counters.add(vhost.tally.counters)
        self.octets = Octets()
        self.octets.add(vhost.tally.octets)
        self.replies_delivered = vhost.tally.replies_delivered  # direct replies
        self.replies_dropped = vhost.tally.replies_dropped  # likewise
        self.ready: i64 = 0  # messages
        self.unacked: i64 = 0  # likewise
        self.consumers: i64 = 0
        self.queues: i64 = 0
        self.connections: i64 = 0
        self.channels: i64 = 0

    def add_queues(self, queues: list[Queue]) -> None:
        """Add queues; those deleted since the list was made are ignored."""
        for queue in queues:
            if queue.is_deleted:
                continue
            self.queues += 1
            self.ready += queue.count()
            self.unacked += queue.outstanding()
            self.consumers += queue.consumers.count
            queue.consumers.count_deliveries()
            self.counters.add_outgoing(queue.counters)

    def add_channels(self, channels: list[BrokerChannel]) -> None:
        """Add open channels."""
        for channel in channels:
            if not channel.is_closed:
                self.channels += 1
                self.replies_delivered += channel.reply_to_delivered
                self.replies_dropped += channel.reply_to_dropped
                if channel.confirms is not None:
                    self.counters.confirm += channel.confirms.confirmed()

    def add_peer(self, peer: Peer) -> None:
        """Add an open connection."""
        self.connections += 1
        self.octets.add(peer.octets)

    def values(self) -> tuple[int, ...]:
        """Return numbers of messages (all, ready, unacknowledged), then the counters, then octets received and sent."""
        ready, unacked = int(self.ready), int(self.unacked)
        return (ready + unacked, ready, unacked, *self.counters.values(), *self.octets.values())
