"""What the broker adds to a session's channel: consumers, prefetch, and the routes of its last publish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.counters import Counters
from leveret.broker.messages.entry import Entry
from leveret.broker.queues.consumer import Consumer
from leveret.session.assembly import Assembly
from leveret.session.channel import Channel
from leveret.session.connection import Unfinished
from leveret.session.output import LARGE_OCTETS_MIN, part
from leveret.wire.method import Method

if TYPE_CHECKING:
    from leveret.broker.exchanges.route import Route
    from leveret.broker.methods.binding_methods import HistoryDelivery
    from leveret.broker.methods.transaction import Transaction
    from leveret.broker.peer import Peer
    from leveret.broker.publishers.reference import PublisherReference
    from leveret.broker.queues.queue import Queue
    from leveret.broker.queues.requeue_job import RequeueJob
    from leveret.broker.staging.staging import Staging

# a channel's list of such queues is cleaned up when it is longer than this
LEFT_MAX: Final = 64


class BrokerChannel(Channel):
    """A channel: its consumers and limits, and the methods and transactions under way on it."""

    def __init__(self, peer: Peer, number: int) -> None:
        super().__init__(number)
        self.peer = peer  # which keeps it only until it is closed, or neither would ever be freed
        # stored frames cannot be sent as they are: the client's frame_max is smaller, or a link gets positions
        self.must_cut = peer.must_cut
        self.consumers: dict[str, Consumer] = {}
        self.limit: i64 = 0  # unacknowledged deliveries allowed on the whole channel, 0 = no limit
        self.default_limit = 0  # the same for each new consumer
        self.fetched: i64 = 0  # unacknowledged messages from basic.get, which no limit counts
        self.stirred: list[Consumer] = []  # consumers that stood aside and have had deliveries settled: see `line_up`
        # an acknowledgement or rejection that takes several turns goes up to this tag; 0 = none is under way
        self.acked_to: i64 = 0
        self.requeue_job: RequeueJob | None = None  # of a basic.nack or basic.recover that takes several turns
        # of a binding to a recent-history exchange that takes several turns
        self.history_delivery: HistoryDelivery | None = None
        self.purging: Queue | None = None  # the queue of a purge that takes several turns
        self.purged = 0  # number of messages in that purge
        self.reads_streams = False  # true once a consumer has read from a stream
        # queues that may have unacknowledged messages here, but no consumer: see `leave`
        self._left: dict[Queue, None] = {}
        self._left_last: Queue | None = None
        self._left_max = LEFT_MAX
        self.turn = 0  # index of the queue that is served first when the channel's limit has room
        # for ack_timeout.py: (tag, time) means that smaller tags were delivered before that time
        self.notes: list[tuple[int, int]] = []
        self.looked_us: i64 = 0  # when ack_timeout.py last checked this channel
        self.last_queue = ""
        self.last_route: Route | None = None
        self.last_way: Route | None = None  # route of the last message to exchanges that look at more than its keys
        self.is_kept_back = False  # publishes go to a transaction (tx) or a stage (staging) first
        self.tx: Transaction | None = None
        self.staging: Staging | None = None
        self.publisher: PublisherReference | None = None  # numbers its publishes
        self.reply: Consumer | None = None  # its consumer of direct replies
        self.reply_name = b""
        self.reply_to_delivered: i64 = 0  # replies delivered to it
        self.reply_to_dropped: i64 = 0  # replies published here for requesters that are gone
        self.is_confirming = False  # in its peer's list of channels with acks to write
        self.is_waiting = False  # in the log's list of channels that wait for the batch
        self.is_closed = False
        self.counters = Counters()

    # -- what the session asks for -------------------------------------------------------------------------------------

    def publish(self, method: bytes, data: bytes, start: i64, stop: i64) -> bool:
        peer = self.peer
        if stop - start < LARGE_OCTETS_MIN or not peer.pass_on(self, method, data, start, stop):
            try:
                return peer.publish(self, method, data, start, stop)
            except Unfinished:
                peer.is_suspended = True
                peer.seeker.wait(self, method, part(data, start, stop))
                raise
        return False

    def publish_more(self, data: bytes, start: i64, stop: i64, stride: i64, size: i64) -> None:
        self.peer.publish_more(self, data, start, stop, stride, size)

    def publish_pieces(self, assembly: Assembly) -> None:
        peer = self.peer
        header = assembly.pieces[0]
        assert isinstance(header, bytes)
        if not peer.pass_on(self, assembly.method, header, 0, len(header), assembly.pieces):
            content = assembly.join()
            if content is None:
                peer.is_suspended = True
                peer.seeker.join(self, assembly)
                raise Unfinished
            self.publish(assembly.method, content, 0, len(content))

    def acknowledge(self, tag: i64, multiple: bool) -> None:
        self.peer.acknowledge(self, tag, multiple)

    def handle(self, method: Method) -> None:
        self.peer.handle(self, method)

    def closed(self) -> None:
        self.peer.channel_closed(self)

    # -- deliveries ----------------------------------------------------------------------------------------------------

    def settled(self, consumer: Consumer | None, count: i64) -> None:
        """Count deliveries to this consumer (None: by basic.get) as settled. Call `line_up` after the last ones."""
        if consumer is None:
            self.fetched -= count
            return
        consumer.unacked -= count
        if consumer.aside != 0:
            self.stirred.append(consumer)

    def line_up(self, all_may: bool = False) -> None:
        """Put consumers that stood aside and can take a message again into their lines, in RabbitMQ's order.

        That is by tag if acknowledgements made room in their own prefetch limits, and in the order in which they
        stepped aside if there is a limit of the channel or all_may take more.
        """
        stirred = self.stirred
        self.stirred = []
        if all_may or self.limit != 0:
            stirred = [consumer for consumer in self.consumers.values() if consumer.aside != 0]
            stirred.sort(key=_aside)
        elif len(stirred) > 1:
            stirred.sort(key=_tag)
        for consumer in stirred:
            if consumer.aside != 0:
                consumer.try_again()

    def leave(self, queue: Queue) -> None:
        """Note that the channel has a message of this queue, or is about to, without a consumer there."""
        if queue is self._left_last:
            return
        self._left_last = queue
        left = self._left
        if self.unacked.count == 0:
            left.clear()
        elif len(left) >= self._left_max:
            left = self._left = {queue: None for queue in left if queue.unacked > 0 and not queue.is_deleted}
            self._left_max = 2 * len(left) + LEFT_MAX
        left[queue] = None

    def sources(self) -> list[Queue]:
        """Return the queues, without streams, whose messages it may have unacknowledged."""
        found = dict(self._left)
        for consumer in self.consumers.values():
            queue = consumer.queue
            if queue is not None and consumer.unacked > 0 and not queue.is_stream:
                found[queue] = None
        return [queue for queue in found if not queue.is_deleted]

    def has_replies(self) -> bool:
        """Return whether the channel uses, or has used, direct replies."""
        return self.reply is not None or self.reply_to_delivered != 0 or self.reply_to_dropped != 0

    def outstanding(self) -> list[Entry]:
        """Return unsettled deliveries, including those that an open transaction would settle."""
        found = self.unacked.all()
        if self.tx is not None:
            found += self.tx.held()
        return [delivery for delivery in found if isinstance(delivery, Entry)]


def _tag(consumer: Consumer) -> str:
    return consumer.tag


def _aside(consumer: Consumer) -> int:
    return int(consumer.aside)
