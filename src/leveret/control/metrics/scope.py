"""The scope of a scrape, and sums over it for several groups of metrics."""

from __future__ import annotations

from leveret.broker.channel import BrokerChannel
from leveret.broker.counters import Counters, Octets
from leveret.broker.dead_letters.deaths import TYPES
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.queue_types import queue_type
from leveret.broker.vhost import VHost
from leveret.control.node import BrokerNode
from leveret.control.sliced import CHUNK, Steps
from leveret.control.views.connection import is_open


class MetricSums:
    """Sums over all present and past objects, so that they never fall when an object is deleted."""

    def __init__(self) -> None:
        self.published = Counters()  # publishes, confirms and unroutable messages
        self.to_confirm = self.routed = 0  # published on channels with confirms; copies routed to queues
        self.by_type = {kind: Counters() for kind in TYPES}  # deliveries by queue type
        self.octets = Octets()
        self.queues = self.consumers = self.channels = self.publishers = self.connections = 0  # present objects only

    def add_vhost(self, vhost: VHost) -> None:
        """Add the counts of the virtual host itself."""
        tally = vhost.tally
        tally.count_publishes()
        self.published.add(tally.counters)
        self.to_confirm += int(tally.to_confirm)
        self.octets.add(tally.octets)
        self.routed += int(tally.passage.publish_out + tally.gone_passage.publish_out)
        for kind, counters in tally.gone.items():
            self.by_type[kind].add_outgoing(counters)

    def add_queue(self, queue: Queue) -> None:
        """Add a queue, unless it was deleted: its deliveries are then in the counts of the virtual host."""
        if not queue.is_deleted:
            self.queues += 1
            self.consumers += int(queue.consumers.count)
            queue.consumers.count_deliveries()
            self.by_type[queue_type(queue.arguments)].add_outgoing(queue.counters)

    def add_channel(self, channel: BrokerChannel) -> None:
        """Add a channel, unless it was closed: its counts are then in those of the virtual host."""
        if not channel.is_closed:
            self.channels += 1
            self.publishers += int(channel.counters.publish) > 0
            if channel.confirms is not None:
                self.published.confirm += channel.confirms.confirmed()
                self.to_confirm += int(channel.confirms.published)

    @property
    def outgoing(self) -> Counters:
        """The deliveries from queues of all types."""
        found = Counters()
        for counters in self.by_type.values():
            found.add_outgoing(counters)
        return found


class Scope:
    """What a scrape covers."""

    def __init__(self, node: BrokerNode, vhosts: list[VHost], is_detailed: bool) -> None:
        self.node = node
        self.vhosts = vhosts
        self.is_detailed = is_detailed  # whether each object has a row of its own
        self.sums = MetricSums()  # see `add_up`

    def add_up(self) -> Steps[None]:
        """Compute the sums, a few objects at a time."""
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
