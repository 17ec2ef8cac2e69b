"""The reference model: a second broker of plain lists, which knows AMQP's rules but neither bytes nor disks.

It learns what clients did and saw, checks each delivery against its lists, and after each step holds exactly what the
broker must hold. Only the order between messages that came from different queues is not fixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from .state import Death, Row, State
from .topology import KEEPING, QUORUM, STREAMS, priority_of

# the holder of messages that are on their way back to their queue
NOBODY = ""


@dataclass(frozen=True)
class Delivery:
    """A message that a client got.

    Attributes:
        consumer: (client, consumer tag); each consumer's deliveries are in order.
        tag: The delivery tag, None if the message is settled.
        offset: The offset in its stream, None for other queues.
    """

    consumer: tuple[str, str]
    queue: str
    tag: int | None
    id: int
    exchange: str
    key: str
    deaths: tuple[Death, ...]
    redelivered: bool
    offset: int | None = None

    def shows(self, copy: Copy) -> bool:
        """Whether the delivery matches this copy in everything that a client sees."""
        return (self.id, self.exchange, self.key, self.deaths, self.redelivered) == (
            copy.id, copy.exchange, copy.key, copy.deaths, copy.redelivered
        )  # fmt: skip


@dataclass(eq=False)
class Copy:
    """A message in a queue.

    Attributes:
        origin: The queue that it was first published to.
        holder: (client, delivery tag) while it is unacknowledged.
        batch: The journal batch that it came with, in this run.
    """

    id: int
    exchange: str
    key: str
    persistent: bool
    expires_us: int
    origin: str
    deaths: tuple[Death, ...] = ()
    first: tuple[str, str, str] | None = None
    redelivered: bool = False
    returns: int = 0
    holder: tuple[str, int] | None = None
    batch: int = 0

    def row(self) -> Row:
        return Row(
            self.id, self.exchange, self.key, self.persistent, self.expires_us, self.deaths, self.first,
            self.redelivered, self.returns,
        )  # fmt: skip

    @property
    def source(self) -> str:
        return self.deaths[0].queue if self.deaths else ""


@dataclass
class ModelQueue:
    """A declared queue and its messages in order, unacknowledged ones included.

    A stream keeps all messages here, whatever retention removes.

    Attributes:
        rank_max: The largest priority.
        first: The offset of a stream's oldest message.
        placed: How many messages have an offset that is known; only the broker can tell.
    """

    name: str
    durable: bool
    ttl_us: int = -1
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    rank_max: int = 0
    copies: list[Copy] = field(default_factory=list)
    first: int = 0
    placed: int = 0

    @property
    def is_stream(self) -> bool:
        return self.name in STREAMS

    @property
    def end(self) -> int:
        """The offset behind the newest message."""
        return self.first + len(self.copies)

    def place(self, rows: Iterable[Row]) -> None:
        """Put messages that came from several queues at once in the order that the broker gave them, as `rows` show."""
        new = {copy.row(): copy for copy in self.copies[self.placed :]}
        order = [row for row in rows if row.returns >= self.first + self.placed]
        mine, theirs = _by_source(new), _by_source(row._replace(returns=0) for row in order)
        assert mine == theirs, f"{self.name}: model and broker differ; model:\n{mine}\nbroker:\n{theirs}"
        self.copies[self.placed :] = [new[row._replace(returns=0)] for row in order]
        for copy, row in zip(self.copies[self.placed :], order, strict=True):
            copy.returns = row.returns
        self.placed = len(self.copies)

    def head(self) -> Copy | None:
        """The message that is delivered or expires next."""
        return next((copy for copy in self.copies if copy.holder is None), None)

    def add(self, copy: Copy) -> None:
        """Add a message behind all others of its priority."""
        rank = self._rank(copy)
        place = len(self.copies)
        while place > 0 and self._rank(self.copies[place - 1]) < rank:
            place -= 1
        self.copies.insert(place, copy)

    def _rank(self, copy: Copy) -> int:
        return min(priority_of(copy.id), self.rank_max)

    def keeps(self, copy: Copy) -> bool:
        """Whether this message survives a stop of the broker in this queue."""
        return self.durable and (copy.persistent or self.name in KEEPING)


@dataclass
class ModelReader:
    """A consumer of a stream.

    Attributes:
        next: The offset of the next message.
        tags: Unacknowledged delivery tags.
    """

    queue: str
    next: int
    prefetch: int
    tags: list[int] = field(default_factory=list)


class Model:
    """The state that the broker must have.

    Messages in streams are never in `owed`: all of them must be there.
    """

    def __init__(self) -> None:
        self.batch = 1  # number of the journal batch that current changes belong to
        self.expirations: dict[int, str] = {}  # message id -> expiration that its publisher asked for
        self.exchanges: dict[str, bool] = {"": True}
        self.bindings: set[tuple[str, str, str]] = set()
        self.queues: dict[str, ModelQueue] = {}
        self.definitions: dict[tuple[str, tuple[str, ...]], str] = {}
        # (id, first queue) of durable messages that were published -> batch in which they were settled, None = not yet
        self.owed: dict[tuple[int, str], int | None] = {}
        self.confirmed: set[int] = set()
        self.hops: Counter[int] = Counter()  # batch -> dead-letter hops of durable messages in it
        self.readers: dict[tuple[str, str], ModelReader] = {}  # (client, consumer tag) -> consumer of a stream
        self.firsts: dict[str, int] = {}  # stream -> offset of the first message that retention has kept
        self.seen = 0  # the newest batch of which a stream's consumer has seen a message

    # -- what clients do -----------------------------------------------------------------------------------------------

    def delete_queue(self, name: str) -> int:
        """Delete a queue; return how many messages were ready."""
        queue = self.queues.pop(name)
        self.bindings = {binding for binding in self.bindings if binding[2] != name}
        self.readers = {key: reader for key, reader in self.readers.items() if reader.queue != name}
        for copy in queue.copies:
            self._end(queue, copy)
        return sum(copy.holder is None for copy in queue.copies)

    def delete_exchange(self, name: str) -> None:
        del self.exchanges[name]
        self.bindings = {binding for binding in self.bindings if binding[0] != name}

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with its definitions."""
        self.definitions = {at: value for at, value in self.definitions.items() if at[1][0] != name}

    def route(self, exchange: str, key: str) -> list[ModelQueue]:
        """Return the queues that a key is bound to; all exchanges are direct ones."""
        names = [key] if exchange == "" else [b[2] for b in self.bindings if b[:2] == (exchange, key)]
        return [self.queues[name] for name in names if name in self.queues]

    def publish(self, id: int, exchange: str, key: str, persistent: bool, ttl_ms: int | None, now_us: int) -> bool:
        """Publish; return whether the confirm must wait for the disk."""
        if ttl_ms is not None:
            self.expirations[id] = str(ttl_ms)
        targets = self.route(exchange, key)
        must_wait = False
        for queue in targets:
            copy = Copy(id, exchange, key, persistent, 0, queue.name)
            must_wait = must_wait or queue.keeps(copy)
            self._arrive(queue, copy, now_us, ttl_ms)
            if queue.keeps(copy) and not queue.is_stream:
                self.owed[id, queue.name] = None
        return must_wait

    def purge(self, name: str) -> int:
        queue = self.queues[name]
        ready = [copy for copy in queue.copies if copy.holder is None]
        for copy in ready:
            queue.copies.remove(copy)
            self._end(queue, copy)
        return len(ready)

    def delivered(self, deliveries: Iterable[Delivery], now_us: int) -> None:
        """Check deliveries and take them from their queues. The order between different consumers is free."""
        streams: dict[tuple[str, str], list[Delivery]] = {}
        for delivery in deliveries:
            if delivery.offset is None:
                streams.setdefault(delivery.consumer, []).append(delivery)
            else:
                self._read(delivery, delivery.offset)
        while streams:
            if any(self._take(stream) for stream in streams.values()):
                streams = {consumer: stream for consumer, stream in streams.items() if stream}
            elif not self._expire_one(now_us):
                raise AssertionError(f"delivered, but not next in its queue: {[s[0] for s in streams.values()]}")

    def _read(self, delivery: Delivery, offset: int) -> None:
        """Check that a stream's consumer gets each message in order, except for those that retention has removed."""
        reader, queue = self.readers[delivery.consumer], self.queues[delivery.queue]
        first = self.firsts[queue.name]
        assert offset == reader.next or reader.next < offset <= first, f"{offset} after {reader.next}, first: {first}"
        copy = queue.copies[offset - queue.first]
        assert delivery.shows(copy), f"{offset} of {queue.name} is {copy}, not {delivery}"
        assert copy.returns == offset
        assert delivery.tag is not None
        reader.tags.append(delivery.tag)
        assert len(reader.tags) <= reader.prefetch, "more than its credit"
        reader.next = offset + 1
        self.seen = max(self.seen, copy.batch)

    def check_readers(self) -> None:
        """Check, at rest, that each stream's consumer has all messages, or as many as its prefetch allows."""
        for consumer, reader in self.readers.items():
            end = self.queues[reader.queue].end
            is_idle = reader.next >= end or len(reader.tags) == reader.prefetch
            assert is_idle, f"{consumer} waits for {reader.next} of {end} and has {reader.tags}"

    def _take(self, stream: list[Delivery]) -> bool:
        """Play a consumer's deliveries while each is the first of its source in its queue; return False if none was."""
        count = len(stream)
        while stream and (copy := self._next(stream[0])) is not None:
            delivery = stream.pop(0)
            if delivery.tag is None:
                queue = self.queues[delivery.queue]
                queue.copies.remove(copy)
                self._end(queue, copy)
            else:
                copy.holder = (delivery.consumer[0], delivery.tag)
        return len(stream) < count

    def _next(self, delivery: Delivery) -> Copy | None:
        seen: set[str] = set()
        for copy in self.queues[delivery.queue].copies:
            if copy.holder in (None, (NOBODY, 0)) and copy.source not in seen:
                seen.add(copy.source)
                if copy.holder is None and delivery.shows(copy):
                    return copy
        return None

    def _held(self, client: str, tag: int | None, multiple: bool) -> list[tuple[ModelQueue, Copy]]:
        found = [
            (copy.holder[1], queue, copy)
            for queue in self.queues.values()
            for copy in queue.copies
            if copy.holder is not None
            and copy.holder[0] == client
            and (tag is None or copy.holder[1] == tag or (multiple and copy.holder[1] < tag))
        ]
        return [(queue, copy) for _, queue, copy in sorted(found, key=lambda held: held[0])]

    def held_tags(self, client: str) -> list[int]:
        """Return the delivery tags that a client holds."""
        read = [tag for (name, _), reader in self.readers.items() if name == client for tag in reader.tags]
        return [copy.holder[1] for _, copy in self._held(client, None, True) if copy.holder] + sorted(read)

    def ack(self, client: str, tag: int, multiple: bool) -> None:
        for (name, _), reader in self.readers.items():
            if name == client:
                reader.tags = [other for other in reader.tags if other != tag and not (multiple and other < tag)]
        for queue, copy in self._held(client, tag, multiple):
            queue.copies.remove(copy)
            self._end(queue, copy)

    def requeue(self, client: str, tag: int | None = None, multiple: bool = True) -> None:
        """basic.nack with requeue; without a tag, the loss of the connection."""
        if tag is None:
            self.readers = {key: reader for key, reader in self.readers.items() if key[0] != client}
        for _, copy in self._held(client, tag, multiple):
            copy.holder = (NOBODY, 0)

    def come_back(self, coming: Collection[tuple[str, int, str]]) -> None:
        """Mark requeued messages as ready, except those still on their way: (queue, id, source)."""
        for queue in self.queues.values():
            for copy in queue.copies:
                if copy.holder == (NOBODY, 0) and (queue.name, copy.id, copy.source) not in coming:
                    copy.holder = None
                    copy.redelivered = True
                    copy.returns += queue.name in QUORUM

    def reject(self, client: str, tag: int, multiple: bool, now_us: int) -> None:
        for queue, copy in self._held(client, tag, multiple):
            self._dead_letter(queue, copy, "rejected", now_us)

    # -- effects of time -----------------------------------------------------------------------------------------------

    def expire(self, state: State, now_us: int) -> None:
        """Remove expired messages that the broker has removed as well."""
        while gone := [
            (queue, head)
            for queue in self.queues.values()
            if (head := queue.head()) is not None
            and 0 < head.expires_us <= now_us
            and head.row() not in state.queues[queue.name]
        ]:
            for queue, head in gone:
                self._dead_letter(queue, head, "expired", head.expires_us)

    def _expire_one(self, now_us: int) -> bool:
        due = [
            (head.expires_us, queue.name, head)
            for queue in self.queues.values()
            if (head := queue.head()) is not None and 0 < head.expires_us <= now_us
        ]
        if due:
            _, name, copy = min(due, key=lambda item: item[:2])
            self._dead_letter(self.queues[name], copy, "expired", copy.expires_us)
        return bool(due)

    def _dead_letter(self, queue: ModelQueue, copy: Copy, reason: str, now_us: int) -> None:
        queue.copies.remove(copy)
        exchange = queue.dead_letter_exchange
        targets: list[ModelQueue] = []
        if exchange is not None and exchange in self.exchanges:
            key = copy.key if queue.dead_letter_key is None else queue.dead_letter_key
            deaths = _with_death(copy, queue.name, reason, self.expirations.get(copy.id))
            first = copy.first or (queue.name, reason, copy.exchange)
            targets = [
                target
                for target in self.route(exchange, key)
                if reason == "rejected" or not _is_cycle(deaths, target.name)
            ]
            for target in targets:
                moved = Copy(copy.id, exchange, key, copy.persistent, 0, copy.origin, deaths, first)
                self._arrive(target, moved, now_us, None)
        keeping = [target for target in targets if target.keeps(copy)]
        if queue.keeps(copy) and keeping:
            self.hops[self.batch] += 1
        if not queue.keeps(copy) or all(target.is_stream for target in keeping):
            self._end(queue, copy)

    def _arrive(self, queue: ModelQueue, copy: Copy, now_us: int, ttl_ms: int | None) -> None:
        limits = [limit for limit in (queue.ttl_us, -1 if ttl_ms is None else ttl_ms * 1000) if limit >= 0]
        copy.expires_us = now_us + min(limits) if limits and not queue.is_stream else 0
        copy.batch = self.batch
        queue.add(copy)

    def _end(self, queue: ModelQueue, copy: Copy) -> None:
        if queue.keeps(copy) and not queue.is_stream and (copy.id, copy.origin) in self.owed:
            self.owed[copy.id, copy.origin] = self.batch

    # -- comparisons ---------------------------------------------------------------------------------------------------

    def is_quiet(self, now_us: int) -> bool:
        """Whether no timer is late."""
        heads = (queue.head() for queue in self.queues.values())
        return not any(head is not None and 0 < head.expires_us <= now_us for head in heads)

    def check(self, state: State) -> None:
        """Check that the broker holds exactly what the model does."""
        self.place(state)
        mine = State(
            frozenset(self.exchanges.items()) - {("", True)},
            frozenset(self.bindings),
            {name: _by_source(self._rows(queue)) for name, queue in self.queues.items()},
            frozenset(name for name, queue in self.queues.items() if queue.durable),
            frozenset((kind, key, value) for (kind, key), value in self.definitions.items()),
        )
        theirs = state._replace(queues={name: _by_source(rows) for name, rows in state.queues.items()})
        assert mine == theirs, f"model and broker differ; here is the model:\n{mine.difference(theirs)}"

    def place(self, state: State) -> None:
        """See ModelQueue.place."""
        for name in STREAMS & self.queues.keys():
            self.queues[name].place(state.queues[name])

    def _rows(self, queue: ModelQueue) -> list[Row]:
        first = self.firsts.get(queue.name, 0) if queue.is_stream else 0
        return [copy.row() for copy in queue.copies if not queue.is_stream or copy.returns >= first]

    def check_owed(self, state: State, batch: int) -> None:
        """Check a state after a crash that kept the batches up to this one: no confirmed message is lost or doubled."""
        present: Counter[tuple[int, str]] = Counter()
        for name, rows in state.queues.items():
            if name not in STREAMS:
                present.update((row.id, row.first[0] if row.first else name) for row in rows)
        twice = [copy for copy, count in present.items() if count > 1]
        assert not twice, f"twice after the crash: {twice}"
        for copy, ended in self.owed.items():
            if ended is not None and ended <= batch:
                assert copy not in present, f"settled and synced, and back: message {copy[0]} from {copy[1]}"
            elif copy[0] in self.confirmed:
                assert copy in present, f"confirmed and lost: message {copy[0]} from {copy[1]}"

    def restart(self, state: State, queues: dict[str, ModelQueue]) -> None:
        """Go on with the recovered state; `queues` are all queues that were ever declared, for their arguments."""
        self.batch = 1
        self.seen = 0
        self.readers.clear()
        self.hops.clear()
        self.exchanges = {"": True} | dict(state.exchanges)
        self.bindings = set(state.bindings)
        self.definitions = {(kind, key): value for kind, key, value in state.definitions}
        self.queues = {}
        for name, rows in state.queues.items():
            queue = queues[name]
            self.queues[name] = ModelQueue(
                name, queue.durable, queue.ttl_us, queue.dead_letter_exchange, queue.dead_letter_key, queue.rank_max,
                [self._copy(row, name) for row in rows], rows[0].returns if rows else 0, len(rows),
            )  # fmt: skip
        queues_owed = [queue for queue in self.queues.values() if not queue.is_stream]
        origins = {(copy.id, copy.origin) for queue in queues_owed for copy in queue.copies}
        self.owed = dict.fromkeys(origins & self.owed.keys())

    def _copy(self, row: Row, queue: str) -> Copy:
        origin = row.first[0] if row.first else queue
        return Copy(
            row.id, row.exchange, row.key, row.persistent, row.expires_us, origin, row.deaths, row.first,
            row.redelivered, row.returns,
        )  # fmt: skip


def _by_source(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: row.source))


def _with_death(copy: Copy, queue: str, reason: str, expiration: str | None) -> tuple[Death, ...]:
    same = [death for death in copy.deaths if (death.queue, death.reason) == (queue, reason)]
    others = tuple(death for death in copy.deaths if (death.queue, death.reason) != (queue, reason))
    if same:
        return (same[0]._replace(count=same[0].count + 1), *others)
    expiration = None if copy.deaths else expiration  # the first dead-lettering removes it
    return (Death(queue, reason, 1, copy.exchange, copy.key, expiration), *others)


def _is_cycle(deaths: tuple[Death, ...], queue: str) -> bool:
    """Whether a message returns to a queue in which it died, without a rejection since: RabbitMQ drops it."""
    for place, death in enumerate(deaths):
        if death.queue == queue:
            return all(other.reason != "rejected" for other in deaths[: place + 1])
    return False
