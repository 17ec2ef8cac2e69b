"""Delivery counts of messages that are requeued to queues with x-delivery-limit, and the header that shows them.

As in RabbitMQ's quorum queues, measured on 3.10.8: every requeue counts (by reject or nack, recover, a closed channel,
a lost connection). From the second delivery on the message carries x-delivery-count, with basic.get from the first; the
requeue after the last allowed delivery dead-letters it, with its publisher's headers. The journal records each requeue.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.messages.contents import header_of, raw_headers, with_header
from leveret.broker.messages.entry import Entry
from leveret.wire.errors import ProtocolError
from leveret.wire.properties import replace_property
from leveret.wire.table import join_table

if TYPE_CHECKING:
    from leveret.broker.queues.queue import Queue
    from leveret.broker.vhost import VHost

COUNT = b"x-delivery-count"


class Returned(Entry):
    """An entry that was requeued, with the header x-delivery-count."""

    def __init__(self, entry: Entry, original: bytes, returns: i64) -> None:
        content = with_delivery_count(original, returns)
        super().__init__(entry.message_list, content, entry.key, entry.id, entry.expires_us, entry.position)
        self.original = original  # the content as it was published
        self.returns = returns  # how often it was requeued
        self.redelivered = True


def returned(entry: Entry) -> Returned:
    """Return the entry with its delivery count increased."""
    if isinstance(entry, Returned):
        return Returned(entry, entry.original, entry.returns + 1)
    return Returned(entry, entry.shown(), 1)


def counted(vhost: VHost, queues: list[Queue]) -> list[tuple[int, int, int]]:
    """Return (message list's number, id, returns) of each message with a delivery count, for a new journal file.

    Counts that are stored in pages are left out. queues: the journalled queues that count.
    """
    found: list[Entry] = []
    counts: list[tuple[int, int, int]] = []
    for queue in queues:
        for message_list in queue.message_lists:
            found += message_list.ready.came_back()
            for page in message_list.pages:
                for id, times in page.returned.items():
                    if page.is_waiting and page.has(id):
                        counts.append((int(message_list.number), id, times))
    for channel in vhost.holding():
        found += channel.outstanding()
    for entry in found:
        if isinstance(entry, Returned) and entry.id != 0 and not entry.queue.is_deleted:
            counts.append((int(entry.message_list.number), int(entry.id), int(entry.returns)))
    return sorted(counts)


def published_content(entry: Entry) -> bytes:
    """Return the content as its publisher sent it, with the history of its deaths."""
    return entry.original if isinstance(entry, Returned) else entry.shown()


def with_delivery_count(content: bytes, returns: i64) -> bytes:
    """Return the content with the header x-delivery-count; unchanged if its headers are malformed."""
    header = header_of(content)
    try:
        entries = [entry for entry in raw_headers(header) if entry[0] != COUNT]
    except ProtocolError:
        return content
    entries.append((COUNT, b"l" + struct.pack(">q", int(returns))))
    return with_header(content, replace_property(header, "headers", join_table(entries)))
