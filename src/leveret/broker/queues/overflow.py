"""Queues at their limits: new messages are refused, or old ones dropped or dead-lettered. Duplicates are dropped, too.

RabbitMQ's queues deliver first and then check their limits, after each message and after each batch of requeued ones.
So a queue with limits does not wait for the end of the turn as others do, but is served around each publish; so is a
queue that gets a message with a time to live of 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchanges.route import QUEUES_MAX, Route
from leveret.broker.messages.entry import Entry
from leveret.broker.queues.limits import body_octets
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.queue_keys import KeyOwner
from leveret.session.confirms import HANDLED, REFUSED

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost


# how many messages are dropped from one queue at once
TRIM_MAX: Final[i64] = 512


def accept(
    vhost: VHost, route: Route, content: bytes, persistent: bool, ttl_us: i64, now_us: i64, moved: Entry | None
) -> i64:
    """Do what VHost.accept does, for a route with a limited queue. REFUSED if one queue refuses; the others take it.

    A queue that has a message with the same deduplication key does not take it. That is no refusal: the publisher's
    message is in the queue. (RabbitMQ with the plugin sends basic.nack, as for a full queue.)
    """
    if len(route.queues) > QUEUES_MAX:
        return _accept_in_parts(vhost, route, content, persistent, ttl_us, now_us, moved)
    refusing = refusing_queues(vhost, route, content, now_us)
    for queue in refusing:
        if queue.limits is not None and queue.limits.dead_letters_refused:
            queue.refused.append(Entry(queue.message_list, content, route.key, 0, 0, 0))
            vhost.over.append(queue)
    taking = [queue for queue in route.queues if queue not in refusing]
    owners: list[KeyOwner] | None = None
    if route.has_keys:
        owners = duplicated(taking, content, now_us)
    standing = vhost.accept(route.unlimited(taking), content, persistent, ttl_us, now_us, moved)
    if owners and persistent and moved is None and standing == HANDLED:
        standing = _standing_of(vhost, owners)
    for queue in taking:
        if queue.limits is not None:
            queue.serve(now_us)
            vhost.over.append(queue)
    trim(vhost, now_us)
    # a dead letter has no publisher; its queue needs to know whether it has left
    return REFUSED if refusing and moved is None else standing


def duplicated(queues: list[Queue], content: bytes, now_us: i64) -> list[KeyOwner]:
    """Remove the queues in which a message would be a duplicate, and return the messages whose duplicate it is.

    RabbitMQ checks the length first, and so does the caller.
    """
    owners: list[KeyOwner] = []
    index: i64 = len(queues) - 1
    while index >= 0:
        limits = queues[index].limits
        owner = limits.keys.owner(content, now_us) if limits is not None and limits.keys is not None else None
        if owner is not None:
            owners.append(owner)
            del queues[index]
        index -= 1
    return owners


def _standing_of(vhost: VHost, owners: list[KeyOwner]) -> i64:
    """Return the state of a duplicate's confirm: it waits until the first copy is on disk."""
    log = vhost.log
    if not any(owner.id >= log.safe_below for owner in owners):
        return HANDLED
    log.events += 1  # a transaction's commit waits for it, too
    return log.standing()


def _accept_in_parts(
    vhost: VHost, route: Route, content: bytes, persistent: bool, ttl_us: i64, now_us: i64, moved: Entry | None
) -> i64:
    """Do the same for very many queues: a journal record must not name all of them."""
    standing = HANDLED
    for at in range(0, len(route.queues), QUEUES_MAX):
        part = route.to(route.queues[at : at + QUEUES_MAX])
        accepted = vhost.accept(part, content, persistent, ttl_us, now_us, moved if standing == HANDLED else None)
        if accepted != HANDLED and standing != REFUSED:
            standing = accepted
    return standing


def refusing_queues(vhost: VHost, route: Route, content: bytes, now_us: i64) -> list[Queue]:
    """Return the queues of the route that have no room for this message and refuse it."""
    found: list[Queue] = []
    if not route.is_limited:
        return found
    size = body_octets(content)
    for queue in route.queues:
        limits = queue.limits
        if limits is None:
            continue
        if queue.is_touched:
            trim(vhost, now_us)
            queue.serve(now_us)
        if limits.refuses_one(queue.count(), size):
            found.append(queue)
    return found


def expire_untaken(vhost: VHost, queues: list[Queue], now_us: i64) -> None:
    """Deliver messages with a time to live of 0 to a consumer that can take them now; all others expire."""
    for queue in queues:
        if not queue.is_schedule and not queue.is_stream:
            queue.serve(now_us)
            vhost.over.append(queue)
    trim(vhost, now_us)


def trim(vhost: VHost, now_us: i64) -> None:
    """Dead-letter or drop what the queues in vhost.over have no room for. Queues that overflow by this follow."""
    if vhost.is_trimming:
        return  # the running loop handles them: recursion could become too deep with long chains of queues
    vhost.is_trimming = True
    try:
        while vhost.over:
            over = vhost.over
            vhost.over = []
            for queue in over:
                if not queue.is_deleted:
                    _trim_queue(vhost, queue, now_us)
    finally:
        vhost.is_trimming = False


def _trim_queue(vhost: VHost, queue: Queue, now_us: i64) -> None:
    spent = queue.spent
    if spent:
        queue.spent = []
        for entry in spent:
            vhost.dead_letter(queue, entry, "delivery_limit", now_us)
    refused = queue.refused
    if refused:
        queue.refused = []
        for entry in refused:
            vhost.dead_letter(queue, entry, "maxlen", now_us)
    limits = queue.limits
    room = TRIM_MAX
    while limits is not None and not limits.refuses and limits.is_over(queue.count()):
        head = queue.peek()
        if head is None:
            break
        if room == 0:
            queue.wake(now_us)  # a policy has cut it short: the others want their turn
            break
        room -= 1
        queue.drop_head(head)
        vhost.dead_letter(queue, head, "maxlen", now_us)
    # a message with a time to live of 0 that no consumer took must not count against the next one
    vhost.expire_due(queue, now_us)
