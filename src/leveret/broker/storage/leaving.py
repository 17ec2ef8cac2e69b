"""Messages that a purge or the deletion of their queue has removed, until the journal has recorded all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.storage.page import Page

if TYPE_CHECKING:
    from leveret.broker.queues.message_list import MessageList


class Leaving:
    """The removed messages of one message list."""

    def __init__(
        self, message_list: MessageList, items: list[Entry | MessageBatch | Page | None], is_purge: bool
    ) -> None:
        self.message_list = message_list
        self.items = items
        self.is_purge = is_purge  # each message needs a record, since its queue stays
        self.settled: i64 = 0  # number of items that are done

    @property
    def is_over(self) -> bool:
        """Whether all items are done."""
        return self.settled == len(self.items)

    def begin(self) -> None:
        """Mark the queue, because some items are left after the first step."""
        self.message_list.queue.leaving += 1
        if not self.is_purge:
            self.message_list.is_leaving = True

    def end(self) -> None:
        """Unmark the queue after the last step."""
        self.message_list.queue.leaving -= 1
        if not self.is_purge:
            self.message_list.is_leaving = False
            self.message_list.pages = [page for page in self.message_list.pages if not page.is_dead]
