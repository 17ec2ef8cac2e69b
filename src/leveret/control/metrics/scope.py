"""What a scrape looks at, and sums over it that several groups of metrics are made of."""

from __future__ import annotations

from leveret.broker.channel import BrokerChannel
from leveret.broker.counters import Counters, Octets
from leveret.broker.deaths import TYPES
from leveret.broker.queue import Queue
from leveret.broker.queue_types import queue_type
from leveret.broker.vhost import VHost
from leveret.control.node import Node
from leveret.control.sliced import CHUNK, Steps
from leveret.control.views.connection import is_open


class Sums:
    """Of all that is there or was: so they never fall because something ends.

    published: publish, confirm, unroutable ones; to_confirm: published on channels with confirms; routed: copies that
    went to queues; by_type: what consumers got, by the type of queue. publishers, …: how many are there now.
    """

    def __init__(self) -> None:
        self.published = Counters()
        self.to_confirm = self.routed = 0
        self.by_type = {kind: Counters() for kind in TYPES}
        self.octets = Octets()
        self.queues = self.consumers = self.channels = self.publishers = self.connections = 0

    def add_vhost(self, vhost: VHost) -> None:
        """What it has counted itself."""
        tally = vhost.tally
        tally.count_publishes()
        self.published.add(tally.counters)
        self.to_confirm += int(tally.to_confirm)
        self.octets.add(tally.octets)
        self.routed += int(tally.passage.publish_out + tally.gone_passage.publish_out)
        for kind, counters in tally.gone.items():
            self.by_type[kind].add_outgoing(counters)

    def add_queue(self, queue: Queue) -> None:
        """A queue that is there, or has just gone and is counted with those."""
        if not queue.is_deleted:
            self.queues += 1
            self.consumers += int(queue.consumers.count)
            queue.consumers.count_deliveries()
            self.by_type[queue_type(queue.arguments)].add_outgoing(queue.counters)

    def add_channel(self, channel: BrokerChannel) -> None:
        """The same for a channel."""
        if not channel.is_closed:
            self.channels += 1
            self.publishers += int(channel.counters.publish) > 0
            if channel.confirms is not None:
                self.published.confirm += channel.confirms.confirmed()
                self.to_confirm += int(channel.confirms.published)

    @property
    def outgoing(self) -> Counters:
        """What consumers got, of all queues."""
        found = Counters()
        for counters in self.by_type.values():
            found.add_outgoing(counters)
        return found


class Scope:
    """vhosts: those that are looked at; is_detailed: each object has a row of its own. sums: see `add_up`."""

    def __init__(self, node: Node, vhosts: list[VHost], is_detailed: bool) -> None:
        self.node = node
        self.vhosts = vhosts
        self.is_detailed = is_detailed
        self.sums = Sums()

    def add_up(self) -> Steps[None]:
        """Make the sums, a few objects at a time."""
        sums = self.sums
        for vhost in self.vhosts:
            sums.add_vhost(vhost)
            for count, exchange in enumerate(list(vhost.exchanges.values())):
                sums.routed += int(exchange.passage.publish_out)
                if count % CHUNK == CHUNK - 1:
                    yield
            for count, queue in enumerate(list(vhost.queues.values())):
                sums.add_queue(queue)
                if count % CHUNK == CHUNK - 1:
                    yield
            for count, channel in enumerate(list(vhost.channels)):
                sums.add_channel(channel)
                if count % CHUNK == CHUNK - 1:
                    yield
        for count, peer in enumerate(self.node.host.peers()):
            if is_open(peer) and peer.vhost in self.vhosts:
                sums.connections += 1
                sums.octets.add(peer.octets)
            if count % CHUNK == CHUNK - 1:
                yield
