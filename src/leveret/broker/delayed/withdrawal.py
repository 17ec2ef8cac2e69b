"""Removes delayed messages from their queues early: they are cancelled, or get another due time.

The records of one withdrawal are written in one go, so they are one batch: after a crash all of it is done, or nothing.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.delayed.schedule import Schedule
from leveret.broker.delayed.search import Cut, PageCut, rest
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.storage.log import Log
from leveret.broker.storage.page import Page


def cancel(log: Log, cuts: list[Cut]) -> i64:
    """Remove these messages for good; return their number."""
    count: i64 = 0
    for cut in cuts:
        count += cut.count
        for page_cut in cut.pages:
            if page_cut.is_whole():
                log.drop(page_cut.page)  # one record for all its messages
            else:
                for id in page_cut.ids:
                    log.settle(page_cut.page.message_list, id)
        for item in cut.items:
            if item.id != 0:
                first = item.id + (item.taken if isinstance(item, MessageBatch) else 0)
                for id in range(int(first), int(first + rest(item))):
                    log.settle(item.message_list, id)
        take_out(log, cut)
    return count


def take_out(log: Log, cut: Cut) -> None:
    """Remove the messages of a cut from memory, after the journal has recorded it."""
    part = cut.part
    gone: set[int] = set()
    for item in cut.items:
        gone.add(id(item))
        _forget_in_page(item)
    if part.message_list is None:
        assert isinstance(part.holder.queue, Schedule)
        part.holder.queue.withdraw_near(gone)
        return
    ready = part.message_list.ready
    for page_cut in cut.pages:
        ready.shorten(page_cut.page, page_cut.count)
        if _is_empty(log, page_cut):
            gone.add(id(page_cut.page))
    ready.withdraw(gone)
    queue = part.holder.queue
    if part.is_undeliverable:
        if queue.undeliverable is not None:
            queue.undeliverable.change(-cut.count, -cut.octets)
            if queue.undeliverable.count() == 0:
                queue.undeliverable.recount()  # its figures for pages were approximate
    elif queue.limits is not None:
        queue.limits.octets -= cut.octets


def _forget_in_page(item: Entry | MessageBatch) -> None:
    """Subtract the item from a page that is being written, which must not count it when it takes its place."""
    if item.id != 0:
        page: Page | None = item.message_list.page_of(item.id + (item.taken if isinstance(item, MessageBatch) else 0))
        if page is not None and not page.is_stored:
            page.count -= rest(item)


def _is_empty(log: Log, cut: PageCut) -> bool:
    """Remove a cut's messages from its page; True if none is left."""
    page = cut.page
    page.withdraw(cut.transients)
    if page.count > 0:
        return False
    page.is_waiting = False
    log.look_at(page)
    return True
