"""The journal's records: durable events, collected into batches.

A record is kind (u8), length of the rest (u32), rest. The records of one batch are written, synced and replayed
together or not at all. A queue number is that of a message list (message_list.py), for most lists the queue's own.

| kind | rest |
| MESSAGES | id i64, count u32, stride u32, size u32, length of key u16, key (exchange and routing key as short strings), number of queues u16, per queue: number i64, expires_us i64; then `count` contents (header frame and body frames) of `size` octets, each `stride` octets behind the one before, with consecutive ids |
| HOP      | queue number i64, id i64, as in SETTLE; then as in MESSAGES: a dead letter leaves one queue and arrives in others |
| MOVED    | queue number i64, id i64, of a message that expires there and whose content is in this journal file; the same message's new id i64, queue number i64 and expires_us i64; died_us i64, its time of death in its history; its new exchange as a short string; then its new routing key as a short string, if the key changes |
| SETTLE   | queue number i64, id i64, count u32: messages with consecutive ids left a durable queue for good |
| PAGE     | queue number i64, segment i64, offset i64, size i64, first id i64, last id i64, expires_us of the first message i64, count of messages that are alive u32, flags u8 (1: all may have been delivered before), then the ids i64 of those that are not alive: this queue's messages with ids in this range are in that page only |
| DROP     | queue number i64, first id i64: the page that begins with this id holds no live message any more |
| META     | a field table with "op" and the fields of a declaration, a binding or a deletion |
| CLEAN    | nothing: an orderly stop; if it is the last record, messages come back without the redelivered flag unless a DELIVERED or PAGE record says otherwise |
| DELIVERED| queue number i64, id i64, count u32: messages delivered before the orderly stop |
| RETURNED | queue number i64, id i64, count u32: how often this message came back to its queue |
| LIFE     | id i64, name i64: an epoch of the broker, whose first message has this id (epochs.py) |
| POSITION | what u8, epoch i64, id i64, key: a link on this broker has got all messages up to this id of that epoch of its upstream (REACHED); or it refused this one (REFUSED), or took it after all (TAKEN); or the link was deleted (FORGOTTEN) |
| START    | nothing: a broker began to serve; from here on any message may have been delivered |
| PUBLISHER| as META, of a publisher reference; a kind of its own, so that an older leveret refuses the journal instead of ignoring it |
| PUBLISHED| number i64, id i64, then the octets of a number: all publishes of this publisher reference up to this id are taken, and bit k of the number is set if id - k, taken in this turn, was refused |
"""  # noqa: E501

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from librt.strings import write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from leveret.broker.exchanges.stale_bindings import StaleBindings
from leveret.broker.measures import Measures
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import BatchBuffer, MessageBatch
from leveret.broker.queues.message_list import MessageList
from leveret.broker.queues.queue_keys import KeyOwners
from leveret.broker.storage.leaving import Leaving
from leveret.broker.storage.page import LARGE_PAGE_OCTETS, Page
from leveret.broker.storage.pieces import Pieces
from leveret.broker.streams.history import History
from leveret.session.confirms import HANDLED, JOURNALLED, SYNCING
from leveret.wire.table import Value, encode_table

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel
    from leveret.broker.peer import Peer
    from leveret.broker.queues.queue import Queue
    from leveret.broker.streams.stream import Stream
    from leveret.broker.timers import Timer

MESSAGES: Final = 1
SETTLE: Final = 2
META: Final = 3
CLEAN: Final = 4
DELIVERED: Final = 5
START: Final = 6
HOP: Final = 7
PAGE: Final = 8
DROP: Final = 9
RETURNED: Final = 10
MOVED: Final = 11
LIFE: Final = 12
POSITION: Final = 13
PUBLISHER: Final = 14
PUBLISHED: Final = 15
# what a POSITION says
REACHED: Final = 0
REFUSED: Final = 1
TAKEN: Final = 2
FORGOTTEN: Final = 3
PAGE_HEAD: Final = struct.Struct(">7qIB")

