"""Recovery: restore exchanges, queues and messages from the journal's batches."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Collection
from typing import Final

from leveret.broker import cluster_name, timeline
from leveret.broker.broker import Broker
from leveret.broker.dead_letters.detached_history import Cause, DeadEntry, DetachedHistory, history_in
from leveret.broker.dead_letters.expiry_route import moved_key
from leveret.broker.exchange_types.recent_history import Kept
from leveret.broker.exchanges.binding import Binding
from leveret.broker.messages import carbon_copies
from leveret.broker.messages.message_batch import BatchBuffer
from leveret.broker.methods.queue_methods import make_queue
from leveret.broker.publishers import references
from leveret.broker.publishers.reference import PublisherReference
from leveret.broker.queues.message_list import INDEX_SHIFT, QUEUE_MASK, MessageList
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.queue_settings import configure
from leveret.broker.staging import queries
from leveret.broker.staging.stage import OPEN, Stage
from leveret.broker.storage import imports
from leveret.broker.storage.log import CLEAN, DROP, LIFE, RETURNED, SETTLE, START
from leveret.broker.storage.page import Page
from leveret.broker.storage.records import (
    Arrived,
    Began,
    Declared,
    JournalRecord,
    Moved,
    Paged,
    Passed,
    PublishedIds,
    RecordError,
    Stood,
    records,
)
from leveret.broker.streams import leases
from leveret.broker.streams.stream import MARKS, Stream
from leveret.broker.vhost import VHost
from leveret.wire.errors import ProtocolError
from leveret.wire.table import Value, split_table

# shared by all arrivals without a settled message: most of them, maybe a million
_NOTHING: Final[set[int]] = set()
# number of cached causes of death, by queue and key
CAUSES_MAX: Final = 4096

# raised for a record with a sound checksum that no broker has written: fields are missing or of a wrong type
SENSELESS: Final = (LookupError, ValueError, TypeError, AssertionError, OverflowError, ProtocolError, struct.error)


class Arrival:
    """The messages that one record brought to one queue."""

    def __init__(
        self, buffer: BatchBuffer, first_id: int, expires_us: int, history: DetachedHistory | None = None
    ) -> None:
        self.buffer = buffer
        self.history = history  # of a single message that arrived by expiry in another queue
        self.first_id = first_id
        self.last_id = first_id + int(buffer.count) - 1
        self.expires_us = expires_us
        self.gone = _NOTHING  # ids that are settled, or in a page by now

    def content(self, id: int) -> bytes:
        """Return the content of the message with this id."""
        if len(self.buffer.data) == self.buffer.size:
            return self.buffer.data  # one object for all its queues
        at = (id - self.first_id) * int(self.buffer.stride)
        return self.buffer.data[at : at + int(self.buffer.size)]

    def is_gone_with(self, first_id: int, last_id: int) -> bool:
        """Remove the ids from first_id to last_id; True if none is left."""
        first_id, last_id = max(first_id, self.first_id), min(last_id, self.last_id)
        if last_id - first_id + 1 == self.buffer.count:
            return True
        if not self.gone:
            self.gone = set()
        self.gone.update(range(first_id, last_id + 1))
        return len(self.gone) == self.buffer.count


class Backlog:
    """A message list and what the journal has for it so far."""

    def __init__(self, message_list: MessageList) -> None:
        self.message_list = message_list
        self.pages: dict[int, Page] = {}  # by their first ids
        self.delivered: set[int] = set()  # ids of messages that were delivered before the stop
        self.returned: dict[int, int] = {}  # delivery counts, by id
        self._arrivals: list[Arrival | None] = []
        self._first_ids: list[int] = []

    def arrived(self, arrival: Arrival) -> None:
        """Add an arrival; ids only grow."""
        self._arrivals.append(arrival)
        self._first_ids.append(arrival.first_id)

    def settled(self, first_id: int, count: int) -> None:
        """Remove messages that left the queue. Unknown ids were in a journal file that has been deleted."""
        end = first_id + count
        for page in self.message_list.pages[self.message_list.page_index(first_id) :]:
            if page.first_id >= end:
                break
            for id in range(max(first_id, int(page.first_id)), min(end, int(page.last_id) + 1)):
                if id not in page.settled:
                    page.settle(id)
        self._remove(first_id, end - 1)

    def paged(self, record: Paged) -> None:
        """Move messages to a page, or restore the page if the record is from the beginning of a journal file."""
        self._remove(record.first_id, record.last_id)
        self.dropped(record.first_id)
        page = Page(self.message_list, [], 0, 0)
        page.segment, page.offset, page.size = record.segment, record.offset, record.size
        page.first_id, page.last_id, page.expires_us = record.first_id, record.last_id, record.expires_us
        page.live = record.live
        page.settled = set(record.settled)
        page.is_redelivered = record.is_redelivered
        page.is_stored = page.is_recovered = True
        self.pages[record.first_id] = page
        self.message_list.add_page(page)

    def arrival_of(self, id: int) -> Arrival | None:
        """Return the arrival that has this message, None if it is in a page or gone."""
        index = bisect_right(self._first_ids, id) - 1
        arrival = self._arrivals[index] if index >= 0 else None
        return arrival if arrival is not None and id <= arrival.last_id and id not in arrival.gone else None

    def dropped(self, first_id: int) -> None:
        """Remove the page that begins with this id: none of its messages is alive."""
        page = self.pages.pop(first_id, None)
        if page is not None:
            self.message_list.pages.remove(page)

    def _remove(self, first_id: int, last_id: int) -> None:
        """Remove ids from the arrivals."""
        index = max(0, bisect_right(self._first_ids, first_id) - 1)
        while index < len(self._first_ids) and self._first_ids[index] <= last_id:
            arrival = self._arrivals[index]
            if arrival is not None and arrival.is_gone_with(first_id, last_id):
                self._arrivals[index] = None
            index += 1

    def fill(self, is_clean: bool) -> tuple[int, int]:
        """Put everything into the message list, oldest first; return how many messages, and how many not in pages."""
        found: list[tuple[int, Page | Arrival]] = [(id, page) for id, page in self.pages.items() if page.live > 0]
        for arrival in self._arrivals:
            if arrival is not None:
                alive = next(id for id in range(arrival.first_id, arrival.last_id + 1) if id not in arrival.gone)
                found.append((alive, arrival))
        found.sort(key=lambda pair: pair[0])
        count = in_journal = 0
        for _, item in found:
            if isinstance(item, Page):
                item.count = item.live
                item.is_redelivered = item.is_redelivered or not is_clean
                item.delivered = self.delivered
                item.returned = self.returned
                self.message_list.enqueue_page(item)
                count += int(item.count)
            else:
                in_journal += self._fill_arrival(item, not is_clean)
        return count + in_journal, in_journal

    def _fill_arrival(self, arrival: Arrival, redelivered: bool) -> int:
        message_list, buffer = self.message_list, arrival.buffer
        ids = range(arrival.first_id, arrival.last_id + 1)
        if len(ids) > 1 and not arrival.gone and not self._differ(ids):
            message_list.enqueue_batch(buffer, arrival.first_id, arrival.expires_us, redelivered)
            return len(ids)
        for id in ids:
            if id not in arrival.gone:
                again, returns = redelivered or id in self.delivered, self.returned.get(id, 0)
                content = arrival.content(id)
                if arrival.history is not None:
                    if returns == 0:
                        dead = DeadEntry(message_list, arrival.history, buffer.key, id, arrival.expires_us)
                        dead.redelivered = again
                        message_list.put(dead)
                        continue
                    content = arrival.history.composed()
                message_list.enqueue(content, buffer.key, id, arrival.expires_us, again, returns)
        return len(ids) - len(arrival.gone)

    def _differ(self, ids: range) -> bool:
        """Whether some of these messages were delivered before, or have a delivery count."""
        return not (self.delivered.isdisjoint(ids) and self.returned.keys().isdisjoint(ids))


class StreamBacklog(Backlog):
    """The journal's part of a stream: its messages in order, none of which is ever settled."""

    def __init__(self, message_list: MessageList, stream: Stream) -> None:
        super().__init__(message_list)
        self._stream = stream

    def arrived(self, arrival: Arrival) -> None:
        self._stream.replay(arrival.buffer, arrival.first_id, arrival.expires_us)

    def fill(self, is_clean: bool) -> tuple[int, int]:
        in_journal = sum(int(group.count) for group in self._stream.tail)
        return in_journal, in_journal


