"""What the broker adds to a session's channel: consumers, prefetch, and the routes of its last publish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.consumer import Consumer
from leveret.broker.counters import Counters
from leveret.broker.entry import Entry
from leveret.session.channel import Channel

if TYPE_CHECKING:
    from leveret.broker.binding_methods import HistoryDelivery
    from leveret.broker.queue import Queue
    from leveret.broker.requeue_job import RequeueJob
    from leveret.broker.route import Route
    from leveret.broker.staging import Staging
    from leveret.broker.transaction import Transaction

# queues that a channel remembers without a reason, perhaps
LEFT_MAX: Final = 64


class BrokerChannel(Channel):
    """limit: deliveries allowed to be unacknowledged on the whole channel, 0 = no limit; default_limit: for each new
    consumer; fetched: unacknowledged messages that came by basic.get, which no limit is about. requeue_job: what it is
    giving back by basic.nack or basic.recover. history_delivery: what a binding that it makes brings. purging: the
    queue of a purge that takes several turns; purged: how many messages that takes. is_kept_back: what is published
    goes to a transaction (tx) or a stage (staging) first. reply: its consumer of direct replies; of these
    reply_to_delivered came to it, and reply_to_dropped were published here for requesters that are gone."""

    def __init__(self, number: int, must_cut: bool) -> None:
        super().__init__(number)
        self.must_cut = must_cut
        self.consumers: dict[str, Consumer] = {}
        self.limit: i64 = 0
        self.default_limit = 0
        self.fetched: i64 = 0
        self.stirred: list[Consumer] = []
        # an acknowledgement or rejection that takes several turns goes up to this tag, 0 = there is none
        self.acked_to: i64 = 0
        self.requeue_job: RequeueJob | None = None
        self.history_delivery: HistoryDelivery | None = None
        self.purging: Queue | None = None
        self.purged = 0
        self.reads_streams = False  # or did
        self._left: dict[Queue, None] = {}
        self._left_last: Queue | None = None
        self._left_max = LEFT_MAX
        self.turn = 0  # whose queue is served first when there is room within the limit
        # for broker/ack_timeout.py: (tag, time) - smaller tags were delivered before; and when it looked last
        self.notes: list[tuple[int, int]] = []
        self.looked_us: i64 = 0
        self.last_queue = ""
        self.last_route: Route | None = None
        self.last_way: Route | None = None  # of the last message, where exchanges look at more than its keys, too
        self.is_kept_back = False
        self.tx: Transaction | None = None
        self.staging: Staging | None = None
        self.reply: Consumer | None = None
        self.reply_name = b""
        self.reply_to_delivered: i64 = 0
        self.reply_to_dropped: i64 = 0
        self.is_confirming = False  # in its peer's list of channels with acks to write
        self.is_waiting = False  # in the log's list of channels that wait for the batch
        self.is_closed = False
        self.counters = Counters()

    def settled(self, consumer: Consumer | None, count: i64) -> None:
        """So many deliveries to this consumer (None: fetched) are not outstanding any more; after the last, call
        `line_up`."""
        if consumer is None:
            self.fetched -= count
            return
        consumer.unacked -= count
        if consumer.aside != 0:
            self.stirred.append(consumer)

    def line_up(self, all_may: bool = False) -> None:
        """Consumers that stood aside and can take something again stand in line, in RabbitMQ's order: by their tags
        if it is because each of them has less to acknowledge; as they had stepped aside if all may take more."""
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
        """It has a message of this queue, or is about to have one, and no consumer there."""
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
        """Whose messages it may have, apart from streams."""
        found = dict(self._left)
        for consumer in self.consumers.values():
            queue = consumer.queue
            if queue is not None and consumer.unacked > 0 and not queue.is_stream:
                found[queue] = None
        return [queue for queue in found if not queue.is_deleted]

    def has_replies(self) -> bool:
        """Whether it has, or had, to do with direct replies."""
        return self.reply is not None or self.reply_to_delivered != 0 or self.reply_to_dropped != 0

    def outstanding(self) -> list[Entry]:
        """What was delivered and is not settled, what an open transaction would settle included."""
        found = self.unacked.all()
        if self.tx is not None:
            found += self.tx.held()
        return [delivery for delivery in found if isinstance(delivery, Entry)]


def _tag(consumer: Consumer) -> str:
    return consumer.tag


def _aside(consumer: Consumer) -> int:
    return int(consumer.aside)