# how much memory the tails of all streams may take before they are written to files
TAILS_OCTETS_MAX: Final[i64] = 16 << 20
# a time in the past, for alarms that are due at once
AT_ONCE_US: Final[i64] = 1
# how many files the journal may have, apart from those that cannot be freed yet, before messages are moved to pages
FILES_MAX: Final = 3
# more messages than this are freed in steps, by the pager
GONE_AT_ONCE: Final = 1024
# how many messages of a purge or a deletion are settled with it, and in each turn afterwards
SETTLED_AT_ONCE: Final[i64] = 4096
SETTLED_MAX: Final[i64] = 16384


class Log:
    """The journal's batch under construction, the channels that wait for it, and the live messages per journal file."""

    def __init__(self) -> None:
        # reads the bytes of a page (segment, offset, size); returns None if they cannot be read
        self.read_page: Callable[[int, int, int], bytes | None] = _no_pages
        # reads a large page on another thread and then calls `fetched`; None = read it at once instead
        self.fetch_page: Callable[[Page], None] | None = None
        # pages without live messages, each with the batch that says so
        self.dead_pages: list[tuple[int, Page]] = []
        # purged messages and those of deleted queues, whose memory the pager has still to free
        self.gone: list[list[Entry | MessageBatch | Page | None]] = []
        self.gone_keys: list[KeyOwners] = []  # likewise, of queues without duplicates
        self.leaving: list[Leaving] = []  # purged or deleted messages that still count as alive
        self.stale_bindings = StaleBindings()  # the same for bindings
        # queues that have had messages; the pager removes those that are empty now
        self.filled: dict[Queue, None] = {}
        self.events: i64 = 0  # durable events so far; if it grows, its cause may have to wait for the batch
        self.measures = Measures()
        self._closed_events: i64 = 0  # the value of `events` when the last batch was closed
        self._pieces = Pieces()
        self._out = self._pieces.writer
        # a SETTLE or DELIVERED record that may still grow; _passed_next = 0: no such record
        self._passed_kind: i64 = 0
        self._passed_queue: i64 = 0
        self._passed_first: i64 = 0
        self._passed_next: i64 = 0
        self.batch = 1  # number of the batch under construction
        self.synced = 0  # number of the last batch that is on disk
        self.next_id: i64 = 1
        self.safe_below: i64 = 1  # messages with smaller ids are on disk
        self._closed_below: i64 = 1  # those with smaller ids are on disk or in the batch that is being synced
        self.preface = b""  # written before the next batch, but no reason to write one
        self.next_number = 1  # of the next queue
        # channels that wait for the batch, with the time of the turn in which each one's first message came to it
        self.waiting: list[tuple[Peer, BrokerChannel, i64]] = []
        # streams with messages in the batch under construction, and in the one that is being synced; streams whose tail
        # should go to files; the numbers of deleted streams, with the batch that says so
        self.appended: list[Stream] = []
        self._closing: list[Stream] = []
        self.long_streams: list[Stream] = []
        self.dead_streams: list[tuple[int, int]] = []
        self.ready_octets: i64 = 0  # memory of all messages in message lists that could be moved to disk
        # number of message list items that share a large content, by its id() (ready.py)
        self.held: dict[int, int] = {}
        self.tail_octets: i64 = 0  # memory of the tails of all streams: what is not in their files yet
        self.relieve_at: i64 = TAILS_OCTETS_MAX  # at this length of all tails, some should go to files
        self.has_stream_work = False  # whether any stream or tail above needs work
        self.marked: list[Stream] = []  # streams whose new offsets or sequences go into this batch
        self.is_stirred = False  # messages became deliverable because they are on disk now
        # returns what the files of a new Stream object contain
        self.open_history: Callable[[Stream], History] = _no_history
        self._in_flight: list[tuple[Peer, BrokerChannel, i64]] = []
        self.is_awaited = False  # a channel or connection waits for the batch under construction
        # alarms that are due when the batch under construction, or the one that is being synced, is on disk
        self._timers: list[Timer] = []
        self._closing_timers: list[Timer] = []
        self.is_replaying = False
        self.is_stopped = False
        # journal files, oldest first: number, first message id, number of live entries
        self._files: list[int] = [0]
        self._first_ids: list[int] = [0]
        self._live: list[int] = [0]
        self._current_first: i64 = 0
        self._current_live: i64 = 0

    # -- records -----------------------------------------------------------------------------------------------------

    def message(
        self, content: bytes, key: bytes, message_list: MessageList, expires_us: i64, moved: Entry | None
    ) -> i64:
        """Record the arrival of a message in one durable queue; return its id.

        moved: the dead letter that arrives here and leaves its old queue by the same record.
        """
        size: i64 = len(content)
        id = self.begin_messages(1, size, size, content, key, 1, moved)
        self.add_queue(message_list, expires_us)
        self.end_messages(content)
        return id

    def messages(self, buffer: BatchBuffer, message_list: MessageList, expires_us: i64) -> i64:
        """Record the arrival of a batch of messages in one durable queue; return the id of the first."""
        count, data = buffer.count, buffer.data
        id = self.begin_messages(count, buffer.stride, buffer.size, data, buffer.key, 1, None)
        self.add_queue(message_list, expires_us)
        self.end_messages(data)
        return id

    def begin_messages(
        self, count: i64, stride: i64, size: i64, data: bytes, key: bytes, queues: i64, moved: Entry | None
    ) -> i64:
        """Begin to record messages that arrive in `queues` durable queues; return the id of the first.

        Call add_queue for each of these queues, then end_messages. data: the contents, as in a BatchBuffer.
        """
        self.events += 1
        out = self._out
        id = self.next_id
        self.next_id = id + count
        octets = 24 + i64(len(key)) + 16 * queues + len(data)
        if moved is None:
            out.append(MESSAGES)
            write_i32_be(out, i32(octets))
        else:
            out.append(HOP)
            write_i32_be(out, i32(16 + octets))
            write_i64_be(out, moved.message_list.number)
            write_i64_be(out, moved.id)
            self.forget(moved.message_list, moved.id)
        write_i64_be(out, id)
        write_i32_be(out, i32(count))
        write_i32_be(out, i32(stride))
        write_i32_be(out, i32(size))
        write_i16_be(out, i16(i64(len(key))))
        out.write(key)
        write_i16_be(out, i16(queues))
        self._current_live += queues * count
        return id

    def add_queue(self, message_list: MessageList, expires_us: i64) -> None:
        """Add a queue to the record; there the messages expire at expires_us (0 = never)."""
        write_i64_be(self._out, message_list.number)
        write_i64_be(self._out, expires_us)

    def end_messages(self, data: bytes) -> None:
        """Complete the record."""
        self._pieces.add(data)

    def is_here(self, message_list: MessageList, id: i64) -> bool:
        """Return whether the content of a message is in the current journal file, so that it need not be written again.

        A record that refers to it is never kept longer than the content: a file is deleted once nothing in it is alive,
        and only after all older files.
        """
        if id < self._current_first or id == 0:
            return False
        page = message_list.page_of(id) if id < message_list.paged_below else None
        return page is None or not page.is_stored

    def move_on(self, moved: Entry, died_us: i64, change: bytes, message_list: MessageList, expires_us: i64) -> i64:
        """Record that an expired message (is_here) moves on to a durable queue; return its id there.

        died_us: the time in its death history; change: of its key, see expiry_route.moved_key.
        """
        self.events += 1
        out = self._out
        id = self.next_id
        self.next_id = id + 1
        out.append(MOVED)
        write_i32_be(out, i32(48 + len(change)))
        write_i64_be(out, moved.message_list.number)
        write_i64_be(out, moved.id)
        write_i64_be(out, id)
        write_i64_be(out, message_list.number)
        write_i64_be(out, expires_us)
        write_i64_be(out, died_us)
        out.write(change)
        self.forget(moved.message_list, moved.id)
        self._current_live += 1
        return id

    def settle(self, message_list: MessageList, id: i64, count: i64 = 1) -> None:
        """Record that a message, or `count` messages of one record from this id on, left a durable queue for good."""
        self._pass(SETTLE, message_list.number, id, count)
        self.forget(message_list, id, count)

    def let_go(
        self, message_list: MessageList, items: list[Entry | MessageBatch | Page | None], is_purge: bool
    ) -> None:
        """Settle all messages of a message list after a purge, or with its queue, whose deletion the caller records.

        If there are many messages, the journal gets them in steps, and their memory is freed afterwards.
        """
        leaving = Leaving(message_list, items, is_purge)
        most = SETTLED_AT_ONCE
        if self.is_replaying:
            most = len(items)
        self._settle(leaving, most)
        if leaving.is_over:
            self._free(items)
        else:
            leaving.begin()
            self.leaving.append(leaving)

    def settle_leaving(self, most: i64 = SETTLED_MAX) -> None:
        """Settle up to `most` messages that were purged or whose queues were deleted."""
        while self.leaving and most > 0:
            leaving = self.leaving[0]
            most -= self._settle(leaving, most)
            if leaving.is_over:
                leaving.end()
                self._free(leaving.items)
                self.leaving.pop(0)

    def finish_leaving(self) -> None:
        """Settle all messages that were purged or whose queues were deleted."""
        while self.leaving:
            self.settle_leaving()

    def _settle(self, leaving: Leaving, most: i64) -> i64:
        """Settle at most `most` items; return how many."""
        message_list, items = leaving.message_list, leaving.items
        is_purge = leaving.is_purge and not message_list.queue.is_deleted
        number = message_list.number
        start = leaving.settled
        index = start
        stop = min(start + most, i64(len(items)))
        leaving.settled = stop
        while index < stop:
            item = items[index]
            index += 1
            if item is None:
                continue
            if isinstance(item, Page):
                if not is_purge:
                    item.live = 0
                self.drop(item)
                continue
            id = item.id
            if id == 0:
                continue
            count: i64 = 1
            if isinstance(item, MessageBatch):
                count = item.buffer.count - item.taken
                id += item.taken
            if is_purge:
                self._pass(SETTLE, number, id, count)
            self.forget(message_list, id, count)
        return stop - start

    def _free(self, items: list[Entry | MessageBatch | Page | None]) -> None:
        if len(items) > GONE_AT_ONCE:
            self.gone.append(items)

    @property
    def has_waste(self) -> bool:
        """Whether the pager has something to clear away."""
        is_gone = len(self.gone) > 0 or len(self.gone_keys) > 0
        return len(self.dead_pages) > 0 or is_gone or self.stale_bindings.is_left

    def forget(self, message_list: MessageList, id: i64, count: i64 = 1) -> None:
        """Count a message, or `count` messages of one record from this id on, as dead, without a record."""
        if id >= message_list.paged_below:
            self._count(id, -count)
            return
        stop = id + count
        while id < stop:
            page = message_list.page_of(id)
            if page is not None:
                page.settle(id)
            if page is not None and page.is_stored:
                self.look_at(page)
            else:
                self._count(id, -1)
            id += 1

    def stored(self, id: i64, count: i64) -> None:
        """Count messages of one record as moved from the journal's files to those of a stream."""
        self._count(id, -count)

    def _count(self, id: i64, change: i64) -> None:
        """Change the number of live messages in the journal file that has this message."""
        if id >= self._current_first:
            self._current_live += change
        else:
            self._live[bisect_right(self._first_ids, int(id)) - 1] += int(change)

    # -- pages -------------------------------------------------------------------------------------------------------

    def paged(self, page: Page) -> None:
        """Record that a page's live messages have moved from the journal's files to a segment."""
        if page.live > 0 and not page.message_list.queue.is_deleted:
            self.page(page)
        for item in page.items:
            if item.id == 0:
                continue
            first = max(item.id, page.first_id)  # the first part of a run at the queue's head may be gone already
            count: i64 = 1
            if isinstance(item, MessageBatch):
                count = item.buffer.count - (first - item.id)
            self._count(first, page.settled_in(first, count) - count)

    def page(self, page: Page) -> None:
        """Record which messages of a page are alive."""
        self._write_passed()
        self._out.write(page_record(page))

    def must_wait(self, page: Page) -> bool:
        """Return whether a page at its queue's head is so large that it must be fetched first; start that if so."""
        if page.size <= LARGE_PAGE_OCTETS or page.fetched or self.fetch_page is None:
            return False
        if not page.is_coming:
            page.is_coming = True
            self.fetch_page(page)
        return True

    def fetched(self, page: Page, pieces: list[bytes]) -> None:
        """Take a fetched page. No pieces = the read failed: `load` then reads it again and reports the error."""
        if page.is_waiting:
            page.fetched = pieces or [b""]
            if not page.message_list.queue.is_touched:
                page.message_list.queue.touch()

    def load(self, page: Page) -> list[Entry | MessageBatch]:
        """Return the messages of a page that was waiting in its queue; none if it cannot be read."""
        page.is_waiting = False
        pieces, page.fetched = page.fetched, []
        if not pieces or not pieces[0]:
            data = self.read_page(int(page.segment), int(page.offset), int(page.size))
            if data is None:
                self.drop(page)
                return []
            pieces = [data]
        try:
            items = page.load_pieces(pieces)
        except ValueError as error:
            vhost = page.message_list.queue.vhost
            vhost.on_event(f"{page.message_list.queue.what()}: a page can't be read: {error}; its messages are lost")
            self.drop(page)
            return []
        self.look_at(page)
        return items

    def body_octets(self, page: Page) -> i64:
        """Return the size of the bodies in a page, which stays on disk; 0 if it cannot be read."""
        data = self.read_page(int(page.segment), int(page.offset), int(page.size))
        try:
            return page.body_octets(data) if data is not None else 0
        except ValueError:
            return 0  # reported when its messages are loaded

    def items_of(self, page: Page) -> list[Entry | MessageBatch]:
        """Return the messages in a page, which stays on disk; none if it cannot be read."""
        data = self.read_page(int(page.segment), int(page.offset), int(page.size))
        try:
            return page.load(data) if data is not None else []
        except ValueError:
            return []  # reported when its messages are loaded

    def drop(self, page: Page) -> None:
        """Record that nothing of a page, which cannot be read, is alive any more."""
        limits = page.message_list.queue.limits
        if limits is not None and limits.keys is not None:
            limits.keys.lose(page.message_list, page.position, page.count)
        if page.live > 0:
            page.live = 0
            self._write_passed()
            self._out.write(struct.pack(">BIqq", DROP, 16, int(page.message_list.number), int(page.first_id)))
        page.is_waiting = False
        self.look_at(page)

    def abandon(self, queue: Queue) -> None:
        """Count all pages of a deleted queue as dead."""
        for message_list in queue.every_list():
            for page in message_list.pages:
                if page.is_stored and not page.is_dead:
                    page.live = 0
                    page.is_waiting = False
                    self.look_at(page)

    def look_at(self, page: Page) -> None:
        """Release a page if it is not needed any more."""
        if page.live == 0 and not page.is_waiting and not page.is_dead:
            page.is_dead = True
            # without journalled messages there is no record to wait for
            self.dead_pages.append((self.batch if page.last_id >= page.first_id else 0, page))

    def delivered(self, number: i64, id: i64) -> None:
        """Record at an orderly stop that this message must come back with the redelivered flag."""
        self._pass(DELIVERED, number, id, 1)

    def returned(self, message_list: MessageList, id: i64, returns: i64) -> None:
        """Record the delivery count of a message that came back to its queue."""
        self.events += 1
        self._write_passed()
        self._out.write(returned_record(int(message_list.number), int(id), int(returns)))

    def clean(self) -> None:
        """Record an orderly stop."""
        self.is_stopped = True
        self._write_passed()
        self._out.write(state_record(CLEAN))

    def start(self) -> None:
        """Record that the broker serves, so that `clean` no longer holds; must be on disk before the first delivery."""
        self._out.write(state_record(START))

    def _pass(self, kind: i64, number: i64, id: i64, count: i64) -> None:
        """Add to the current SETTLE or DELIVERED record: ids mostly come in order, and such ids share a record."""
        self.events += count
        if id == self._passed_next and number == self._passed_queue and kind == self._passed_kind:
            self._passed_next = id + count
            return
        self._write_passed()
        self._passed_kind = kind
        self._passed_queue = number
        self._passed_first = id
        self._passed_next = id + count

    def _write_passed(self) -> None:
        if self._passed_next == 0:
            return
        out = self._out
        out.append(int(self._passed_kind))
        write_i32_be(out, 20)
        write_i64_be(out, self._passed_queue)
        write_i64_be(out, self._passed_first)
        write_i32_be(out, i32(self._passed_next - self._passed_first))
        self._passed_next = 0

    def meta(self, record: dict[str, Value]) -> None:
        """Record a declaration or deletion of something durable."""
        self.declared(meta_record(record))

    def declared(self, record: bytes) -> None:
        """Write a record that is encoded already: META, LIFE, POSITION, PUBLISHER or PUBLISHED."""
        if not self.is_replaying:
            self.events += 1
            self._write_passed()
            self._out.write(record)

    # -- batches -----------------------------------------------------------------------------------------------------

    def size(self) -> i64:
        """Return the approximate size of the batch under construction, in octets."""
        return self._pieces.octets() + (1 if self._passed_next else 0) + len(self.marked)

    def standing(self) -> i64:
        """Return the state of a confirm that waits for all records so far."""
        if self.size() > 0:
            return JOURNALLED
        return SYNCING if self.synced < self.batch - 1 else HANDLED

    def wait(self, connection: Peer, channel: BrokerChannel) -> None:
        """Have the confirms of this channel wait for the batch under construction."""
        channel.is_waiting = True
        self.is_awaited = True
        self.waiting.append((connection, channel, connection.now_us))

    def wait_synced(self, connection: Peer, channel: BrokerChannel) -> None:
        """Have this channel wait for the batch that is being synced."""
        self._in_flight.append((connection, channel, connection.now_us))

    def wake_on_disk(self, timer: Timer) -> None:
        """Let this timer fire once the batch under construction is on disk, ahead of any request by a client that
        learns of it from its confirm."""
        self._timers.append(timer)

    def is_open(self, id: i64) -> bool:
        """Return whether the message with this id is in the batch under construction."""
        return id >= self._closed_below

    def hold(self, connection: Peer, id: i64, octets: i64) -> None:
        """Hold back the last `octets` written to a connection until the message with this id is on disk."""
        batch = self.batch - 1
        if id >= self._closed_below:
            batch = self.batch
            self.is_awaited = True
        connection.gate(batch, octets)

    def close_batch(self) -> list[bytes]:
        """Return the batch's records, in pieces, and begin a new batch. Call `on_disk` when they are synced."""
        self._write_passed()
        marked, self.marked = self.marked, []
        for marks in [stream.marks() for stream in marked if not stream.is_deleted]:
            self._out.write(meta_record(marks))
        self.measures.batch_octets.add(self._pieces.octets() + len(self.preface))
        pieces = self._pieces.take()
        if self.preface:
            pieces.insert(0, self.preface)
            self.preface = b""
        self.measures.batch_events.add(self.events - self._closed_events)
        self._closed_events = self.events
        self._closed_below = self.next_id
        self._in_flight = self.waiting
        self.waiting = []
        self.is_awaited = False
        for _, channel, _ in self._in_flight:
            channel.is_waiting = False
            confirms = channel.confirms
            if confirms is not None:
                confirms.close_batch()
        self._closing = self.appended
        self.appended = []
        for stream in self._closing:
            stream.close_batch()
        self._closing_timers, self._timers = self._timers, []
        self.batch += 1
        return pieces

    def on_disk(self, batch: int, now_us: i64 = 0) -> None:
        """Release the confirms of a batch that is synced. now_us: 0 = do not measure how long they took."""
        self.synced = batch
        self.safe_below = self._closed_below
        for connection, channel, since_us in self._in_flight:
            confirms = channel.confirms
            if confirms is not None and not channel.is_closed:
                answered = confirms.answered
                confirms.synced(connection.output.writer, channel.number)
                if now_us != 0 and confirms.answered > answered:
                    self.measures.confirm_us.add(now_us - since_us, confirms.answered - answered)
                connection.mark()
                if confirms.told is not None and connection.answered(channel):
                    self.is_stirred = True
        self._in_flight = []
        for stream in self._closing:
            stream.synced()
        self._closing = []
        for timer in self._closing_timers:
            timer.wake(AT_ONCE_US)
        self._closing_timers = []

    # -- files -------------------------------------------------------------------------------------------------------

    def start_file(self, number: int) -> None:
        """Begin a new journal file for all further records."""
        self._live[-1] = int(self._current_live)
        self._files.append(number)
        self._first_ids.append(int(self.next_id))
        self._live.append(0)
        self._current_first = self.next_id
        self._current_live = 0

    def crowded_below(self) -> int:
        """Return the id below which messages should move to pages, to free journal files; 0 = none should."""
        return self._first_ids[1 - FILES_MAX] if len(self._files) >= FILES_MAX else 0

    def recovered(self, number: int, live: int) -> None:
        """Count all that was replayed as one file, which is kept while anything in it is alive."""
        live += self.live()  # what was overdue has moved already: it may live in this file now
        self._files = [number]
        self._first_ids = [0]
        self._live = [live]
        self._current_first = 0
        self._current_live = live

    def live(self) -> int:
        """Return how many entries of durable queues are alive in all files."""
        return sum(self._live[:-1]) + int(self._current_live)

    def disposable(self) -> int:
        """Return the number of the first journal file to keep if older ones hold nothing alive; else 0."""
        oldest = 0
        while len(self._files) > 1 and self._live[0] == 0:
            # the next file begins with a snapshot, so this one's metadata is not needed
            del self._files[0], self._first_ids[0], self._live[0]
            oldest = self._files[0]
        return oldest


