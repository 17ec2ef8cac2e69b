"""The pager moves messages of long queues to pages, for two reasons: memory, and journal files that should be reused.

It only decides and builds, in small parts, so that nobody waits; its owner writes the segments and reports back:

    pager.relieve(…) or pager.clear_files()      what to move
    while pager.step(): …                        build; between the steps the broker goes on
    number, payloads = pager.segment()           write these, on another thread
    pager.stored(places)                         or pager.failed()
    while pager.settle(): …                      put a page in place of its messages

A page is added to its message list when it is built, so that it notices messages that are settled meanwhile; messages
count as moved when the segment is on disk and the journal's next batch records it.

Pages of one message list never overlap, and have its order: each range is built from its end to its front, since
meanwhile only the front changes. Requeued and unacknowledged messages, which are older than all others, come last.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.broker import Broker
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.queues.message_list import MessageList
from leveret.broker.storage.log import GONE_AT_ONCE
from leveret.broker.storage.page import Page

# of one page, of one step, and of one segment
PAGE_OCTETS: Final = 128 * 1024
STEP_OCTETS: Final = 128 * 1024
SEGMENT_OCTETS: Final = 16 << 20
# messages in a page of requeued or unacknowledged messages
REQUEUED_MAX: Final = 1000
# kept in memory at the front of a message list, because it is needed soon
FRONT_OCTETS: Final = 1 << 20
# dead pages that are examined in one step
DEAD_MAX: Final = 256


class Range:
    """Items of a message list to be moved: indices from `floor` to `stop`, which decreases as pages are built."""

    def __init__(self, message_list: MessageList, floor: int, stop: int) -> None:
        self.message_list = message_list
        self.floor = floor
        self.stop = stop


class Pager:
    """Decides which messages to move to pages, and builds the pages."""

    def __init__(
        self,
        broker: Broker,
        page_octets: int = PAGE_OCTETS,
        step_octets: int = STEP_OCTETS,
        segment_octets: int = SEGMENT_OCTETS,
        front_octets: int = FRONT_OCTETS,
    ) -> None:
        self._page_octets = page_octets
        self._step_octets = step_octets
        self._segment_octets = segment_octets
        self._front_octets = front_octets
        self.segments: dict[int, int] = {}  # number of needed pages, by segment
        self.is_writing = False  # the owner writes a segment, or its pages are not all settled
        self._broker = broker
        self._ranges: list[Range] = []
        self._requeued_below = 0  # older requeued and unacknowledged messages are moved; 0 = none
        self._pages: list[Page] = []
        self._places: list[tuple[int, int]] = []  # of stored pages that are to be settled
        self._payloads: list[list[bytes]] = []
        self._octets = 0
        self._next_segment = 1

    # -- decisions -----------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to be moved."""
        return not (self._ranges or self._requeued_below or self._pages)

    def octets(self) -> int:
        """Return the approximate memory of all queues' messages."""
        return int(self._broker.log.ready_octets)

    def relieve(self, octets_max: int) -> None:
        """Move the longest queues, except their front, until all take less than `octets_max`."""
        excess = self.octets() - octets_max
        message_lists = sorted(self._lists(), key=lambda message_list: message_list.ready.octets, reverse=True)
        front = min(self._front_octets, octets_max // (len(message_lists) + 1))
        for message_list in message_lists:
            if excess <= 0 or message_list.ready.octets <= front:
                return
            excess -= int(message_list.ready.octets) - front
            self._ranges.append(Range(message_list, message_list.ready.behind(front), message_list.ready.span()[1]))

    def clear_files(self) -> None:
        """Move the messages that keep the journal's oldest files, if there are too many files."""
        limit = self._broker.log.crowded_below()
        if limit == 0:
            return
        for message_list in self._lists():
            first, _ = message_list.ready.span()
            stop = message_list.ready.before_id(limit) if message_list.queue.is_journalled else first
            if stop > first:
                self._ranges.append(Range(message_list, first, stop))
        self._requeued_below = limit

    def _lists(self) -> list[MessageList]:
        """Return the message lists with ready messages, without examining all queues, most of which may be empty."""
        found: list[MessageList] = []
        for queue in list(self._broker.log.filled):
            before = len(found)
            for message_list in queue.every_list():
                if message_list.ready.count() > 0:
                    found.append(message_list)
            if len(found) == before and (queue.is_deleted or not queue.is_touched):
                queue.drained()
        return found

    # -- building ------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Build a part of a segment. False if the segment is complete, or if there is nothing to do."""
        goal = min(self._octets + self._step_octets, self._segment_octets)
        while self._ranges and self._octets < goal:
            self._build(self._ranges[-1])
        if not self._ranges and self._requeued_below and self._octets < goal:
            self._build_requeued()
        return self._octets < self._segment_octets and not (self.is_idle or self._is_last)

    @property
    def _is_last(self) -> bool:
        return not (self._ranges or self._requeued_below)

    def _build(self, part: Range) -> None:
        message_list = part.message_list
        items, start, stop = message_list.ready.tail(part.floor, part.stop, self._page_octets)
        part.stop = start
        if not items:
            self._ranges.pop()  # it is complete, or was removed with its queue
            return
        self._add(Page(message_list, items, start, stop))

    def _build_requeued(self) -> None:
        """Build pages of the requeued and unacknowledged messages in files to clear."""
        limit, self._requeued_below = self._requeued_below, 0
        found: dict[MessageList, list[Entry | MessageBatch]] = {}
        for message_list in self._lists():
            if message_list.queue.is_journalled:
                found[message_list] = [entry for entry in message_list.ready.returned() if entry.id]
        for vhost in self._broker.vhosts.values():
            for channel in vhost.holding():
                for entry in channel.outstanding():
                    if entry.id and entry.queue.is_journalled and not entry.queue.is_deleted:
                        found.setdefault(entry.message_list, []).append(entry)
        for message_list, entries in found.items():
            alone = [entry for entry in entries if entry.id < limit and message_list.page_of(entry.id) is None]
            alone.sort(key=lambda entry: entry.id)
            while alone:
                # up to the next page: if pages overlapped, a message would be looked for in the wrong one
                following = message_list.page_index(alone[0].id)
                stop = message_list.pages[following].first_id if following < len(message_list.pages) else limit
                count = sum(entry.id < stop for entry in alone[:REQUEUED_MAX])
                self._add(Page(message_list, alone[:count], 0, 0))
                del alone[:count]

    def _add(self, page: Page) -> None:
        payload = page.encode()
        if page.live > 0:
            page.message_list.add_page(page)
        self._pages.append(page)
        self._payloads.append(payload)
        self._octets += sum(map(len, payload))

    # -- segments ------------------------------------------------------------------------------------------------------

    def segment(self) -> tuple[int, list[list[bytes]]] | None:
        """Return the number of a segment and its pages, in pieces, to be written; None if nothing was built."""
        if not self._pages:
            return None
        self.is_writing = True
        return self._next_segment, self._payloads

    def stored(self, places: list[tuple[int, int]]) -> None:
        """Take over a segment that is on disk, with its pages at these offsets and of these sizes."""
        self.segments[self._next_segment] = len(places)
        self._places = places[::-1]
        self._pages.reverse()

    def settle(self) -> bool:
        """Put one page of the stored segment in place of its messages; False if there was none.

        One at a time: to free the messages of all pages at once, many thousands, would be a noticeable pause.
        """
        if not self._places:
            return False
        log = self._broker.log
        page = self._pages.pop()
        page.segment = self._next_segment
        page.offset, page.size = self._places.pop()
        page.is_stored = True
        log.paged(page)
        if page.message_list.queue.is_deleted:
            page.live = 0
        elif page.stop > 0:
            page.is_waiting = page.message_list.ready.replace(page)
        page.items = []
        log.look_at(page)
        if not self._places:
            self._next_segment += 1
            self._reset()
        return True

    def failed(self) -> None:
        """Give up a segment that could not be written: all messages stay where they are."""
        for page in self._pages:
            page.message_list.remove_page(page)
        self._ranges.clear()
        self._requeued_below = 0
        self._reset()

    def _reset(self) -> None:
        self.is_writing = False
        self._pages, self._payloads, self._octets = [], [], 0

    def recovered(self, segments: dict[int, int], last: int) -> None:
        """Set, after a restart, the number of needed pages by segment, and the last segment number."""
        self.segments = segments
        self._next_segment = last + 1

    def removable(self) -> list[int]:
        """Return segments that are not needed any more, after the removal of some dead pages that are synced."""
        log = self._broker.log
        found: list[int] = []
        dead = log.dead_pages[:DEAD_MAX]
        del log.dead_pages[:DEAD_MAX]
        for batch, page in dead:
            if batch > log.synced:
                log.dead_pages.append((batch, page))
                continue
            if not page.message_list.is_leaving:
                page.message_list.remove_page(page)
            number = int(page.segment)
            self.segments[number] -= 1
            if self.segments[number] == 0:
                del self.segments[number]
                found.append(number)
        return found

    def let_go(self) -> bool:
        """Free some removed messages and stale bindings; True if others are left."""
        gone, stale_bindings = self._broker.log.gone, self._broker.log.stale_bindings
        gone_keys = self._broker.log.gone_keys
        if gone:
            del gone[-1][-GONE_AT_ONCE:]
            if not gone[-1]:
                gone.pop()
        if gone_keys:
            owners = gone_keys[-1]
            for _ in range(min(GONE_AT_ONCE, len(owners))):
                owners.popitem()
            if not owners:
                gone_keys.pop()
        stale_bindings.clear()
        return len(gone) > 0 or len(gone_keys) > 0 or stale_bindings.is_left
