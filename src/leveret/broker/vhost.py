"""A virtual host: its exchanges, queues and bindings, and how a message gets through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.broker import enforcement
from leveret.broker.channel import BrokerChannel
from leveret.broker.counters import Churn
from leveret.broker.dead_letters import dead_lettering, expiry_route
from leveret.broker.dead_letters.detached_history import EXPIRED
from leveret.broker.dead_letters.slow_dead_letters import SlowDeadLetters
from leveret.broker.dead_letters.undeliverable_retry import UndeliverableRetry
from leveret.broker.delayed import schedule
from leveret.broker.delayed.delay import DELAYED
from leveret.broker.delayed.schedule import Schedule
from leveret.broker.exchange_types.deduplication import Deduplication
from leveret.broker.exchange_types.exchange_arguments import EXCHANGE
from leveret.broker.exchanges.binding import Binding, Destination
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.exchanges.lookup import LEAST, Share
from leveret.broker.exchanges.route import Route
from leveret.broker.exchanges.tracing import Tracing
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import BatchBuffer
from leveret.broker.methods.arguments import UnknownArguments
from leveret.broker.names import RandomBytes
from leveret.broker.policies import Policies
from leveret.broker.publishers.references import PublisherReferences
from leveret.broker.queues import overflow
from leveret.broker.queues.ack_timeout import AckTimeout
from leveret.broker.queues.consumer import Consumer
from leveret.broker.queues.message_list import MessageList
from leveret.broker.queues.queue import EXPIRED_MAX, Queue
from leveret.broker.queues.queue_types import queue_type
from leveret.broker.queues.requeue_job import RequeueJobs
from leveret.broker.staging.queries import Producers
from leveret.broker.storage.log import Log
from leveret.broker.tally import Tally
from leveret.broker.timeline import Timeline
from leveret.broker.timers import Timers
from leveret.broker.watcher import Watcher
from leveret.session.confirms import HANDLED, JOURNALLED
from leveret.wire.table import Value

ROUTES_MAX: Final = 65536
PREDECLARED: Final = (
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.topic", "topic"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
    ("amq.rabbitmq.trace", "topic"),
)


class VHost:
    """A virtual host, with everything that it contains and the work that a turn leaves for its end."""

    def __init__(
        self, name: str, log: Log, timers: Timers, timeline: Timeline, ack_timeout: AckTimeout,
        on_event: Callable[[str], None], random_bytes: RandomBytes, churn: Churn, requeue_jobs: RequeueJobs,
    ) -> None:  # fmt: skip
        self.name = name
        self.log = log
        self.timers = timers
        self.timeline = timeline
        self.ack_timeout = ack_timeout
        self.on_event = on_event  # logs events such as a dropped message, once of each kind
        self.random_bytes = random_bytes
        self.requeue_jobs = requeue_jobs
        self.share = Share(LEAST)  # for lookups that no connection waits for
        self.policies = Policies()
        self.watcher = Watcher()
        self.ungoverned: list[Queue | Exchange] = []  # on which policies have not yet taken effect
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        self.schedules: dict[str, Schedule] = {}  # of delayed exchanges, by their names
        self.touched: list[Queue] = []  # to be served at the end of the turn
        self.over: list[Queue] = []  # may exceed their limits
        self.crowded: list[Queue] = []  # of this turn: many ready messages that consumers cannot take now
        self.is_trimming = self.is_leaving = False  # is_leaving: it is being deleted
        self.generation: i64 = 1  # grows when cached routes may be wrong
        self.routes: dict[bytes, Route] = {}
        self.plain: set[str] = set()  # exchanges that route by keys only, as far as known; cleared by changed()
        self.hop_bound: set[str] = set()  # likewise, by keys and hops
        self.replies: dict[str, Consumer] = {}  # requesters, by their direct reply-to names
        self.channels: set[BrokerChannel] = set()
        self.discards: dict[str, int] = {}  # numbers of dropped messages, by reason
        self.strangers = UnknownArguments(on_event)
        self.undeliverable_retry = UndeliverableRetry(self)
        self.slow_dead_letters = SlowDeadLetters(self)
        self.queries = Producers(self)
        self.publishers = PublisherReferences(self)
        self.connection_count = self.binding_count = 0
        self.limit({})
        self.tracing: Tracing | None = None  # see tracing.start
        self.tally = Tally(churn)
        self._nowhere = Queue(self, "", False, False, {})  # stands in for deleted queues
        for exchange_name, kind in PREDECLARED:
            internal = exchange_name == "amq.rabbitmq.trace"
            self.exchanges[exchange_name] = Exchange(exchange_name, kind, True, False, internal, {}, random_bytes)

    def limit(self, limits: Value) -> None:
        """Set max-connections and max-queues from the parameter's value; negative or missing means no limit."""
        given = limits if isinstance(limits, dict) else {}
        connections, queues = given.get("max-connections"), given.get("max-queues")
        self.connections_max = connections if isinstance(connections, int) else -1
        self.queues_max = queues if isinstance(queues, int) else -1

    # -- exchanges and bindings ----------------------------------------------------------------------------------------

    def add_exchange(
        self, name: str, kind: str, durable: bool, auto_delete: bool, internal: bool, arguments: dict[str, Value],
        number: int = 0,
    ) -> Exchange:  # fmt: skip
        """Declare a new exchange. number: its schedule's number in the journal, 0 = assign a new one."""
        exchange = Exchange(name, kind, durable, auto_delete, internal, arguments, self.random_bytes)
        if isinstance(exchange.matcher, Deduplication):
            exchange.matcher.timers = self.timers
        exchange.govern(self.policies.effect(EXCHANGE, name))
        self.exchanges[name] = exchange
        if kind == DELAYED:
            exchange.schedule = self.schedules[name] = Schedule(self, exchange)
            self.give_number(exchange.schedule, number)
        self.changed()
        if durable:
            self.log.meta(exchange.record(self.name))
        self.watcher.exchange_changed(self, exchange)
        return exchange

    def delete_exchange(self, exchange: Exchange) -> None:
        """Delete an exchange with its bindings."""
        self._forget_exchange(exchange)
        self._drop([exchange])

    def bind(self, binding: Binding) -> bool:
        """Add a binding; False if an equal one exists."""
        if binding.standing() is not None:
            return False
        self.log.stale_bindings.keep_pace()
        self.binding_count += 1
        binding.source.add(binding)
        self.changed()
        if binding.is_durable:
            self.log.declared(binding.record(self.name))
        if binding.source.watch != 0:
            self.watcher.bound(self, binding)
        return True

    def unbind(self, binding: Binding) -> None:
        """Remove a binding, and its source if that is auto-delete and has no other binding."""
        source = binding.source
        if binding.is_durable:
            self.log.declared(binding.removal(self.name))
        self.binding_count -= 1
        source.remove(binding)
        if source.watch != 0:
            self.watcher.unbound(self, binding)
        self._drop(self._forget_idle({source.name: source}))

    def _drop(self, gone: list[Destination]) -> None:
        """Remove the bindings to deleted destinations, the auto-delete exchanges left without any, and so on.

        The journal records each deleted exchange, because a replay cannot tell: it does not know transient bindings.
        """
        while gone:
            sources: dict[str, Exchange] = {}
            for each in gone:
                for source in list(each.incoming):
                    if not source.is_deleted:
                        bindings = source.lose(each)
                        self.binding_count -= len(bindings)
                        self.log.stale_bindings.add(self, source, {each: bindings}, len(bindings))
                        sources[source.name] = source
            self.log.stale_bindings.settle(self.log.is_replaying)
            gone = self._forget_idle(sources)
        self.changed()

    def _forget_idle(self, sources: dict[str, Exchange]) -> list[Destination]:
        """Delete those of these auto-delete exchanges that have no binding left, and return them."""
        gone: list[Destination] = []
        for name in sorted(sources):
            source = sources[name]
            if source.auto_delete and not source.outgoing and not self.log.is_replaying:
                self._forget_exchange(source)
                gone.append(source)
        return gone

    def _forget_exchange(self, exchange: Exchange) -> None:
        """Delete an exchange with all bindings from it. The caller removes those to it."""
        exchange.is_deleted = True
        exchange.onward.clear()  # it may contain the exchange itself
        del self.exchanges[exchange.name]
        self.binding_count -= exchange.binding_count
        self.log.stale_bindings.add(self, exchange, exchange.outgoing, exchange.binding_count)
        self.tally.count_publishes()
        self.tally.gone_passage.add(exchange.passage)
        if exchange.schedule is not None:
            held = self.schedules.pop(exchange.name)
            held.is_deleted = True
            self.forget_messages(held)
            held.forget()
        if exchange.durable:
            self.log.meta({"op": "exchange.delete", "vhost": self.name, "name": exchange.name})
        exchange.watch = 0
        self.watcher.exchange_deleted(self, exchange)

    def changed(self) -> None:
        """Drop all cached routes."""
        self.generation += 1
        self.routes.clear()
        self.plain.clear()
        self.hop_bound.clear()
        self.tally.count_publishes()

    # -- queues --------------------------------------------------------------------------------------------------------

    def add_queue(self, queue: Queue, number: int, now_us: i64) -> None:
        """Declare a new queue. number: its number in the journal, 0 = assign a new one."""
        self.queues[queue.name] = queue
        self.give_number(queue, number)
        queue.opened()
        if queue.is_journalled:
            self.log.declared(queue.encoded())
        if not self.log.is_replaying:
            self.tally.churn.queue_created += 1
            self.used(queue, now_us)
        self.changed()

    def give_number(self, queue: Queue, number: int) -> None:
        """Give a journalled queue this number in the journal, 0 = the next free one."""
        if queue.is_journalled:
            queue.number = number or self.log.next_number
            self.log.next_number = max(self.log.next_number, int(queue.number) + 1)

    def holders(self) -> list[Queue]:
        """Return everything that holds messages: queues, schedules of delayed exchanges and stages."""
        return [*self.queues.values(), *self.schedules.values(), *self.queries.stages()]

    def used(self, queue: Queue, now_us: i64) -> None:
        """Restart the time of x-expires."""
        queue.used_us = now_us
        if queue.idle_us and queue.idle_timer_us == 0:
            self._watch_idle(queue)

    def _watch_idle(self, queue: Queue) -> None:
        queue.idle_timer_us = queue.used_us + queue.idle_us
        self.timers.add(queue.idle_timer_us, queue)

    def delete_queue(self, queue: Queue) -> int:
        """Delete a queue with its messages and bindings, and return the number of messages.

        Its consumers are removed from their channels; the caller sends them basic.cancel if necessary.
        """
        if queue.is_deleted:
            return 0
        queue.is_deleted = True
        self.timers.forget_deleted()
        del self.queues[queue.name]
        if queue.owner is not None:
            queue.owner.exclusive.pop(queue.name, None)
        self._drop([queue] if queue.incoming else [])
        for consumer in queue.consumers.all():
            queue.consumers.remove(consumer)
            consumer.channel.consumers.pop(consumer.tag, None)
            if consumer.reader is not None:
                consumer.reader.let_go()
        self.tally.counters.add_outgoing(queue.counters)
        self.tally.gone[queue_type(queue.arguments)].add_outgoing(queue.counters)
        self.tally.churn.queue_deleted += 1
        count = int(queue.count())
        self.forget_messages(queue)
        if queue.is_journalled:
            self.log.meta({"op": "queue.delete", "vhost": self.name, "name": queue.name})
        self.changed()
        return count

    def forget_messages(self, queue: Queue) -> None:
        """Drop all messages of a deleted queue."""
        for message_list in queue.every_list():
            self.log.let_go(message_list, message_list.ready.clear(), False)
        if queue.is_journalled:
            for entry in queue.near():
                if entry.id:
                    self.log.forget(entry.message_list, entry.id)
            self.log.abandon(queue)
            queue.abandon()
        # queue, message lists and messages refer to each other, and the garbage collector that could free such cycles
        # is off
        queue.forget_keys()
        queue.expiry_routes.clear()
        queue.drained()
        queue.message_lists = []
        queue.undeliverable = None
        self.undeliverable_retry.queues.pop(queue.name, None)
        queue.message_list = MessageList(self._nowhere, 0)
        queue.owner = None  # its timer may be days away, and would keep the connection in memory

    def purge(self, queue: Queue) -> int:
        """Drop all ready messages, but not the unacknowledged ones; return their number."""
        count = int(queue.count())
        for message_list in queue.message_lists:
            self.log.let_go(message_list, message_list.ready.clear(), True)
        queue.forget_keys()
        return count

    def remove_consumer(self, consumer: Consumer, now_us: i64) -> None:
        """Remove a cancelled consumer, or one whose channel closed; an auto-delete queue goes with the last one."""
        queue = consumer.queue
        assert queue is not None
        queue.consumers.remove(consumer)
        if consumer.reader is not None:
            consumer.reader.let_go()
        if queue.consumers.count == 0:
            if queue.auto_delete:
                self.delete_queue(queue)
            else:
                self.used(queue, now_us)
        elif (queue.consumers.has_active or queue.is_stream) and not queue.is_touched:
            queue.touch()  # another consumer may be active now

    # -- messages ------------------------------------------------------------------------------------------------------

    def accept(
        self, route: Route, content: bytes, persistent: bool, ttl_us: i64, now_us: i64, moved: Entry | None = None
    ) -> i64:
        """Offer a message to the route's queues. Returns the state of its confirm: HANDLED, REFUSED or JOURNALLED.

        moved: the journalled dead letter that becomes this message; the same record removes it from its queue.
        """
        if route.is_limited:
            return overflow.accept(self, route, content, persistent, ttl_us, now_us, moved)
        if route.is_delayed:
            return schedule.accept(self, route, content, persistent, ttl_us, now_us, moved)
        id: i64 = 0
        keeping = route.durable if persistent else route.keeping
        if keeping:
            size: i64 = len(content)
            id = self.log.begin_messages(1, size, size, content, route.key, len(keeping), moved)
            self._journal(keeping, content, ttl_us, now_us)
        for queue in route.queues:
            kept: i64 = 0
            if id != 0 and (queue.is_journalled if persistent else queue.keeps_all):
                kept = id
            queue.list_of(content).enqueue(content, route.key, kept, queue.expiry(now_us, ttl_us))
        return HANDLED if id == 0 else JOURNALLED

    def taker(self, route: Route, persistent: bool) -> Consumer | None:
        """Return the consumer that gets a publish on this route at once, without bookkeeping; None if it is queued.

        Dead letters are always queued until the end of the turn: as in RabbitMQ, an answer precedes what it has caused.
        """
        if not route.passes or self.tracing is not None:
            return None
        queue = route.queues[0]
        return None if (queue.is_journalled if persistent else queue.keeps_all) else queue.taker()

    def accept_batch(self, route: Route, buffer: BatchBuffer, persistent: bool, ttl_us: i64, now_us: i64) -> i64:
        """Offer a batch of messages to the route's queues, none of which has limits; returns like accept()."""
        id: i64 = 0
        keeping = route.durable if persistent else route.keeping
        if keeping:
            buffer.compact()
            count, data = buffer.count, buffer.data
            id = self.log.begin_messages(count, buffer.stride, buffer.size, data, route.key, len(keeping), None)
            self._journal(keeping, data, ttl_us, now_us)
        for queue in route.queues:
            if queue.consumers.count == 0:
                buffer.compact()  # the messages may stay for long
            message_list = queue.list_of(buffer.data)
            is_kept = queue.is_journalled if persistent else queue.keeps_all
            message_list.enqueue_batch(buffer, id if is_kept else 0, queue.expiry(now_us, ttl_us))
        return HANDLED if id == 0 else JOURNALLED

    def _journal(self, queues: list[Queue], data: bytes, ttl_us: i64, now_us: i64) -> None:
        """Write the rest of a record of messages, after log.begin_messages."""
        for queue in queues:
            self.log.add_queue(queue.list_of(data), queue.expiry(now_us, ttl_us))
        self.log.end_messages(data)

    def expire(self, queue: Queue, entry: Entry) -> None:
        """Dead-letter or drop an expired entry that was removed from its queue."""
        if queue.limits is not None:
            queue.limits.left(entry)
        self.tally.deaths.add(queue, EXPIRED)
        # while undeliverable messages are retried, none must overtake them
        must_wait = self.undeliverable_retry.is_busy or queue.is_dead_lettering_slowly
        if must_wait or not expiry_route.go_on(self, queue, entry):
            dead_lettering.dead_letter(self, queue, entry, EXPIRED, entry.expires_us)

    def dead_letter(self, queue: Queue, entry: Entry, reason: str, now_us: i64) -> None:
        """Dead-letter an entry that was removed from its queue; drop it if the queue has no dead letter exchange."""
        if queue.limits is not None:
            queue.limits.left(entry)
        self.tally.deaths.add(queue, reason)
        dead_lettering.dead_letter(self, queue, entry, reason, now_us)

    def discard(self, queue: Queue, reason: str) -> None:
        """Count a message that is dropped without anybody being notified."""
        self.discards[reason] = self.discards.get(reason, 0) + 1
        self.tell_once(queue, f"{reason}: the message is dropped")

    def tell_once(self, queue: Queue, text: str) -> None:
        """Log a text about this queue the first time only."""
        if text not in queue.told:
            queue.told.add(text)
            self.on_event(f"{queue.what()}: {text} (logged once; all are counted)")

    def reply(self, requester: Consumer, content: bytes, key: bytes) -> None:
        """Deliver a direct reply to its requester. There is no queue for it, so it is written now or dropped."""
        requester.pass_on(key, content, 0, len(content))
        requester.channel.reply_to_delivered += 1

    # -- the end of a turn and time ------------------------------------------------------------------------------------

    def settle_turn(self, now_us: i64) -> None:
        """Deliver everything that became deliverable in this turn."""
        self.crowded.clear()
        if self.policies.is_changed or self.ungoverned:
            enforcement.enforce(self, now_us)
        if self.undeliverable_retry.queues and self.undeliverable_retry.generation != self.generation:
            self.undeliverable_retry.hurry(now_us)
        overflow.trim(self, now_us)
        while self.touched or (self.tracing is not None and self.tracing.emit(int(now_us))):
            touched = self.touched
            self.touched = []
            for queue in touched:
                if not queue.is_deleted:
                    queue.dispatch(now_us)

    def fire(self, queue: Queue, until_us: i64, most: i64, now_us: i64) -> i64:
        """Handle the timers of a queue: expire up to `most` messages due by `until_us`, delete the queue if idle.

        Returns the number of steps that this took, at least one.
        """
        if queue.timer_us != 0 and queue.timer_us <= now_us:
            queue.timer_us = 0
        if queue.ttl_us == 0 and queue.is_touched:
            queue.serve(now_us)  # messages that arrived in this turn may be delivered
        due_us = queue.expires_us()
        steps = 1 + expiry_route.expire(self, queue, until_us, most)
        if steps > 1 and queue.level is not None:
            self.log.measures.late_levels_us.add(max(now_us - due_us, 0), steps - 1)
        if queue.limits is not None:
            self.over.append(queue)
        if not queue.is_touched and queue.count():
            queue.touch()
        if queue.idle_timer_us != 0 and queue.idle_timer_us <= now_us:
            queue.idle_timer_us = 0
            if queue.consumers.count > 0:
                return steps  # the last consumer to leave restarts the time
            if now_us >= queue.used_us + queue.idle_us:
                self.delete_queue(queue)
            else:
                self._watch_idle(queue)
        return steps

    def expire_due(self, queue: Queue, now_us: i64) -> None:
        """Expire the oldest messages whose time is over; if there are many, the queue's timer handles the rest."""
        expiry_route.expire(self, queue, now_us, EXPIRED_MAX)

    def forget_channel(self, channel: BrokerChannel, now_us: i64) -> None:
        """Remove a closed channel: its consumers end, its unacknowledged messages are requeued."""
        channel.is_closed = True
        if channel.confirms is not None:
            self.tally.counters.confirm += channel.confirms.confirmed()
            self.tally.to_confirm += channel.confirms.published
        self.channels.discard(channel)
        channel.staging = None
        if channel.publisher is not None:
            channel.publisher.detach(now_us)
        if channel.tx is not None and channel.tx.settlements:
            channel.tx.release(channel.unacked)
        if channel.reply is not None:
            self.forget_reply(channel)
        self.tally.replies_delivered += channel.reply_to_delivered
        self.tally.replies_dropped += channel.reply_to_dropped
        sources = channel.sources() if channel.unacked.count > 0 else []
        for consumer in list(channel.consumers.values()):
            self.remove_consumer(consumer, now_us)
        channel.consumers.clear()
        begun, channel.requeue_job = channel.requeue_job, None
        if channel.unacked.count > 0:
            self.requeue_jobs.begin(self, channel, None, 0, sources, now_us)
        if begun is not None:
            self.requeue_jobs.end(begun)

    def holding(self) -> list[BrokerChannel]:
        """Return the channels that may have unacknowledged messages."""
        return [*self.channels, *(way.channel for way in self.requeue_jobs.of(self) if way.channel.is_closed)]

    def forget_reply(self, channel: BrokerChannel) -> None:
        """Invalidate the channel's direct reply-to name."""
        self.replies.pop(channel.reply_name.decode(), None)
        channel.reply = None
        self.changed()
