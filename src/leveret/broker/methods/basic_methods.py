"""basic.*, confirm.* and channel.flow, apart from publish and ack (AMQP 0-9-1 reference; RabbitMQ's texts)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.access.quotas import check_consumers
from leveret.broker.channel import BrokerChannel
from leveret.broker.counters import Counters
from leveret.broker.messages.carbon_copies import split_key
from leveret.broker.messages.content import POSITIONS, write_content
from leveret.broker.messages.contents import HEADER_AT, header_of
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.returned import Returned, with_delivery_count
from leveret.broker.methods import publisher_methods, stage_methods
from leveret.broker.methods.answers import send_json
from leveret.broker.methods.arguments import refused_of_consumer, typed
from leveret.broker.methods.pseudo_queues import ANSWERS, answer
from leveret.broker.methods.queue_methods import check_queue, fail, find, last_declared
from leveret.broker.methods.transaction import REJECT, REQUEUE
from leveret.broker.names import PUBLISHER, REPLY_PREFIX, REPLY_TO, STAGE, generated
from leveret.broker.queues.ack_timeout import given_timeout_ms
from leveret.broker.queues.consumer import Consumer
from leveret.broker.queues.overflow import trim
from leveret.broker.queues.queue import EXPIRED_MAX, Queue
from leveret.broker.queues.requeue_job import requeue
from leveret.broker.streams.filter import filter_of
from leveret.broker.streams.naming import NAME, SINGLE, Named, refused_name
from leveret.broker.streams.offsets import TIMESTAMP, offset_spec
from leveret.broker.streams.read import Read
from leveret.broker.streams.reader import ARRIVED, Reader
from leveret.broker.streams.stream import Stream
from leveret.session.confirms import Confirms
from leveret.session.unacked import Delivery
from leveret.wire import grammar
from leveret.wire.errors import (
    ACCESS_REFUSED,
    CONNECTION_FORCED,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    ProtocolError,
)
from leveret.wire.method import Method
from leveret.wire.table import Value

# how many messages one basic.nack may reject in one turn
REJECTED_MAX: Final[i64] = 1024
# the methods that a stream does not support, as RabbitMQ's error text names them
REJECTIONS: Final = "basic.nack and basic.reject"

if TYPE_CHECKING:
    from leveret.broker.peer import Peer


def qos(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """basic.qos: with global, a limit for the whole channel, else for each later consumer (as in RabbitMQ).

    A later call without global removes the channel's limit, so a channel that wants both must set its own limit last.
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
    name = method.text("queue") or last_declared(channel, method)
    if tag in channel.consumers:
        raise fail(method, NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    check_consumers(peer, channel, method)
    tag = tag or generated("amq.ctag-", peer.broker.random_bytes)
    facts: dict[str, Value] = {}
    if name == REPLY_TO:
        _consume_replies(peer, channel, method, tag)
    elif name == STAGE:
        stage_methods.attach(peer, channel, method, tag)
    elif name == PUBLISHER:
        facts = publisher_methods.attach(peer, channel, method, tag)
    else:
        _consume_queue(peer, channel, method, tag)
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.BASIC_CONSUME_OK, consumer_tag=tag)
    if facts:
        send_json(peer, channel, grammar.BASIC_DELIVER, PUBLISHER, facts, consumer_tag=tag)


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
    types = typed(method.tables["arguments"])
    refused = refused_of_consumer(arguments, types, what, queue.arguments) if arguments else ""
    if isinstance(queue, Stream):
        refused = refused or refused_name(queue, arguments, types)
    if refused:
        raise fail(method, PRECONDITION_FAILED, refused)
    if queue.is_stream:
        _check_credit(channel, method, what)
        exclusive = False  # everybody may read it
    if (queue.is_quorum or queue.is_stream) and channel.limit != 0:
        raise fail(method, NOT_IMPLEMENTED, f"{what} does not support global qos")
    is_link = arguments.get(POSITIONS) is True and not method.flag("no_ack")
    if is_link:
        _take_over(peer, method, queue, what)
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
    if is_link:
        consumer.epochs = peer.broker.epochs
        channel.must_cut = True
    if isinstance(queue, Stream):
        consumer.reader = _reader(peer, consumer, queue, types)
        channel.reads_streams = True
    channel.consumers[tag] = consumer
    queue.consumers.add(consumer)
    if not queue.is_touched:
        queue.touch()


