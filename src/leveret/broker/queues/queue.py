"""A queue: its messages, its consumers, and which consumer gets the next message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.counters import Counters
from leveret.broker.dead_letters.undeliverable import UNDELIVERABLE, Undeliverable
from leveret.broker.delayed.levels import Level
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.messages.returned import returned
from leveret.broker.policies import NO_EFFECT, Effect
from leveret.broker.queues.ack_timeout import NOT_GIVEN
from leveret.broker.queues.consumers import Consumers
from leveret.broker.queues.limits import QueueLimits, body_octets
from leveret.broker.queues.message_list import MessageList
from leveret.broker.storage.log import meta_record
from leveret.broker.timers import Timer
from leveret.wire.errors import quoted
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.dead_letters.expiry_route import ExpiryRoute
    from leveret.broker.exchanges.binding import Bindings
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.peer import Peer
    from leveret.broker.queues.consumer import Consumer
    from leveret.broker.vhost import VHost

# A queue with more ready messages than this whose consumers cannot take any more now is crowded: see net/fairness.py.
CROWD: Final[i64] = 4096
# Messages that may expire in one turn during delivery; the queue's timer handles the others.
EXPIRED_MAX: Final[i64] = 1024


class Queue(Timer):
    """A queue. The attributes that follow from arguments and policies are set by queue_settings.py."""

    def __init__(self, vhost: VHost, name: str, durable: bool, auto_delete: bool, arguments: dict[str, Value]) -> None:
        super().__init__(vhost.timers)
        self.vhost = vhost
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.arguments = arguments
        self.declared = b""  # its encoded arguments as a client sent them; empty if they came from the journal
        self.effect: Effect = NO_EFFECT  # the policies that apply to it
        self.owner: Peer | None = None  # the connection of an exclusive queue
        # an exclusive queue never outlives its connection, so the journal does not record it
        self.is_journalled = durable
        self.is_schedule = False
        self.is_stream = False
        self.number: i64 = 0  # unique in the data directory, 0 = not in the journal
        self.message_list = MessageList(self, 0)  # the list with index 0
        self.message_lists = [self.message_list]  # those delivered first in front
        self.unacked: i64 = 0
        # channels that are requeuing messages to it (requeue_job.py); until 0, it delivers nothing
        self.awaiting: i64 = 0
        self.leaving: i64 = 0  # lists of its messages that are removed but not settled yet (leaving.py)
        self.unplaced_below: i64 = 0  # messages with smaller ids have no position for federation links
        self.counters = Counters()
        self.consumers = Consumers()
        self.incoming: dict[Exchange, Bindings] = {}  # bindings to it, by source exchange
        self.ttl_us: i64 = -1  # x-message-ttl, -1 = none
        self.idle_us: i64 = 0  # x-expires, 0 = none
        self.dead_letter_exchange: str | None = None  # None = expired and rejected messages are dropped
        self.dead_letter_key: str | None = None
        self.limits: QueueLimits | None = None  # of its length, None = none
        self.delivery_limit: i64 = -1  # how often a message may be requeued, -1 = without limit
        self.counts_returns = False  # messages carry their delivery count (returned.py)
        self.is_quorum = False
        self.keeps_all = False  # the journal has its transient messages, too
        self.level: Level | None = None  # its level of a delay layout, None = it is no level queue
        self.keeps_undeliverable = False  # dead letters that reach no queue are kept instead of dropped
        self.undeliverable: Undeliverable | None = None  # the dead letters kept so
        self.is_dead_lettering_slowly = False  # some dead letters are being looked up (slow_dead_letters.py)
        self.timeout_ms: i64 = NOT_GIVEN  # see ack_timeout.py
        self.spent: list[Entry] = []  # requeued more often than delivery_limit, to be dead-lettered
        self.refused: list[Entry] = []  # published when the queue was full, to be dead-lettered
        self.told: set[str] = set()  # texts that VHost.tell_once has logged
        self.is_touched = False  # it is in VHost.touched
        self.is_filled = False  # it is in Log.filled
        self._encoded = b""  # its record, encoded with the arguments and the unplaced_below that follow
        self._encoded_arguments: dict[str, Value] | None = None
        self._encoded_below: i64 = 0
        self.used_us: i64 = 0  # when it was last used, for x-expires
        self.idle_timer_us: i64 = 0  # when the timer of x-expires fires, 0 = not set
        # its consumers are slow: no publisher is held for it before this time (net/fairness.py), and
        self.respite_until_us: i64 = 0
        self.respite_us: i64 = 0  # how long that respite is; the next one is twice as long
        self.expiry_routes: dict[bytes, ExpiryRoute] = {}  # where expired messages go, by their key (expiry_route.py)
        self.expiry_routes_generation: i64 = 0

    # -- messages ------------------------------------------------------------------------------------------------------

    def list_of(self, content: bytes) -> MessageList:
        """Return the message list for a message with this content, or for a run of messages that begins with it."""
        return self.message_list

    def list_at(self, index: i64) -> MessageList:
        """Return the message list with this index, which is what the journal stores."""
        if index < UNDELIVERABLE:
            return self.message_list
        if self.undeliverable is None:
            self.undeliverable = Undeliverable(self)  # a policy made it keep undeliverable messages
        return self.undeliverable.list_at(index)

    def every_list(self) -> list[MessageList]:
        """Return the lists of ready messages and those of undeliverable ones."""
        if self.undeliverable is None or not self.undeliverable.message_lists:
            return self.message_lists
        return [*self.message_lists, *self.undeliverable.message_lists.values()]

    def count(self) -> i64:
        """Return the number of ready messages."""
        return self.message_list.ready.count()

    def outstanding(self) -> i64:
        """Return the number of unacknowledged messages, which count() does not include."""
        return self.unacked

    def undeliverable_count(self) -> i64:
        """Return the number of dead letters that are kept until a queue takes them."""
        return self.undeliverable.count() if self.undeliverable is not None else 0

    def body_octets(self) -> i64:
        """Return the size of the bodies of all ready messages; this reads pages."""
        octets: i64 = 0
        for message_list in self.message_lists:
            octets += message_list.body_octets()
        return octets

    def peek(self, may_wait: bool = False) -> Entry | None:
        """Return the next message without removing it.

        With may_wait it is None, though count() is not 0, if its page is still being read; the queue is touched
        afterwards.
        """
        return self.message_list.ready.peek(may_wait)

    def head(self) -> Entry | MessageBatch | None:
        """Return the next message, or the run that begins with it; None also if its page is being read."""
        return self.message_list.ready.head()

    def expires_us(self) -> i64:
        """Return when the next message expires, 0 = never. No page is read for this, so it may be too early."""
        return self.message_list.ready.expires_us()

    def in_memory(self) -> list[Entry]:
        """Return all messages that are not on disk only, list by list, oldest first, without removing them."""
        return [entry for message_list in self.every_list() for entry in message_list.ready.in_memory()]

    def near(self) -> list[Entry]:
        """Return messages that are in no message list; only a Schedule has such."""
        return []

    def drop_head(self, entry: Entry) -> None:
        """Remove the oldest message of a message list, as returned by peek()."""
        entry.message_list.ready.drop()
        if self.limits is not None:
            self.limits.octets -= body_octets(entry.content)

    def forget_keys(self) -> None:
        """Free the deduplication keys of all messages; the pager releases their memory."""
        if self.limits is not None and self.limits.keys is not None and self.limits.keys.count() > 0:
            self.vhost.log.gone_keys.append(self.limits.keys.clear())

    def opened(self) -> None:
        """Called when the queue has got its number."""

    def abandon(self) -> None:
        """Called when the queue is deleted."""

    def touch(self) -> None:
        """Mark the queue for delivery at the end of the turn, after a change that may allow some."""
        self.is_touched = True
        self.vhost.touched.append(self)
        self.fill()

    def fill(self) -> None:
        """Tell the pager that the queue may have messages."""
        if not self.is_filled:
            self.is_filled = True
            self.vhost.log.filled[self] = None

    def drained(self) -> None:
        """Tell the pager that the queue has no messages."""
        if self.is_filled:
            self.is_filled = False
            del self.vhost.log.filled[self]

    def expiry(self, now_us: i64, message_ttl_us: i64) -> i64:
        """Return when a message that arrives now expires, by the smaller of the queue's TTL and its own; 0 = never."""
        ttl = self.ttl_us
        if message_ttl_us >= 0 and (ttl < 0 or message_ttl_us < ttl):
            ttl = message_ttl_us
        return now_us + ttl if ttl >= 0 else 0

    def what(self) -> str:
        """Return its type and names for log messages and error texts."""
        return f"queue {quoted(self.name)} in vhost {quoted(self.vhost.name)}"

    def record(self) -> dict[str, Value]:
        """Return the journal's record of the queue."""
        return {
            "op": "queue.declare",
            "vhost": self.vhost.name,
            "name": self.name,
            "number": int(self.number),
            "auto_delete": self.auto_delete,
            "arguments": self.arguments,
            "unplaced_below": int(self.unplaced_below),
        }

    def encoded(self) -> bytes:
        """Return the journal's record, encoded; it is cached, because each journal file begins with all of them."""
        if self._encoded_arguments is not self.arguments or self._encoded_below != self.unplaced_below:
            self._encoded = meta_record(self.record())
            self._encoded_arguments, self._encoded_below = self.arguments, self.unplaced_below
        return self._encoded

    def unplace(self) -> None:
        """Take the positions for federation links away from all messages that are in this durable queue now.

        Another consumer has one of them while a link gets others. That one may be requeued after the link has recorded
        positions of later messages.
        """
        self.unplaced_below = self.vhost.log.next_id
        self.vhost.log.meta(self.record() | {"op": "queue.unplace"})

    def dispatch(self, now_us: i64) -> None:
        """Deliver what can be delivered, at the end of a turn."""
        self.is_touched = False
        self.serve(now_us)

    def serve(self, now_us: i64) -> None:
        """Deliver what can be delivered, and set the timer for the next message that expires.

        Without a consumer the messages are not examined, so no page is read in vain.
        """
        consumers = self.consumers
        consumer = consumers.only
        room = EXPIRED_MAX
        is_crowded = self.count() > CROWD
        if self.awaiting != 0:
            pass  # the oldest message may not be requeued yet
        elif consumer is not None:
            while room > 0 and consumer.can_take(is_crowded):
                head = self.head()
                if head is None:
                    break
                if isinstance(head, Entry):
                    room -= self._give(consumer, head, now_us)
                elif self._gives_batches(consumer) and (head.expires_us == 0 or head.expires_us >= now_us):
                    self._give_batch(consumer, head)
                else:
                    room -= self._give(consumer, head.entry(head.taken), now_us)
        elif consumers.count > 0:
            entry = self.peek(True)
            while entry is not None and room > 0:
                consumer = consumers.next(is_crowded)
                if consumer is None:
                    break
                room -= self._give(consumer, entry, now_us)
                entry = self.peek(True)
        if consumers.count > 0 and self.count() > CROWD:
            self.vhost.crowded.append(self)
        expires_us = self.expires_us()
        if expires_us != 0:
            self.wake(expires_us)

    def fire(self, until_us: i64, most: i64, now_us: i64) -> i64:
        """Expire up to `most` messages that are due by `until_us`, and delete the queue if it is idle."""
        return self.vhost.fire(self, until_us, most, now_us)

    def _give(self, consumer: Consumer, entry: Entry, now_us: i64) -> i64:
        """Deliver an entry or let it expire; return how many have expired, 0 or 1."""
        self.drop_head(entry)
        if entry.expires_us != 0 and self._is_late(entry, now_us):
            self.vhost.expire(self, entry)
            return 1
        consumer.deliver(entry)
        if not consumer.no_ack:
            self.unacked += 1
            return 0
        if self.limits is not None:
            self.limits.left(entry)
        if entry.id != 0:
            self.vhost.log.settle(entry.message_list, entry.id)
        return 0

    def _gives_batches(self, consumer: Consumer) -> bool:
        """Whether messages of a run may leave together: not where each may have a deduplication key."""
        return consumer.takes_batches() and (self.limits is None or self.limits.keys is None)

    def _is_late(self, entry: Entry, now_us: i64) -> bool:
        """Whether the message has expired.

        A TTL of 0 allows delivery in the turn of arrival, but not of a requeued message.
        """
        if entry.redelivered:
            return entry.expires_us <= now_us
        return entry.expires_us < now_us and self.ttl_us != 0

    def _give_batch(self, consumer: Consumer, run: MessageBatch) -> None:
        first = run.taken
        count = min(run.buffer.count - first, consumer.room())
        run.message_list.ready.drop_batch(run, count)
        if self.limits is not None:
            self.limits.octets -= count * body_octets(run.buffer.data)
        consumer.deliver_batch(run, first, count)
        if not consumer.no_ack:
            self.unacked += count
        elif run.id != 0:
            self.vhost.log.settle(run.message_list, run.id + first, count)

    def taker(self) -> Consumer | None:
        """Return the consumer that gets a message at once, without bookkeeping; None if it has to be queued."""
        consumer = self.consumers.only
        if consumer is None or not consumer.no_ack or consumer.epochs is not None or self.count() > 0:
            return None
        if self.awaiting != 0:
            return None
        return consumer if consumer.can_take() else None

    def requeue(self, entry: Entry) -> None:
        """Requeue an entry to its original place. Call overflow.trim after the last of several, oldest first."""
        again = self._take_back(entry)
        if again is not None:
            again.message_list.ready.requeue(again)

    def requeue_all(self, message_list: MessageList, entries: list[Entry]) -> None:
        """Requeue several entries of one message list, like requeue()."""
        back: list[Entry] = []
        for entry in entries:
            again = self._take_back(entry)
            if again is not None:
                back.append(again)
        if back:
            message_list.ready.requeue_all(back)

    def _take_back(self, entry: Entry) -> Entry | None:
        """Return the entry to put back; None if its queue is deleted or its delivery limit exceeded."""
        self.unacked -= 1
        entry.redelivered = True
        entry.consumer = None
        if self.is_deleted:
            if entry.id != 0:
                self.vhost.log.forget(entry.message_list, entry.id)
            return None
        if self.counts_returns:
            again = returned(entry)
            entry = again
            if again.returns > self.delivery_limit >= 0:
                self.spent.append(again)
                self.vhost.over.append(self)
                return None
            if again.id != 0:
                self.vhost.log.returned(again.message_list, again.id, again.returns)
        if self.limits is not None:
            self.limits.octets += body_octets(entry.content)
            self.vhost.over.append(self)
        if not self.is_touched:
            self.touch()
        return entry
