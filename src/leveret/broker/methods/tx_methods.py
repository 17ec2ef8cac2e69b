"""tx.select, tx.commit and tx.rollback, with RabbitMQ's meaning and error texts (3.10.8, measured).

All journal records of a commit are written within one turn, so they are in one batch, and a batch is replayed
completely or not at all: that makes a commit atomic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.channel import BrokerChannel
from leveret.broker.messages.unroutable import return_message
from leveret.broker.methods.basic_methods import REJECTIONS, check_returnable, entries_of, put_away
from leveret.broker.methods.queue_methods import fail
from leveret.broker.methods.transaction import ACK, REQUEUE, HeldPublish, HeldSettlement, Transaction
from leveret.broker.queues.acknowledgement import settle
from leveret.broker.queues.overflow import expire_untaken
from leveret.broker.streams.numbers import accept_numbered
from leveret.session.confirms import HANDLED, REFUSED
from leveret.wire import grammar
from leveret.wire.errors import PRECONDITION_FAILED
from leveret.wire.method import Method

if TYPE_CHECKING:
    from leveret.broker.peer import Peer


def select(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """Handle tx.select; a second one changes nothing."""
    if channel.confirms is not None:
        raise fail(method, PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
    if channel.staging is not None:
        raise fail(method, PRECONDITION_FAILED, "cannot switch a channel that is attached to a stage to tx mode")
    if channel.tx is None:
        channel.tx = Transaction()
        channel.is_kept_back = True
    peer.send(channel.number, grammar.TX_SELECT_OK)


def commit(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """Handle tx.commit: first publishes, then settlements; the answer waits for the sync of what is journalled.

    If a queue has no room for a message, the rest of the commit is done, and the channel is closed with 406.
    """
    for held in channel.tx.settlements if channel.tx is not None else []:
        if held.kind != ACK:
            check_returnable([delivery for _, delivery in held.deliveries], method, REJECTIONS)
    done = _end(channel, method)
    log = peer.broker.log
    events = log.events
    is_refused = False
    for publish in done.publishes:
        is_refused |= _enqueue(peer, channel, publish)
    for settlement in done.settlements:
        _settle(peer, channel, settlement)
    if log.events > events:
        peer.hold_until_synced()
    if is_refused:
        raise fail(method, PRECONDITION_FAILED, "partial tx completion")
    peer.send(channel.number, grammar.TX_COMMIT_OK)


def rollback(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """Handle tx.rollback: settled deliveries are unacknowledged again, but not redelivered."""
    _end(channel, method).release(channel.unacked)
    peer.send(channel.number, grammar.TX_ROLLBACK_OK)


def _end(channel: BrokerChannel, method: Method) -> Transaction:
    """Return the channel's transaction, after beginning the next one."""
    ended = channel.tx
    if ended is None:
        raise fail(method, PRECONDITION_FAILED, "channel is not transactional")
    channel.tx = Transaction()
    return ended


def _enqueue(peer: Peer, channel: BrokerChannel, publish: HeldPublish) -> bool:
    """Publish a held message; True if a queue had no room for it."""
    vhost, route = peer.vhost, publish.route
    if route.generation != vhost.generation:
        # As in RabbitMQ, a publish passes exchanges at once, but queues are looked up now, by their names.
        held = [queue for queue in route.queues if queue.is_schedule and not queue.is_deleted]
        names = route.keys if route.exchange is None else [q.name for q in route.queues if not q.is_schedule]
        route = route.to([vhost.queues[name] for name in dict.fromkeys(names) if name in vhost.queues] + held)
    if publish.number is not None:
        how = publish.content, publish.persistent, publish.ttl_us, publish.number
        return accept_numbered(peer, channel, route, *how, HANDLED) == REFUSED
    peer.count(channel, route)
    if route.queues:
        standing = vhost.accept(route, publish.content, publish.persistent, publish.ttl_us, peer.now_us)
        if publish.ttl_us == 0 or route.is_brief:
            expire_untaken(vhost, route.queues, peer.now_us)
        return standing == REFUSED
    return_message(peer, channel, route, publish.content)
    return False


def _settle(peer: Peer, channel: BrokerChannel, settlement: HeldSettlement) -> None:
    settlement.deliveries.sort()
    channel.unacked.count -= len(settlement.deliveries)  # it includes held ones
    entries = entries_of(channel, [delivery for _, delivery in settlement.deliveries])
    if settlement.kind == ACK:
        if channel.limit != 0:
            peer.touch_consumed(channel)
        for entry in entries:
            settle(peer, channel, entry)
        channel.line_up()
    else:
        put_away(peer, channel, entries, settlement.kind == REQUEUE)