def _check_credit(channel: BrokerChannel, method: Method, what: str) -> None:
    """Require prefetch and acknowledgements of a stream's consumer: they are its credit."""
    if channel.default_limit == 0:
        raise fail(method, PRECONDITION_FAILED, f"consumer prefetch count is not set for '{what}'")
    if method.flag("no_ack"):
        text = f"automatic acknowledgement not supported by stream queues {what}"
        raise fail(method, NOT_IMPLEMENTED, text)


def _reader(peer: Peer, consumer: Consumer, stream: Stream, types: dict[str, bytes]) -> Reader:
    """Return a reader that begins at the stored offset of its name, or else at its x-stream-offset."""
    spec = offset_spec(types.get("x-stream-offset"), peer.vhost.timeline.wall_us(peer.now_us))
    assert spec is not None  # it was checked
    reader = Reader(consumer, stream, stream.begin(spec), spec.value if spec.kind == TIMESTAMP else 0)
    reader.filter = filter_of(types)
    reader.tells_arrival = consumer.arguments.get(ARRIVED) is True
    name = consumer.arguments.get(NAME)
    if isinstance(name, str):
        reader.named = Named(reader, name, consumer.arguments.get(SINGLE) is True)
        if reader.named.is_new:
            peer.hold_until_synced()  # from here on it misses nothing, whatever happens
    return reader


def _take_over(peer: Peer, method: Method, queue: Queue, what: str) -> None:
    """Close the older connections of a link that consumes again; they may not have noticed yet that they are dead.

    Their unacknowledged messages return to their places before the first delivery to the new consumer. A link expects
    positions in order: it would otherwise take a message that it never got for one that it has.
    """
    for older in queue.consumers.all():
        if older.epochs is not None:
            if older.connection is peer:
                raise fail(method, ACCESS_REFUSED, f"{what} in exclusive use")
            older.connection.now_us = peer.now_us
            older.connection.close(CONNECTION_FORCED, f"another connection has taken over {what}")
    if queue.is_deleted:
        raise fail(method, NOT_FOUND, f"no queue '{queue.name}' in vhost '{peer.vhost.name}'")


def cancel(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """basic.cancel; succeeds for an unknown consumer tag, too."""
    tag = method.text("consumer_tag")
    consumer = channel.consumers.pop(tag, None)
    if consumer is not None:
        queue = consumer.queue
        if queue is not None and consumer.unacked > 0 and not queue.is_stream:
            channel.leave(queue)
        peer.vhost.remove_consumer(consumer, peer.now_us)
    elif channel.reply is not None and channel.reply.tag == tag:
        peer.vhost.forget_reply(channel)
    elif channel.staging is not None and channel.staging.tag == tag:
        stage_methods.detach(channel)
    elif channel.publisher is not None and channel.publisher.tag == tag:
        channel.publisher.detach(peer.now_us)
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.BASIC_CANCEL_OK, consumer_tag=tag)


