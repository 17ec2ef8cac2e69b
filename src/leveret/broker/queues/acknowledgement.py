"""basic.ack: settles one delivery or several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.channel import BrokerChannel
from leveret.broker.messages.entry import Entry
from leveret.broker.methods.basic_methods import check_tag, unknown_tag
from leveret.broker.methods.transaction import ACK
from leveret.broker.queues.batch_delivery import BatchDelivery
from leveret.broker.queues.consumer import Consumer
from leveret.broker.queues.message_list import MessageList
from leveret.broker.streams.read import Read
from leveret.session.unacked import Delivery

if TYPE_CHECKING:
    from leveret.broker.peer import Peer

# how many messages one acknowledgement may settle in one turn
ACKED_MAX: Final[i64] = 16384


def acknowledge(peer: Peer, channel: BrokerChannel, tag: i64, multiple: bool) -> None:
    """Settle a delivery, or all up to it. Sets peer.is_unfinished if that takes another turn."""
    if channel.tx is not None:
        check_tag(channel, int(tag), multiple, 80)
        channel.tx.settle(channel.unacked, int(tag), multiple, ACK, 80)
        return
    if channel.limit != 0:
        peer.touch_consumed(channel)  # before the message is settled, or its queue would be served first
    if multiple:
        peer.is_unfinished = not _acknowledge_many(peer, channel, tag)
    else:
        found = channel.unacked.take(tag)
        if found is None:
            raise unknown_tag(int(tag), 80)
        _acknowledged(peer, channel, found, tag, 1)
    if channel.stirred or channel.limit != 0:
        channel.line_up()


def settle(peer: Peer, channel: BrokerChannel, entry: Entry) -> None:
    """Settle an acknowledged delivery."""
    limits = entry.message_list.queue.limits
    if limits is not None:
        limits.left(entry)
    _settle(peer, channel, entry.consumer, entry.message_list, entry.id, 1)


def _acknowledge_many(peer: Peer, channel: BrokerChannel, tag: i64) -> bool:
    """Settle deliveries up to this tag (0 = all so far), as many as one turn may; return False if some are left."""
    unacked, stop = channel.unacked, channel.acked_to
    if stop == 0:
        check_tag(channel, int(tag), True, 80)
        stop = tag if tag != 0 else channel.next_tag - 1  # deliveries of later turns are not meant
    left = ACKED_MAX
    found, first, count = unacked.take_next(stop)
    while found is not None:
        _acknowledged(peer, channel, found, first, count)
        left -= count
        if left <= 0:
            break
        found, first, count = unacked.take_next(stop)
    unacked.compact()
    channel.acked_to = 0 if found is None else stop
    return found is None


def _acknowledged(peer: Peer, channel: BrokerChannel, found: Delivery, tag: i64, count: i64) -> None:
    if isinstance(found, Entry):
        settle(peer, channel, found)
    elif isinstance(found, BatchDelivery):
        _settle(peer, channel, found.consumer, found.run.message_list, found.id(tag), count)
    else:
        assert isinstance(found, Read)
        found.settle(channel)


def _settle(
    peer: Peer, channel: BrokerChannel, consumer: Consumer | None, message_list: MessageList, id: i64, count: i64
) -> None:
    channel.settled(consumer, count)
    queue = message_list.queue
    queue.unacked -= count
    queue.counters.ack += count
    channel.counters.ack += count
    if not queue.is_touched and not queue.is_deleted:
        queue.touch()
    # also for entries of a deleted queue, so that their journal file can be deleted
    if id != 0:
        peer.broker.log.settle(message_list, id, count)
