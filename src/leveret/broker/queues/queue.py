"""A queue: its messages, its consumers, and who gets the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.counters import Counters
from leveret.broker.dead_letters.undeliverable import UNDELIVERABLE, Undeliverable
from leveret.broker.delayed.levels import Level
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.returned import returned
from leveret.broker.messages.run import Run
from leveret.broker.policies import NO_EFFECT, Effect
from leveret.broker.queues.ack_timeout import NOT_GIVEN
from leveret.broker.queues.consumers import Consumers
from leveret.broker.queues.limits import Limits, body_octets
from leveret.broker.queues.message_list import MessageList
from leveret.broker.storage.log import meta_record
from leveret.wire.errors import quoted
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.dead_letters.expiry_route import ExpiryRoute
    from leveret.broker.exchanges.binding import Bindings
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.peer import Peer
    from leveret.broker.queues.consumer import Consumer
    from leveret.broker.vhost import VHost

# A queue with more messages that its consumers may not take yet is crowded: see net/fairness.py.
CROWD: Final[i64] = 4096
# that have expired, in one turn: the queue's alarm takes the others
EXPIRED_MAX: Final[i64] = 1024


class Queue:
    """message_lists: all of them, those that are delivered first in front; message_list: the one with index 0.

    unplaced_below: messages with smaller ids have no position for links. number: unique for the life of the data
    directory (0 = not durable); owner: the connection of an exclusive one; declared: its arguments as they came from a
    client, empty if they came from the journal; effect: what policies say of it. What follows is the outcome of both:
    see queue_settings.py.

    ttl_us: x-message-ttl, -1 = none; idle_us: x-expires, 0 = none; dead_letter_exchange: None = expired and rejected
    messages are dropped. limits: of its length, None = none; delivery_limit: how often a message may come back, -1 = as
    often as it likes; counts_returns: it is told how often it came back; spent: messages that came back once more than
    that, refused: those without room; both are still to be dead-lettered. awaiting: how many channels are requeuing
    messages that may be its own (requeue_job.py): until all are back, it delivers nothing. leaving: how many lists of
    its messages are gone and not settled yet (leaving.py). is_quorum: it is of this type; keeps_all: the journal has
    its transient messages, too; level: which one of a delay layout it is, None = none; keeps_undeliverable: its dead
    letters that reach no queue are kept, and not dropped; undeliverable: those that are.
    is_dead_lettering_slowly: some of these are being looked up (slow_dead_letters.py).
    """

    def __init__(self, vhost: VHost, name: str, durable: bool, auto_delete: bool, arguments: dict[str, Value]) -> None:
        self.vhost = vhost
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.arguments = arguments
        self.declared = b""
        self.effect: Effect = NO_EFFECT
        self.owner: Peer | None = None
        # an exclusive queue never outlives its connection, so the journal need not know it
        self.is_journalled = durable
        self.is_schedule = False
        self.is_stream = False
        self.number: i64 = 0
        self.message_list = MessageList(self, 0)
        self.message_lists = [self.message_list]
        self.unacked: i64 = 0
        self.awaiting: i64 = 0
        self.leaving: i64 = 0
        self.unplaced_below: i64 = 0
        self.counters = Counters()
        self.consumers = Consumers()
        self.incoming: dict[Exchange, Bindings] = {}  # the bindings to it
        self.ttl_us: i64 = -1
        self.idle_us: i64 = 0
        self.dead_letter_exchange: str | None = None
        self.dead_letter_key: str | None = None
        self.limits: Limits | None = None
        self.delivery_limit: i64 = -1
        self.counts_returns = False
        self.is_quorum = False
        self.keeps_all = False
        self.level: Level | None = None
        self.keeps_undeliverable = False
        self.undeliverable: Undeliverable | None = None
        self.is_dead_lettering_slowly = False
        self.timeout_ms: i64 = NOT_GIVEN  # see ack_timeout.py
        self.spent: list[Entry] = []
        self.refused: list[Entry] = []
        self.told: set[str] = set()
        self.is_touched = False
        self.is_filled = False  # it stands in Log.filled
        self.is_deleted = False
        self._encoded = b""  # its record, with these arguments and this limit
        self._encoded_arguments: dict[str, Value] | None = None
        self._encoded_below: i64 = 0
        self.used_us: i64 = 0
        self.idle_alarm_us: i64 = 0  # when the timer of x-expires is set for, 0 = none
        # its consumers are slow: until then no publisher waits for them, the next time for so much longer
        self.respite_until_us: i64 = 0
        self.respite_us: i64 = 0
        self.alarm_us: i64 = 0  # when its timer is set for, 0 = none
        self.expiry_routes: dict[bytes, ExpiryRoute] = {}  # where what expires goes, by its key: see expiry_route.py
        self.expiry_routes_generation: i64 = 0

    # -- what waits ----------------------------------------------------------------------------------------------------

    def list_of(self, content: bytes) -> MessageList:
        """Where a message with this content belongs, or alike ones that begin with it."""
        return self.message_list

    def list_at(self, index: i64) -> MessageList:
        """The message list that the journal knows by this index."""
        if index < UNDELIVERABLE:
            return self.message_list
        if self.undeliverable is None:
            self.undeliverable = Undeliverable(self)  # a policy made it keep what is undeliverable
        return self.undeliverable.list_at(index)

    def every_list(self) -> list[MessageList]:
        """Those of what waits, and those of what is undeliverable."""
        if self.undeliverable is None or not self.undeliverable.message_lists:
            return self.message_lists
        return [*self.message_lists, *self.undeliverable.message_lists.values()]

    def count(self) -> i64:
        """How many messages wait for delivery."""
        return self.message_list.ready.count()

    def outstanding(self) -> i64:
        """How many messages consumers have, besides those that wait."""
        return self.unacked

    def undeliverable_count(self) -> i64:
        """How many dead letters wait for a way."""
        return self.undeliverable.count() if self.undeliverable is not None else 0

    def body_octets(self) -> i64:
        """Size of the bodies of all that wait for delivery; pages are read for it."""
        octets: i64 = 0
        for message_list in self.message_lists:
            octets += message_list.body_octets()
        return octets

    def peek(self, may_wait: bool = False) -> Entry | None:
        """The message that is next, left where it is. may_wait: None, though count() is not 0, if it has to be waited
        for: the queue is touched when it is here."""
        return self.message_list.ready.peek(may_wait)

    def head(self) -> Entry | Run | None:
        """The message that is next, or the run whose first remaining message it is, left where it is; None also if it
        has to be waited for."""
        return self.message_list.ready.head()

    def expires_us(self) -> i64:
        """When the next message expires, 0 = never; no page is read for it, so it may be an earlier time."""
        return self.message_list.ready.expires_us()

    def in_memory(self) -> list[Entry]:
        """All messages that are not on disk only, message list by message list, oldest first, left where they are."""
        return [entry for message_list in self.every_list() for entry in message_list.ready.in_memory()]

    def near(self) -> list[Entry]:
        """Those in no message list."""
        return []

    def drop_head(self, entry: Entry) -> None:
        """Take out the oldest message of a message list, as peek() showed it."""
        entry.message_list.ready.drop()
        if self.limits is not None:
            self.limits.octets -= body_octets(entry.content)

    def opened(self) -> None:
        """It has its number now."""

    def abandon(self) -> None:
        """It is deleted, and what it has with it."""

    def touch(self) -> None:
        """Something changed that may allow deliveries: look at the end of the turn."""
        self.is_touched = True
        self.vhost.touched.append(self)
        self.fill()

    def fill(self) -> None:
        """It may have messages now: let the pager know it."""
        if not self.is_filled:
            self.is_filled = True
            self.vhost.log.filled[self] = None

    def drained(self) -> None:
        """It has none."""
        if self.is_filled:
            self.is_filled = False
            del self.vhost.log.filled[self]

    def expiry(self, now_us: i64, message_ttl_us: i64) -> i64:
        """When a message that arrives now expires: the smaller of the queue's and its own time to live; 0 = never."""
        ttl = self.ttl_us
        if message_ttl_us >= 0 and (ttl < 0 or message_ttl_us < ttl):
            ttl = message_ttl_us
        return now_us + ttl if ttl >= 0 else 0

    def what(self) -> str:
        """Its kind and names, for messages to people."""
        return f"queue {quoted(self.name)} in vhost {quoted(self.vhost.name)}"

    def record(self) -> dict[str, Value]:
        """The journal's record of it, if it is durable."""
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
        """The record as it stands in the journal, encoded once: each file begins with those of all queues."""
        if self._encoded_arguments is not self.arguments or self._encoded_below != self.unplaced_below:
            self._encoded = meta_record(self.record())
            self._encoded_arguments, self._encoded_below = self.arguments, self.unplaced_below
        return self._encoded

    def unplace(self) -> None:
        """Somebody else has one of its messages while a link gets others: it may return when those behind it have
        been told of, so none that is here now has a position from here on. It is a durable one."""
        self.unplaced_below = self.vhost.log.next_id
        self.vhost.log.meta(self.record() | {"op": "queue.unplace"})

    def dispatch(self, now_us: i64) -> None:
        """The end of a turn: deliver what can be delivered."""
        self.is_touched = False
        self.serve(now_us)

    def serve(self, now_us: i64) -> None:
        """Deliver what can be delivered; set the timer of what is left.

        Without a consumer nothing is looked at, so that no page is read for nobody.
        """
        consumers = self.consumers
        consumer = consumers.only
        room = EXPIRED_MAX
        is_crowded = self.count() > CROWD
        if self.awaiting != 0:
            pass  # the oldest message may not be here yet
        elif consumer is not None:
            while room > 0 and consumer.can_take(is_crowded):
                head = self.head()
                if head is None:
                    break
                if isinstance(head, Entry):
                    room -= self._give(consumer, head, now_us)
                elif consumer.takes_runs() and (head.expires_us == 0 or head.expires_us >= now_us):
                    self._give_run(consumer, head)
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

    def wake(self, when_us: i64) -> None:
        """Ring the queue's alarm at this time; when an earlier one rings, the next one is set."""
        if self.alarm_us == 0 or when_us < self.alarm_us:
            self.alarm_us = when_us
            self.vhost.timers.add(when_us, self)

    def _give(self, consumer: Consumer, entry: Entry, now_us: i64) -> i64:
        """Returns how many have expired."""
        self.drop_head(entry)
        if entry.expires_us != 0 and self._is_late(entry, now_us):
            self.vhost.expire(self, entry)
            return 1
        consumer.deliver(entry)
        if not consumer.no_ack:
            self.unacked += 1
        elif entry.id != 0:
            self.vhost.log.settle(entry.message_list, entry.id)
        return 0

    def _is_late(self, entry: Entry, now_us: i64) -> bool:
        """Whether its time to live is over. It may be 0: then a consumer may have the message that comes in this turn,
        but none that comes back."""
        if entry.redelivered:
            return entry.expires_us <= now_us
        return entry.expires_us < now_us and self.ttl_us != 0

    def _give_run(self, consumer: Consumer, run: Run) -> None:
        first = run.taken
        count = min(run.stretch.count - first, consumer.room())
        run.message_list.ready.drop_run(run, count)
        if self.limits is not None:
            self.limits.octets -= count * body_octets(run.stretch.data)
        consumer.deliver_run(run, first, count)
        if not consumer.no_ack:
            self.unacked += count
        elif run.id != 0:
            self.vhost.log.settle(run.message_list, run.id + first, count)

    def taker(self) -> Consumer | None:
        """Who gets a message that comes now, at once and with nothing to be kept of it; None: it has to wait."""
        consumer = self.consumers.only
        if consumer is None or not consumer.no_ack or consumer.epochs is not None or self.count() > 0:
            return None
        if self.awaiting != 0:
            return None
        return consumer if consumer.can_take() else None

    def requeue(self, entry: Entry) -> None:
        """Take back an unacknowledged entry to its original place; after the last of several, oldest first, call
        overflow.trim."""
        again = self._take_back(entry)
        if again is not None:
            again.message_list.ready.requeue(again)

    def requeue_all(self, message_list: MessageList, entries: list[Entry]) -> None:
        """The same for some of one of its message lists."""
        back: list[Entry] = []
        for entry in entries:
            again = self._take_back(entry)
            if again is not None:
                back.append(again)
        if back:
            message_list.ready.requeue_all(back)

    def _take_back(self, entry: Entry) -> Entry | None:
        """An entry as it waits from now on; None if it does not."""
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