def get(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """basic.get, from a queue or from a pseudo-queue."""
    if method.text("queue").startswith(ANSWERS):
        answer(peer, channel, method)
        return
    queue = find(peer, method, channel)
    check_queue(method, queue, "basic.get")
    vhost = peer.vhost
    vhost.used(queue, peer.now_us)
    if queue.awaiting != 0:
        peer.is_unfinished = True
        return
    entry = queue.peek(True)
    room = EXPIRED_MAX
    while entry is not None and entry.expires_us != 0 and entry.expires_us <= peer.now_us:
        if room == 0:
            peer.is_unfinished = True
            return
        room -= 1
        queue.drop_head(entry)
        vhost.expire(queue, entry)
        entry = queue.peek(True)
    if entry is None and queue.count() > 0:
        peer.is_unfinished = True  # it is being read from disk
        return
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
    content = entry.shown()
    body_at: i64 = 0
    if queue.counts_returns and not isinstance(entry, Returned):
        body_at = HEADER_AT + len(header_of(content)) + 1
        header = with_delivery_count(content[:body_at], 0)
        write_content(peer.output, header, channel.number, peer.frame_max)
    write_content(peer.output, content, channel.number, peer.frame_max, body_at)
    if vhost.tracing is not None:
        vhost.tracing.delivered(peer, int(channel.number), queue, entry)
    _count_get(queue.counters, method.flag("no_ack"), entry.redelivered)
    _count_get(channel.counters, method.flag("no_ack"), entry.redelivered)
    if method.flag("no_ack"):
        if queue.limits is not None:
            queue.limits.left(entry)
        if entry.id:
            vhost.log.settle(entry.message_list, entry.id)
    else:
        channel.leave(queue)
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
    """basic.reject: requeue or dead-letter one delivery."""
    _reject(peer, channel, method, False)


def nack(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """basic.nack: RabbitMQ's reject with `multiple`."""
    _reject(peer, channel, method, method.flag("multiple"))


def _reject(peer: Peer, channel: BrokerChannel, method: Method, multiple: bool) -> None:
    tag, requeue = method.number("delivery_tag"), method.flag("requeue")
    if channel.requeue_job is None and channel.acked_to == 0:  # 0 and None: the first turn of this method
        check_tag(channel, tag, multiple, method.spec.method_id)
    if channel.tx is not None:
        kind = REQUEUE if requeue else REJECT
        channel.tx.settle(channel.unacked, tag, multiple, kind, method.spec.method_id)
    elif not multiple:
        _reject_tag(peer, channel, tag, method)
    elif requeue:
        _requeue(peer, channel, tag, method, REJECTIONS)
    else:
        _reject_many(peer, channel, tag, method)


def _reject_tag(peer: Peer, channel: BrokerChannel, tag: int, method: Method) -> None:
    found = channel.unacked.take(tag)
    assert found is not None
    delivery = found.single(tag)
    if isinstance(delivery, Read):
        delivery.release()
        check_queue(method, delivery.reader.stream, REJECTIONS)
    assert isinstance(delivery, Entry)
    put_away(peer, channel, [delivery], method.flag("requeue"))


def _reject_many(peer: Peer, channel: BrokerChannel, tag: int, method: Method) -> None:
    """Reject deliveries up to this tag (0 = all so far), in steps: peer.is_unfinished if some are left."""
    stop = channel.acked_to
    if stop == 0:
        _check_returnable(channel, tag, method, REJECTIONS)
        stop = i64(tag) if tag != 0 else channel.next_tag - 1  # deliveries of later turns are not meant
    put_away(peer, channel, entries_of(channel, channel.unacked.take_some(stop, REJECTED_MAX)), False)
    first = channel.unacked.first_tag()
    channel.acked_to = stop if 0 < first <= stop else 0
    peer.is_unfinished = channel.acked_to != 0


def _requeue(peer: Peer, channel: BrokerChannel, tag: int, method: Method, what: str) -> bool:
    """Requeue all deliveries up to this tag (0 = all so far), in steps. Returns True once all are requeued."""
    way = channel.requeue_job
    if way is None:
        _check_returnable(channel, tag, method, what)
        stop = i64(tag) if tag != 0 else channel.next_tag - 1
        way = peer.vhost.requeue_jobs.begin(peer.vhost, channel, peer, stop, channel.sources(), peer.now_us)
    channel.requeue_job = None if way.is_over else way
    peer.is_unfinished = not way.is_over
    return way.is_over


def put_away(peer: Peer, channel: BrokerChannel, entries: list[Entry], is_requeue: bool) -> None:
    """Requeue or dead-letter rejected deliveries, oldest first."""
    if channel.limit != 0:
        peer.touch_consumed(channel)
    for entry in entries:
        channel.settled(entry.consumer, 1)
    if is_requeue:
        requeue(entries)
    else:
        for entry in entries:
            _reject_one(peer, entry)
    channel.line_up()
    trim(peer.vhost, peer.now_us)


def _reject_one(peer: Peer, entry: Entry) -> None:
    queue = entry.queue
    queue.unacked -= 1
    if queue.is_deleted:
        if entry.id:
            peer.vhost.log.forget(entry.message_list, entry.id)
        return
    peer.vhost.dead_letter(queue, entry, "rejected", peer.now_us)
    if not queue.is_touched:
        queue.touch()


def _check_returnable(channel: BrokerChannel, tag: int, method: Method, what: str) -> None:
    """Raise 540 (not implemented) if a delivery up to this tag (0 = any) was read from a stream.

    what: the methods that the error text names.
    """
    if channel.reads_streams:
        meant = [delivery for each, delivery in channel.unacked.tagged(0) if tag == 0 or each <= tag]
        check_returnable(meant, method, what)


def check_returnable(deliveries: list[Delivery], method: Method, what: str) -> None:
    """Raise 540 (not implemented) if one of these was read from a stream."""
    for delivery in deliveries:
        if isinstance(delivery, Read):
            check_queue(method, delivery.reader.stream, what)


def entries_of(channel: BrokerChannel, deliveries: list[Delivery]) -> list[Entry]:
    """Return the deliveries that came from queues; settle those that were read from a stream."""
    entries: list[Entry] = []
    for delivery in deliveries:
        if isinstance(delivery, Entry):
            entries.append(delivery)
        else:
            assert isinstance(delivery, Read)
            delivery.settle(channel)
    return entries


def check_tag(channel: BrokerChannel, tag: int, multiple: bool, method_id: int) -> None:
    """Raise 406 (precondition failed) unless the tag is unacknowledged, or 0 with `multiple`."""
    # delivery tags are always below 2^63
    if not (multiple and tag == 0) and (tag >> 63 != 0 or not channel.unacked.has(tag)):
        raise unknown_tag(tag, method_id)


def unknown_tag(tag: int, method_id: int) -> ProtocolError:
    """Return the error for the settlement of an unknown tag. Tags are unsigned, however they were read."""
    return ProtocolError(PRECONDITION_FAILED, f"unknown delivery tag {tag & 0xFFFF_FFFF_FFFF_FFFF}", 60, method_id)


def recover(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """basic.recover and recover-async: requeue all unacknowledged deliveries."""
    if not method.flag("requeue"):
        raise fail(method, NOT_IMPLEMENTED, "requeue=false")
    if _requeue(peer, channel, 0, method, "basic.recover") and method.spec is grammar.BASIC_RECOVER:
        peer.send(channel.number, grammar.BASIC_RECOVER_OK)


def confirm_select(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """confirm.select; repeated, it changes nothing, and counting goes on."""
    if channel.tx is not None:
        raise fail(method, PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = Confirms()
    if not method.flag("no_wait"):
        peer.send(channel.number, grammar.CONFIRM_SELECT_OK)


def access(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """access.request of AMQP 0-8, which some clients still send; the ticket has no meaning."""
    peer.send(channel.number, grammar.ACCESS_REQUEST_OK, ticket=1)


def flow(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """channel.flow: only active=true is supported, as in RabbitMQ; clients limit deliveries by prefetch."""
    if not method.flag("active"):
        raise fail(method, NOT_IMPLEMENTED, "active=false")
    peer.send(channel.number, grammar.CHANNEL_FLOW_OK, active=True)
