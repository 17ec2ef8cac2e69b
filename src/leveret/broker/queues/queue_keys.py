"""x-message-deduplication of a queue: the keys of its messages (plugin rabbitmq-message-deduplication).

A key belongs to the last message that came with it, and is free when that message is acknowledged, delivered without
acknowledgement, expired, dropped or dead-lettered. It is not free while the message is unacknowledged or requeued, but
as in the plugin it does not outlast the message's time to live, and a purge frees the keys of unacknowledged messages,
too. When a message leaves, its key is read from its headers again, so nothing but the key is kept of messages on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.messages.deduplication_key import KEPT_OCTETS, key_of
from leveret.broker.messages.message_batch import MessageBatch

if TYPE_CHECKING:
    from leveret.broker.messages.entry import Entry
    from leveret.broker.queues.message_list import MessageList


class KeyOwner:
    """The message that has a key."""

    def __init__(self, index: i64, position: i64, id: i64, expires_us: i64) -> None:
        self.index = index  # of its message list
        self.position = position  # in its message list
        self.id = id  # in the journal, 0 = it is not in the journal
        self.expires_us = expires_us  # when its time to live ends, 0 = never


KeyOwners = dict[bytes, KeyOwner]


class QueueKeys:
    """The keys of one queue's messages."""

    def __init__(self) -> None:
        self._owners: KeyOwners = {}

    def owner(self, content: bytes, now_us: i64) -> KeyOwner | None:
        """Return the message of which this one is a duplicate now, None if it is none."""
        key = key_of(content)
        if not key:
            return None
        found = self._owners.get(key)
        return found if found is not None and (found.expires_us == 0 or found.expires_us > now_us) else None

    def enter(self, entry: Entry) -> None:
        """Note the key of a message that has got its position in the queue."""
        self._put(entry.content, entry.message_list, entry.position, entry.id, entry.expires_us)

    def enter_item(self, item: Entry | MessageBatch) -> None:
        """Note the key of a message, or that of a run, which leaves with its last message."""
        if isinstance(item, MessageBatch):
            last = item.position + item.buffer.count - 1
            self._put(item.buffer.data[: item.buffer.size], item.message_list, last, item.id, item.expires_us)
        else:
            self.enter(item)

    def _put(self, content: bytes, message_list: MessageList, position: i64, id: i64, expires_us: i64) -> None:
        key = key_of(content)
        if key:
            self._owners[key] = KeyOwner(message_list.index, position, id, expires_us)

    def leave(self, entry: Entry) -> None:
        """Free the key of a message that leaves the queue, unless it belongs to another message by now."""
        key = key_of(entry.content)
        owner = self._owners.get(key) if key else None
        if owner is not None and owner.position == entry.position and owner.index == entry.message_list.index:
            del self._owners[key]

    def lose(self, message_list: MessageList, first: i64, count: i64) -> None:
        """Free the keys of `count` messages that could not be read from disk, the first with this position."""
        index = message_list.index
        for key, owner in list(self._owners.items()):
            if owner.index == index and first <= owner.position < first + count:
                del self._owners[key]

    def clear(self) -> KeyOwners:
        """Free all keys; return them, because there may be too many to release their memory at once."""
        owners = self._owners
        self._owners = {}
        return owners

    def count(self) -> int:
        """Return the number of keys."""
        return len(self._owners)

    def octets(self) -> int:
        """Return the memory of the keys, approximately."""
        return len(self._owners) * int(KEPT_OCTETS)