def _no_history(stream: Stream) -> History:
    return History()


def _no_pages(segment: int, offset: int, size: int) -> bytes | None:
    raise AssertionError("no segments")


def page_record(page: Page) -> bytes:
    """Encode a PAGE record."""
    place = (int(page.message_list.number), int(page.segment), int(page.offset), int(page.size))
    alive = (int(page.first_id), int(page.last_id), int(page.expires_us), int(page.live), page.is_redelivered)
    settled = sorted(page.settled)
    rest = PAGE_HEAD.pack(*place, *alive) + struct.pack(f">{len(settled)}q", *settled)
    return struct.pack(">BI", PAGE, len(rest)) + rest


def returned_record(number: int, id: int, returns: int) -> bytes:
    """Encode a RETURNED record."""
    return struct.pack(">BIqqI", RETURNED, 20, number, id, returns)


def state_record(kind: int) -> bytes:
    """Encode a CLEAN or START record."""
    return struct.pack(">BI", kind, 0)


def epoch_record(first_id: int, name: int) -> bytes:
    """Encode a LIFE record."""
    return struct.pack(">BIqq", LIFE, 16, first_id, name)


def position_record(what: int, epoch: int, id: int, key: bytes) -> bytes:
    """Encode a POSITION record."""
    return struct.pack(">BIBqq", POSITION, 17 + len(key), what, epoch, id) + key


def published_record(number: int, id: int, refused: int) -> bytes:
    """Encode a PUBLISHED record."""
    octets = refused.to_bytes((refused.bit_length() + 7) // 8, "big")
    return struct.pack(">BIqq", PUBLISHED, 16 + len(octets), number, id) + octets


def publisher_record(record: dict[str, Value]) -> bytes:
    """Encode a PUBLISHER record."""
    table = encode_table(record)
    return struct.pack(">BI", PUBLISHER, len(table)) + table


def meta_record(record: dict[str, Value]) -> bytes:
    """Encode a META record."""
    return meta_record_of(encode_table(record))


def meta_record_of(table: bytes) -> bytes:
    """Encode a META record from an encoded table."""
    return bytes([META]) + len(table).to_bytes(4, "big") + table
