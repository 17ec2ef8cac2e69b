"""Searches all delayed messages in parts, so that others have their turn, and finds messages that are to be removed.

The search covers the messages that wait when it begins. It sees each of them once, even if it moves from level to level
meanwhile. Pages are read where they are; they stay on disk, and their messages in their queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.delayed.holder import HeldPart, holders
from leveret.broker.delayed.wanted import DelayedFilter
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.queues.limits import body_octets
from leveret.broker.storage.page import Page

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

# messages that are examined in one step
STEP: Final[i64] = 64


def rest(item: Entry | MessageBatch) -> i64:
    """Return the number of its messages."""
    return item.buffer.count - item.taken if isinstance(item, MessageBatch) else 1


def octets(item: Entry | MessageBatch) -> i64:
    """Return the size of its bodies."""
    if isinstance(item, MessageBatch):
        return rest(item) * body_octets(item.buffer.data)
    return body_octets(item.content)


def loaded(page: Page) -> list[Entry | MessageBatch]:
    """Return the messages of a page, which stays on disk; [] if it can't be read."""
    if page.is_dead:
        return []  # its segment may be gone
    data = page.message_list.queue.vhost.log.read_page(int(page.segment), int(page.offset), int(page.size))
    return page.load(data) if data is not None else []


class Visitor:
    """Gets the wanted messages."""

    def see(self, part: HeldPart, item: Entry | MessageBatch, count: i64) -> None:
        """Handle one wanted message, or `count` messages that differ in their bodies only."""


class PageCut:
    """The wanted messages of a page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.was = page.count  # messages in the page when it was examined
        self.count: i64 = 0  # wanted messages
        self.octets: i64 = 0  # of their bodies
        self.ids: list[int] = []  # of those that are journalled
        self.transients: list[int] = []  # the others, as in Page.withdraw
        self._transients_seen = 0

    def note(self, item: Entry | MessageBatch, is_wanted: bool) -> None:
        """Add the next item of the page."""
        if is_wanted:
            self.count += rest(item)
            self.octets += octets(item)
        if item.id == 0:
            if is_wanted:
                self.transients.append(self._transients_seen)
            self._transients_seen += 1
        elif is_wanted:
            self.ids.extend(range(int(item.id), int(item.id + rest(item))))

    def is_true(self) -> bool:
        """Whether the page is unchanged since."""
        return self.page.is_waiting and self.page.count == self.was

    def is_whole(self) -> bool:
        """Whether all messages of the page are wanted."""
        return self.count == self.page.count


class Cut:
    """The wanted messages of a part: items in memory, and those of pages."""

    def __init__(self, part: HeldPart) -> None:
        self.part = part
        self.items: list[Entry | MessageBatch] = []
        self.pages: list[PageCut] = []
        self.count: i64 = 0  # messages
        self.octets: i64 = 0  # of their bodies


class Search:
    """A search. With `keeps` it remembers what it has examined, for `cuts`."""

    def __init__(self, vhosts: list[VHost], wanted: DelayedFilter, visitor: Visitor, keeps: bool) -> None:
        self._vhosts = vhosts
        self._wanted = wanted
        self._visitor = visitor
        self._keeps = keeps
        # as they are at the beginning; kept until the end, because the search identifies items by id()
        self._parts = self._wanted_parts()
        self._passed: set[int] = set()
        self._pages: dict[int, PageCut] = {}

    def _wanted_parts(self) -> list[HeldPart]:
        parts = [part for vhost in self._vhosts for holder in holders(vhost) for part in holder.parts()]
        return [part for part in parts if self._wanted.takes_list(part.holder, part.is_undeliverable)]

    def steps(self) -> Iterator[None]:
        """Examine everything in steps, and show the visitor the wanted messages."""
        seen: i64 = 0
        for part in self._parts:
            for item in part.items:
                if isinstance(item, Page):
                    cut = PageCut(item)
                    for each in loaded(item):
                        self._look_into(part, cut, each)
                        seen += 1
                        if seen % STEP == 0:
                            yield
                    if self._keeps:
                        self._pages[id(item)] = cut
                elif self._takes(part, item):
                    self._visitor.see(part, item, rest(item))
                elif self._keeps:
                    self._passed.add(id(item))
                seen += 1
                if seen % STEP == 0:
                    yield

    def _takes(self, part: HeldPart, item: Entry | MessageBatch) -> bool:
        if isinstance(item, MessageBatch):
            return self._wanted.takes(part.holder, item.buffer.key, item.expires_us, item.buffer.data)
        return self._wanted.takes(part.holder, item.key, item.expires_us, item.content)

    def _look_into(self, part: HeldPart, cut: PageCut, item: Entry | MessageBatch) -> None:
        """Examine the next item of a page."""
        takes = self._takes(part, item)
        if takes:
            self._visitor.see(part, item, rest(item))
        if self._keeps:
            cut.note(item, takes)

    # -- removal -------------------------------------------------------------------------------------------------------

    def cuts(self) -> list[Cut]:
        """Return the wanted messages that wait at this moment, without examining again what `steps` has examined."""
        found: list[Cut] = []
        for part in self._wanted_parts():
            cut = Cut(part)
            for item in part.items:
                if isinstance(item, Page):
                    page_cut = self._page_cut(part, item)
                    if page_cut.count > 0:
                        cut.pages.append(page_cut)
                        cut.count += page_cut.count
                        cut.octets += page_cut.octets
                elif id(item) not in self._passed and self._takes(part, item):
                    cut.items.append(item)
                    cut.count += rest(item)
                    cut.octets += octets(item)
            if cut.count > 0:
                found.append(cut)
        return found

    def _page_cut(self, part: HeldPart, page: Page) -> PageCut:
        found = self._pages.get(id(page))
        if found is None or not found.is_true():
            found = PageCut(page)
            for item in loaded(page):
                found.note(item, self._takes(part, item))
        return found

    def entries(self, cut: Cut) -> list[Entry]:
        """Return the messages of a cut, one by one, oldest first."""
        items: list[Entry | MessageBatch] = []
        for page_cut in cut.pages:
            items += [item for item in loaded(page_cut.page) if self._takes(cut.part, item)]
        items += cut.items
        found: list[Entry] = []
        for item in items:
            if isinstance(item, MessageBatch):
                found += [item.entry(index) for index in range(int(item.taken), int(item.buffer.count))]
            else:
                found.append(item)
        return found
