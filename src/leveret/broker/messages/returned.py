"""Deliveries of a queue with x-delivery-limit that came back: how often, and the header that tells the next consumer.

As RabbitMQ's quorum queues have it, measured on 3.10.8: every return counts (requeue, recover, a closed channel, a lost
connection); from the second delivery on the message carries x-delivery-count, with basic.get already on the first; the
return after the last allowed delivery is dead-lettered, with the headers that the publisher gave it. The journal hears
of each return.
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
    """original: the content as it was published; returns: how often the message came back."""

    def __init__(self, entry: Entry, original: bytes, returns: i64) -> None:
        content = with_delivery_count(original, returns)
        super().__init__(entry.message_list, content, entry.key, entry.id, entry.expires_us, entry.position)
        self.original = original
        self.returns = returns
        self.redelivered = True


def returned(entry: Entry) -> Returned:
    """The entry after it came back once more."""
    if isinstance(entry, Returned):
        return Returned(entry, entry.original, entry.returns + 1)
    return Returned(entry, entry.shown(), 1)


def counted(vhost: VHost, queues: list[Queue]) -> list[tuple[int, int, int]]:
    """(number of its message list, id, returns) of each message that came back, but for what pages say: for a new file.

    queues: those of the journal that count it.
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
    """The content as its publisher sent it, with the history of its deaths."""
    return entry.original if isinstance(entry, Returned) else entry.shown()


def with_delivery_count(content: bytes, returns: i64) -> bytes:
    """The content with the header x-delivery-count; unchanged where the headers are malformed."""
    header = header_of(content)
    try:
        entries = [entry for entry in raw_headers(header) if entry[0] != COUNT]
    except ProtocolError:
        return content
    entries.append((COUNT, b"l" + struct.pack(">q", int(returns))))
    return with_header(content, replace_property(header, "headers", join_table(entries)))
