"""Reads messages of a queue in place: nothing is removed, counted, marked or moved.

Messages come in the order of delivery. Pages are read from disk and stay there. Consumers may take messages meanwhile;
what is shown was in the queue when browsing began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from leveret.broker.delayed.search import loaded, rest
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.peer import Peer
from leveret.broker.queues.message_list import MessageList
from leveret.broker.queues.queue import Queue
from leveret.broker.storage.page import Page
from leveret.broker.streams.chunk import ChunkGroup, decode
from leveret.broker.streams.stream import Stream

# items that are skipped without a pause
STEP: Final = 64


class UnackedHolder(NamedTuple):
    """The holder of an unacknowledged message."""

    connection: str
    channel: int
    consumer: str  # consumer tag, "" = fetched by basic.get


class Seen(NamedTuple):
    """A message."""

    offset: int  # position among the messages that are browsed
    place: str  # names the message as long as it stays where it is
    key: bytes
    content: bytes
    redelivered: bool
    expires_us: int
    held: UnackedHolder | None
    time_us: int = 0  # wall clock time of its arrival in a stream, 0 = not known


# messages one by one; None is a pause
Look = Iterator[Seen | None]


def waiting(queue: Queue, offset: int, is_undeliverable: bool) -> Look:
    """Yield the ready messages, or the undeliverable dead letters, from this offset on."""
    at = 0
    for message_list in list(_lists(queue, is_undeliverable)):
        for index, item in enumerate(message_list.ready.items()):
            if index % STEP == 0:
                yield None
            count = int(item.count) if isinstance(item, Page) else int(rest(item))
            if at + count > offset:
                yield from _singles(item, at, offset)
            at += count


def _lists(queue: Queue, is_undeliverable: bool) -> Iterable[MessageList]:
    if not is_undeliverable:
        return queue.message_lists
    return queue.undeliverable.message_lists.values() if queue.undeliverable is not None else ()


def _singles(item: Entry | MessageBatch | Page, at: int, offset: int) -> Look:
    for part in loaded(item) if isinstance(item, Page) else [item]:
        count = int(rest(part))
        if isinstance(part, MessageBatch):
            first = int(part.taken)
            for index in range(max(0, offset - at), count):
                yield _seen(part.entry(first + index), at + index, None)
        elif at >= offset:
            yield _seen(part, at, None)
        else:
            yield None
        at += count


def unacknowledged(queue: Queue, peers: Iterable[Peer], offset: int) -> Look:
    """Yield the unacknowledged messages and their holders from this offset on, oldest first."""
    found: list[tuple[int, int, Entry, UnackedHolder]] = []
    for peer in list(peers):
        for channel in list(peer.channels.values()):
            yield None
            for count, entry in enumerate(channel.outstanding()):
                if count % STEP == 0:
                    yield None
                if entry.queue is queue:
                    tag = entry.consumer.tag if entry.consumer is not None else ""
                    held = UnackedHolder(peer.name, int(channel.number), tag)
                    found.append((-int(entry.message_list.index), int(entry.position), entry, held))
    found.sort(key=lambda each: each[:2])
    for index, (_, _, entry, held) in enumerate(found[offset:], offset):
        yield _seen(entry, index, held)


def _seen(entry: Entry, offset: int, held: UnackedHolder | None) -> Seen:
    place = f"{int(entry.message_list.index)}-{int(entry.position)}"
    return Seen(offset, place, entry.key, entry.shown(), entry.redelivered, int(entry.expires_us), held)


def of_stream(stream: Stream, offset: int) -> Look:
    """Yield the committed messages of a stream from this offset on."""
    at = max(offset, int(stream.first))
    while at < stream.committed and not stream.is_deleted:
        if at < stream.history.end:
            fetched = stream.history.fetch(at)
            if fetched is None:
                yield None  # another thread reads it
                continue
            groups, end = decode(fetched.payload, fetched.first), int(fetched.end)
        else:
            groups = stream.tail_from(at)
            end = int(groups[-1].end) if groups else int(stream.committed)
        yield from _of_groups(groups, at, int(stream.committed))
        at = max(end, at + 1)


def _of_groups(groups: Iterable[ChunkGroup], at: int, until: int) -> Look:
    for group in groups:
        yield None
        first = int(group.offset)
        for offset in range(max(first, at), min(int(group.end), until)):
            content = group.content(offset - first)
            yield Seen(offset, str(offset), group.key, content, False, 0, None, int(group.time_us))


def single(queue: Queue, peers: Iterable[Peer], place: str) -> Look:
    """Yield only the message at this place, if it is still there."""
    if isinstance(queue, Stream):
        for seen in of_stream(queue, int(place)):
            if seen is None or seen.place == place:
                yield seen
            if seen is not None:
                return
        return
    index, _, position = place.partition("-")
    for message_list in queue.every_list():
        if int(message_list.index) == int(index):
            yield from _in_list(message_list, int(position))
    for seen in unacknowledged(queue, peers, 0):
        if seen is None or seen.place == place:
            yield seen


def _in_list(message_list: MessageList, position: int) -> Look:
    for count, item in enumerate(message_list.ready.items()):
        if count % STEP == 0:
            yield None
        first = int(item.position) + (int(item.taken) if isinstance(item, MessageBatch) else 0)
        size = int(item.count) if isinstance(item, Page) else int(rest(item))
        if first <= position < first + size:
            for seen in _singles(item, 0, 0):
                if seen is not None and seen.place.endswith(f"-{position}"):
                    yield seen
