"""Messages that a purge has taken from a message list, or that go with their queue, until the journal knows of all of
them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.entry import Entry
from leveret.broker.page import Page
from leveret.broker.run import Run

if TYPE_CHECKING:
    from leveret.broker.message_list import MessageList


class Leaving:
    """is_purge: each of them needs a record, since their queue stays. settled: how many of the items are done with."""

    def __init__(self, message_list: MessageList, items: list[Entry | Run | Page | None], is_purge: bool) -> None:
        self.message_list = message_list
        self.items = items
        self.is_purge = is_purge
        self.settled: i64 = 0

    @property
    def is_over(self) -> bool:
        """All are done with."""
        return self.settled == len(self.items)

    def begin(self) -> None:
        """The first items are done with, and others are left."""
        self.message_list.queue.leaving += 1
        if not self.is_purge:
            self.message_list.is_leaving = True

    def end(self) -> None:
        """So are the others."""
        self.message_list.queue.leaving -= 1
        if not self.is_purge:
            self.message_list.is_leaving = False
            self.message_list.pages = [page for page in self.message_list.pages if not page.is_dead]
