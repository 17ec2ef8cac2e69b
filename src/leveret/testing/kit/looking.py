"""Read-only inspection of a broker; must run on the broker's loop."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from typing import Final

from leveret.broker.broker import Broker
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.queues.message_list import MessageList
from leveret.broker.queues.queue import Queue
from leveret.testing.kit.record import Message, read_message

NAMES_MAX: Final = 12


def find_queue(broker: Broker, name: str, vhost: str) -> Queue:
    """Return the queue of this name. Raises AssertionError, with the existing names, if it does not exist."""
    if vhost not in broker.vhosts:
        raise AssertionError(f"there is no virtual host {vhost!r}{_near(vhost, broker.vhosts)}")
    queues = broker.vhosts[vhost].queues
    if name not in queues:
        raise AssertionError(f"there is no queue {name!r} in virtual host {vhost!r}{_near(name, queues)}")
    return queues[name]


def waiting(broker: Broker, name: str, vhost: str) -> list[Message]:
    """Return the ready messages of a queue in order of delivery. AssertionError if it does not exist or is a stream."""
    queue = find_queue(broker, name, vhost)
    if queue.is_stream:
        raise AssertionError(f"{name!r} is a stream: read its messages with a consumer, from x-stream-offset=first on")
    message_lists = sorted(queue.every_list(), key=lambda message_list: -message_list.index)  # higher priorities first
    return [_message(entry, vhost) for message_list in message_lists for entry in _entries(message_list)]


def report(broker: Broker) -> list[str]:
    """Describe the broker on several lines: queues with their message counts, and connections by user."""
    lines = []
    for vhost in broker.vhosts.values():
        for queue in vhost.queues.values():
            counts = f"{queue.count()} ready, {queue.unacked} unacknowledged, {queue.consumers.count} consumers"
            lines.append(f"queue {queue.name!r}{_in(vhost.name)}: {counts}")
    users = Counter(f"{user!r}" for user in broker.users.by_name for _ in broker.connections_of(user))
    lines += [f"connections of user {user}: {count}" for user, count in users.items()]
    return lines or ["no queues, no connections"]


def listed(names: Iterable[str], wanted: str) -> str:
    """List up to NAMES_MAX of the names as text, those similar to the wanted one first."""
    known = list(dict.fromkeys(names))
    near = difflib.get_close_matches(wanted, known, NAMES_MAX, 0.5)
    found = [*near, *(name for name in known if name not in near)]
    more = f", and {len(found) - NAMES_MAX} others" if len(found) > NAMES_MAX else ""
    return ", ".join(map(repr, found[:NAMES_MAX])) + more


def _near(wanted: str, names: Iterable[str]) -> str:
    known = list(names)
    return f"; these exist: {listed(known, wanted)}" if known else "; none exist"


def _in(vhost: str) -> str:
    return "" if vhost == "/" else f" in {vhost!r}"


def _entries(message_list: MessageList) -> list[Entry]:
    found = message_list.ready.in_memory()
    for page in message_list.ready.waiting_pages():
        data = message_list.queue.vhost.log.read_page(int(page.segment), int(page.offset), int(page.size))
        for item in page.load(data) if data is not None else []:
            found += _singles(item)
    return sorted(found, key=lambda entry: entry.position)


def _singles(item: Entry | MessageBatch) -> list[Entry]:
    if isinstance(item, MessageBatch):
        return [item.entry(index) for index in range(int(item.taken), int(item.buffer.count))]
    return [item]


def _message(entry: Entry, vhost: str) -> Message:
    key, middle = entry.key, 1 + entry.key[0]
    exchange = key[1:middle].decode("utf-8", "surrogateescape")
    routing_key = key[middle + 1 : middle + 1 + key[middle]].decode("utf-8", "surrogateescape")
    content = entry.shown()
    return read_message(content, exchange, routing_key, vhost=vhost, redelivered=entry.redelivered)
