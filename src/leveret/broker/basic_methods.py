"""basic.*, confirm.* and channel.flow, apart from publish and ack (AMQP 0-9-1 reference; RabbitMQ's texts)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.ack_timeout import given_timeout_ms
from leveret.broker.arguments import refused_of_consumer, typed
from leveret.broker.channel import BrokerChannel
from leveret.broker.consumer import Consumer, write_content
from leveret.broker.copies import split_key
from leveret.broker.counters import Counters
from leveret.broker.entry import Entry
from leveret.broker.names import REPLY_PREFIX, REPLY_TO, generated
from leveret.broker.overflow import trim
from leveret.broker.queue_methods import fail, find, last_declared
from leveret.broker.returned import Returned, with_delivery_count
from leveret.broker.transaction import REJECT, REQUEUE
from leveret.session.confirms import Confirms
from leveret.wire import grammar
from leveret.wire.errors import (
    ACCESS_REFUSED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    ProtocolError,
)
from leveret.wire.method import Method

if TYPE_CHECKING:
    from leveret.broker.peer import Peer


def qos(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """basic.qos: global = a limit for the whole channel, else for each consumer that comes (RabbitMQ's meaning).

    To have both, the channel's must be set last: the other one lifts it.
    """
    size, count = method.number("prefetch_size"), method.number("prefetch_count")
    if size:
        raise fail(method, NOT_IMPLEMENTED, f"prefetch_size!=0 ({size})")
    if method.flag("global"):
        channel.limit = count
    else:
        channel.default_limit = count
        channel.limit = 0
    peer.touch_consumed(channel)
    peer.send(channel.number, grammar.BASIC_QOS_OK)


def consume(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """basic.consume, from a queue or from the pseudo-queue of direct reply-to."""
    tag = method.text("consumer_tag")
    if method.text("queue") == "":
        last_declared(channel, method)
    if tag in channel.consumers:
        raise fail(method, NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    tag = tag or generated("amq.ctag-", peer.broker.random_bytes)
    if method.text("queue") == REPLY_TO:
        _consume_replies(peer, channel, method, tag)
    else:
        _consume_queue(peer, channel, method, tag)
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.BASIC_CONSUME_OK, consumer_tag=tag)


def _consume_replies(peer: Peer, channel: BrokerChannel, method: Method, tag: str) -> None:
    if not method.flag("no_ack"):
        raise fail(method, PRECONDITION_FAILED, "reply consumer cannot acknowledge")
    if channel.reply is not None:
        raise fail(method, PRECONDITION_FAILED, "reply consumer already set")
    name = generated(REPLY_PREFIX, peer.broker.random_bytes)
    channel.reply = Consumer(peer, channel, None, tag, True, 0)
    channel.reply_name = name.encode()
    peer.vhost.replies[name] = channel.reply
    peer.vhost.changed()


def _consume_queue(peer: Peer, channel: BrokerChannel, method: Method, tag: str) -> None:
    queue = find(peer, method, channel)
    what = f"queue '{queue.name}' in vhost '{peer.vhost.name}'"
    arguments, exclusive = method.table("arguments"), method.flag("exclusive")
    if queue.is_quorum and channel.limit != 0:
        raise fail(method, NOT_IMPLEMENTED, f"{what} does not support global qos")
    refused = refused_of_consumer(arguments, typed(method.tables["arguments"]), what, queue.arguments)
    if refused:
        raise fail(method, PRECONDITION_FAILED, refused)
    if not queue.consumers.admits(exclusive):
        raise fail(method, ACCESS_REFUSED, f"{what} in exclusive use")
    consumer = Consumer(peer, channel, queue, tag, method.flag("no_ack"), channel.default_limit)
    consumer.is_exclusive = exclusive
    consumer.arguments = arguments
    priority = arguments.get("x-priority")
    if isinstance(priority, int):
        consumer.priority = priority
    consumer.timeout_ms = given_timeout_ms(arguments)
    peer.broker.ack_timeout.allow_for(consumer.timeout_ms)
    channel.consumers[tag] = consumer
    queue.consumers.add(consumer)
    if not queue.is_touched:
        queue.touch()


def cancel(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """basic.cancel; cancelling what is not there succeeds."""
    tag = method.text("consumer_tag")
    consumer = channel.consumers.pop(tag, None)
    if consumer is not None:
        peer.vhost.remove_consumer(consumer, peer.now_us)
    elif channel.reply is not None and channel.reply.tag == tag:
        peer.vhost.forget_reply(channel)
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.BASIC_CANCEL_OK, consumer_tag=tag)


def get(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """basic.get"""
    queue = find(peer, method, channel)
    vhost = peer.vhost
    vhost.used(queue, peer.now_us)
    entry = queue.peek()
    while entry is not None and entry.expires_us != 0 and entry.expires_us < peer.now_us:
        queue.drop_head(entry)
        vhost.expire(queue, entry)
        entry = queue.peek()
    if entry is None:
        queue.counters.get_empty += 1
        channel.counters.get_empty += 1
        peer.send(channel.number, grammar.BASIC_GET_EMPTY)
        return
    queue.drop_head(entry)
    vhost.expire_due(queue, peer.now_us)  # before it is told how many are left
    if not queue.is_touched:
        queue.touch()  # the new head may need an alarm
    tag = channel.next_tag
    channel.next_tag += 1
    exchange, key = split_key(entry.key)
    peer.send(
        channel.number,
        grammar.BASIC_GET_OK,
        delivery_tag=int(tag),
        redelivered=entry.redelivered,
        exchange=exchange,
        routing_key=key,
        message_count=int(queue.count()),
    )
    content = entry.content
    if queue.counts_returns and not isinstance(entry, Returned):
        content = with_delivery_count(content, 0)
    write_content(peer.out, content, channel.number, peer.frame_max)
    if vhost.tracing is not None:
        vhost.tracing.delivered(peer, int(channel.number), queue, entry)
    _count_get(queue.counters, method.flag("no_ack"), entry.redelivered)
    _count_get(channel.counters, method.flag("no_ack"), entry.redelivered)
    if method.flag("no_ack"):
        if entry.id:
            vhost.log.settle(entry.shelf, entry.id)
    else:
        queue.unacked += 1
        channel.unacked.add(tag, entry)
        channel.fetched += 1


def _count_get(counters: Counters, no_ack: bool, redelivered: bool) -> None:
    if no_ack:
        counters.get_no_ack += 1
    else:
        counters.get += 1
    if redelivered:
        counters.redeliver += 1


def reject(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """basic.reject: one delivery, back to its queue or to the dead letters."""
    _reject(peer, channel, method, False)


def nack(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """basic.nack: RabbitMQ's reject with `multiple`."""
    _reject(peer, channel, method, method.flag("multiple"))


def _reject(peer: Peer, channel: BrokerChannel, method: Method, multiple: bool) -> None:
    tag, requeue, method_id = method.number("delivery_tag"), method.flag("requeue"), method.spec.method_id
    if channel.tx is not None:
        check_tag(channel, tag, multiple, method_id)
        channel.tx.settle(channel.unacked, tag, multiple, REQUEUE if requeue else REJECT)
    else:
        put_away(peer, channel, take(channel, tag, multiple, method_id), requeue)


def put_away(peer: Peer, channel: BrokerChannel, entries: list[Entry], requeue: bool) -> None:
    """Rejected deliveries, oldest first, go back to their places or to the dead letters."""
    if channel.limit != 0:
        peer.touch_consumed(channel)
    for entry in reversed(entries) if requeue else entries:
        channel.settled(entry)
        if requeue:
            entry.queue.requeue(entry)
        else:
            entry.queue.unacked -= 1
            if entry.queue.is_deleted:
                if entry.id:
                    peer.vhost.log.forget(entry.shelf, entry.id)
                continue
            peer.vhost.bury(entry.queue, entry, "rejected", peer.now_us)
            if not entry.queue.is_touched:
                entry.queue.touch()
    channel.line_up()
    trim(peer.vhost, peer.now_us)


def take(channel: BrokerChannel, tag: int, multiple: bool, method_id: int) -> list[Entry]:
    """Remove and return the deliveries that a settlement names; 406 for an unknown tag (0 with multiple: all)."""
    unacked = channel.unacked
    check_tag(channel, tag, multiple, method_id)
    if multiple:
        return [entry for entry in unacked.take_until(tag) if isinstance(entry, Entry)]
    found = unacked.get(tag)
    assert isinstance(found, Entry)
    unacked.remove(tag)
    return [found]


def check_tag(channel: BrokerChannel, tag: int, multiple: bool, method_id: int) -> None:
    """406 unless a settlement names a delivery that is unacknowledged, or all of them."""
    # no delivery has a tag that does not fit into 63 bits
    if not (multiple and tag == 0) and (tag >> 63 != 0 or channel.unacked.get(tag) is None):
        raise unknown_tag(tag, method_id)


def unknown_tag(tag: int, method_id: int) -> ProtocolError:
    """The error for a settlement of what is not there. Tags are unsigned, however they were read."""
    return ProtocolError(PRECONDITION_FAILED, f"unknown delivery tag {tag & 0xFFFF_FFFF_FFFF_FFFF}", 60, method_id)


def recover(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """basic.recover and recover-async: everything unacknowledged goes back to its queue."""
    if not method.flag("requeue"):
        raise fail(method, NOT_IMPLEMENTED, "requeue=false")
    if channel.limit != 0:
        peer.touch_consumed(channel)
    for entry in reversed(take(channel, 0, True, method.spec.method_id)):
        channel.settled(entry)
        entry.queue.requeue(entry)
    channel.line_up()
    trim(peer.vhost, peer.now_us)
    if method.spec is grammar.BASIC_RECOVER:
        peer.send(channel.number, grammar.BASIC_RECOVER_OK)


def confirm_select(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """confirm.select; once more changes nothing and goes on counting."""
    if channel.tx is not None:
        raise fail(method, PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = Confirms()
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.CONFIRM_SELECT_OK)


def access(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """access.request, of AMQP 0-8: some clients still ask, and everybody gets the same ticket."""
    peer.send(channel.number, grammar.ACCESS_REQUEST_OK, ticket=1)


def flow(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """channel.flow: clients limit deliveries by prefetch, as in RabbitMQ."""
    if not method.flag("active"):
        raise fail(method, NOT_IMPLEMENTED, "active=false")
    peer.send(channel.number, grammar.CHANNEL_FLOW_OK, active=True)