class Recovery:
    """Restores a broker. Call `batch` with every batch in order, then `finish`."""

    def __init__(self, broker: Broker, now_us: int) -> None:
        self.segments: dict[int, int] = {}  # number of needed pages, by segment
        self.lost: dict[str, int] = {}  # number of messages whose segment is missing, by queue name
        self.is_damaged = False  # a part of the journal was unreadable
        self.in_journal = 0  # messages that are not in pages
        self._broker = broker
        self.now_us = now_us  # the time of `finish`
        broker.log.is_replaying = True
        self._backlogs: dict[int, Backlog] = {}
        self._queues: dict[int, Queue] = {}
        self._publishers: dict[int, PublisherReference] = {}
        self._is_clean = True
        self._last_id = 0
        self._causes: dict[tuple[int, bytes], Cause] = {}

    def batch(self, data: bytes) -> None:
        """Apply the records of one batch. Raises RecordError if one is unknown to this leveret or makes no sense."""
        try:
            self._apply(data)
        except SENSELESS as error:
            raise RecordError(f"a record is inconsistent: {type(error).__name__}: {error}") from error

    def _apply(self, data: bytes) -> None:
        for record in records(data):
            if isinstance(record, Arrived):
                self._arrived(record)
            elif isinstance(record, Moved):
                self._moved(record)
            elif isinstance(record, Declared):
                self._meta(record)
            elif isinstance(record, Paged):
                self._last_id = max(self._last_id, record.last_id)
                backlog = self._backlog(record.queue)
                if backlog is not None:
                    backlog.paged(record)
            elif isinstance(record, Passed):
                self._passed(record)
            elif isinstance(record, Stood):
                self._broker.positions.restore(record.what, record.epoch, record.id, record.key)
            elif isinstance(record, PublishedIds):
                if record.number in self._publishers:  # else its declaration was in a damaged part of the journal
                    self._publishers[record.number].reach(record.id, record.refused)
            elif isinstance(record, Began):
                self._broker.epochs.restore(record.first_id, record.name)
            elif record.kind == START:
                # the deliveries that a stop recorded are valid until the next start
                for backlog in self._backlogs.values():
                    backlog.delivered.clear()
            self._is_clean = record.kind == CLEAN
            if record.kind not in (START, LIFE) and not _is_sample(record):
                self._broker.is_new = False

    def _arrived(self, record: Arrived) -> None:
        if record.left is not None and record.left[0] in self._backlogs:
            self._backlogs[record.left[0]].settled(record.left[1], 1)
        for number, expires_us in record.queues:
            backlog = self._backlog(number)
            if backlog is not None:
                backlog.arrived(Arrival(record.buffer, record.first_id, expires_us))
        self._last_id = max(self._last_id, record.first_id + int(record.buffer.count) - 1)

    def _moved(self, record: Moved) -> None:
        self._last_id = max(self._last_id, record.id)
        number, id = record.left
        left, backlog = self._backlogs.get(number), self._backlog(record.queue)
        arrival = left.arrival_of(id) if left is not None else None
        if left is None or arrival is None:
            return  # its content was in a damaged part of the journal, which is reported
        key, content = arrival.buffer.key, arrival.content(id)
        history = arrival.history or history_in(content, key)
        if backlog is not None and history is not None:
            cause = self._causes.get((number, key))
            if cause is None:
                if len(self._causes) >= CAUSES_MAX:
                    self._causes.clear()
                cause = self._causes[(number, key)] = Cause(left.message_list.queue.name, key)
            history = history.died(cause, record.died_us)
            size = len(history.content)
            buffer = BatchBuffer(history.content, size, size, 1, moved_key(key, record.change))
            backlog.arrived(Arrival(buffer, record.id, record.expires_us, history))
        left.settled(id, 1)

    def _backlog(self, number: int) -> Backlog | None:
        """Return the backlog of a message list, created on first use; None if its queue does not exist."""
        found = self._backlogs.get(number)
        if found is None:
            queue = self._queues.get(number & int(QUEUE_MASK))
            if queue is not None:
                message_list = queue.list_at(number >> int(INDEX_SHIFT))
                found = StreamBacklog(message_list, queue) if isinstance(queue, Stream) else Backlog(message_list)
                self._backlogs[number] = found
        return found

    def _passed(self, record: Passed) -> None:
        backlog = self._backlogs.get(record.queue)
        if backlog is None:
            return
        if record.kind == SETTLE:
            backlog.settled(record.id, record.count)
        elif record.kind == DROP:
            backlog.dropped(record.id)
        elif record.kind == RETURNED:
            backlog.returned[record.id] = record.count
        else:
            backlog.delivered.update(range(record.id, record.id + record.count))

    def _meta(self, declared: Declared) -> None:
        record = declared.fields
        op, name = record["op"], record.get("name")
        if op == "next_id":
            next_id = record["id"]
            assert isinstance(next_id, int)
            self._last_id = max(self._last_id, next_id - 1)
            return
        if op == timeline.OP:
            self._broker.timeline.restore(record)
            return
        if op == cluster_name.OP:
            self._broker.cluster_name.restore(record)
            return
        if op in imports.OPS:
            self._broker.imports.restore(record)
            return
        if op in ("definitions", "define", "undefine"):
            self._define(record)
            return
        vhost = self._broker.vhosts[str(record["vhost"])]
        if op == "bind" or op == "unbind":
            self._binding(vhost, declared)
            return
        if op == "history":
            self._history(vhost, record)
            return
        if op in queries.OPS:
            self._query(vhost, record)
            return
        if op in references.OPS:
            reference = vhost.publishers.restore(record)
            if reference is not None:
                self._publishers[reference.number] = reference
            return
        if op == leases.OP or op == leases.OP_END:
            stream = vhost.queues.get(str(name))
            if isinstance(stream, Stream):
                stream.leases.restore(record)
            return
        arguments = record.get("arguments", {})
        assert isinstance(arguments, dict)
        if op == "exchange.declare":
            if str(name) not in vhost.exchanges:
                auto_delete, internal = bool(record["auto_delete"]), bool(record["internal"])
                kind, number = str(record["type"]), record.get("number", 0)
                assert isinstance(number, int)
                exchange = vhost.add_exchange(str(name), kind, True, auto_delete, internal, arguments, number)
                if exchange.schedule is not None:
                    self._queues[number] = exchange.schedule
        elif op == "exchange.delete":
            if str(name) in vhost.exchanges:
                exchange = vhost.exchanges[str(name)]
                if exchange.schedule is not None:
                    self._forget(exchange.schedule)
                vhost.delete_exchange(exchange)
        elif op == "queue.declare":
            self._declare_queue(vhost, str(name), record, arguments)
        elif op == MARKS:
            stream = vhost.queues.get(str(name))
            if isinstance(stream, Stream):
                stream.restore_marks(record)
        elif op == "queue.unplace":
            self._unplace(vhost, str(name), record)
        elif op == "queue.delete":
            if str(name) in vhost.queues:
                queue = vhost.queues[str(name)]
                self._forget(queue)
                vhost.delete_queue(queue)
        else:
            raise RecordError(
                f"found a record '{op!s}', which this version of leveret does not know: a newer version wrote it"
            )

    def _query(self, vhost: VHost, record: dict[str, Value]) -> None:
        gone = vhost.queries.restore(record)
        for stage in gone:
            self._forget(stage)
        vhost.queries.gone(gone)
        number = record.get("number")
        if record["op"] == OPEN and isinstance(number, int):
            self._queues[number] = vhost.queries.by_number[number]

    def _define(self, record: dict[str, Value]) -> None:
        definitions = self._broker.definitions
        vhosts = record.get("vhosts")
        if isinstance(vhosts, list):
            definitions.begin([str(name) for name in vhosts])
            return
        kind, definition, key = str(record["kind"]), record.get("definition"), record.get("key")
        if isinstance(definition, dict):
            definitions.put(kind, definition)
        elif isinstance(key, list):
            definitions.remove(kind, *[str(part) for part in key])

    def _forget(self, queue: Queue) -> None:
        """Remove everything of a deleted queue."""
        del self._queues[int(queue.number)]
        for message_list in queue.every_list():
            self._backlogs.pop(int(message_list.number), None)
            message_list.pages.clear()

    def _declare_queue(self, vhost: VHost, name: str, record: dict[str, Value], arguments: dict[str, Value]) -> None:
        number = record["number"]
        assert isinstance(number, int)
        if name in vhost.queues:
            again = vhost.queues[name]
            again.arguments = arguments  # a link has declared it anew
            configure(again, again.effect)
            if isinstance(again, Stream):
                again.restore(record)
            return
        queue = make_queue(vhost, name, True, bool(record["auto_delete"]), arguments)
        if isinstance(queue, Stream):
            queue.restore(record)
        vhost.add_queue(queue, number, 0)
        self._queues[number] = queue
        self._unplace(vhost, name, record)

    def _unplace(self, vhost: VHost, name: str, record: dict[str, Value]) -> None:
        below = record.get("unplaced_below", 0)
        assert isinstance(below, int)
        if name in vhost.queues:
            vhost.queues[name].unplaced_below = below

    def _binding(self, vhost: VHost, declared: Declared) -> None:
        record = declared.fields
        source = vhost.exchanges.get(str(record["source"]))
        name = str(record["destination"])
        destination = vhost.queues.get(name) if record["is_queue"] else vhost.exchanges.get(name)
        if source is None or destination is None:
            return
        # encoded as the client sent them: their types are part of a binding's identity
        arguments = dict(split_table(declared.table))[b"arguments"][1:]
        binding = Binding(source, destination, str(record["key"]), arguments)
        if record["op"] == "bind":
            vhost.bind(binding)
        elif (found := binding.standing()) is not None:
            vhost.unbind(found)

    def _history(self, vhost: VHost, record: dict[str, Value]) -> None:
        exchange = vhost.exchanges.get(str(record["exchange"]))
        number, key, content = record["number"], record["key"], record["content"]
        assert isinstance(number, int)
        assert isinstance(key, bytes)
        assert isinstance(content, bytes)
        if exchange is not None and exchange.history is not None:
            keys = [carbon_copies.split_key(key)[1], *carbon_copies.CarbonCopies(content).cc]
            keys += carbon_copies.blind_keys(key)
            exchange.history.restore(Kept(keys, key, content, number))

    def finish(self, segments: Collection[int] = ()) -> int:
        """Put the messages into their queues, oldest first, and return how many; all redelivered after an unclean stop.

        segments: the numbers of the existing segments. Raises RecordError like `batch`.
        """
        try:
            return self._finish(segments)
        except SENSELESS as error:
            raise RecordError(f"the records are inconsistent: {type(error).__name__}: {error}") from error

    def _finish(self, segments: Collection[int]) -> int:
        log = self._broker.log
        count = 0
        while self._broker.enforce_policies(self.now_us):  # before the messages: length limits count them
            pass
        for backlog in self._backlogs.values():
            self._look_for_pages(backlog, segments)
            found, in_journal = backlog.fill(self._is_clean)
            count += found
            self.in_journal += in_journal
        for queue in self._queues.values():
            if queue.limits is not None:
                queue.vhost.over.append(queue)  # it may have been too long when the broker ended
            queue.vhost.used(queue, self.now_us)
            if isinstance(queue, Stream):
                lost = queue.recovered()
                if lost:
                    self.lost[queue.name] = int(lost)
        log.next_id = log.safe_below = self._last_id + 1
        log.is_replaying = False
        for vhost in self._broker.vhosts.values():
            vhost.queries.recovered(self.now_us, self.is_damaged)
            vhost.publishers.recovered(self.now_us)
        self._broker.epochs.begin()
        self._broker.cluster_name.keep()
        if self._is_clean:
            log.start()
        self._broker.end_turn(self.now_us)
        return count

    def _look_for_pages(self, backlog: Backlog, segments: Collection[int]) -> None:
        for first_id, page in list(backlog.pages.items()):
            number = int(page.segment)
            if page.live == 0:
                backlog.dropped(first_id)
            elif number in segments:
                self.segments[number] = self.segments.get(number, 0) + 1
            else:
                if isinstance(backlog.message_list.queue, Stage):
                    backlog.message_list.queue.is_damaged = True
                name = backlog.message_list.queue.name
                self.lost[name] = self.lost.get(name, 0) + int(page.live)
                backlog.dropped(first_id)


def _is_sample(record: JournalRecord) -> bool:
    """Whether it only records the clocks or the cluster name; a journal with nothing else belongs to a new broker."""
    return isinstance(record, Declared) and record.fields["op"] in (timeline.OP, cluster_name.OP)
