"""basic.ack: which deliveries it means, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.basic_methods import check_tag, unknown_tag
from leveret.broker.channel import BrokerChannel
from leveret.broker.consumer import Consumer
from leveret.broker.entry import Entry
from leveret.broker.message_list import MessageList
from leveret.broker.run_delivery import RunDelivery
from leveret.broker.streams.read import Read
from leveret.broker.transaction import ACK
from leveret.session.unacked import Delivery

if TYPE_CHECKING:
    from leveret.broker.peer import Peer

# how many messages one acknowledgement may settle in a turn
ACKED_MAX: Final[i64] = 16384


def acknowledge(peer: Peer, channel: BrokerChannel, tag: i64, multiple: bool) -> None:
    """Settle a delivery, or all up to it. `peer.is_unfinished` if another turn is to go on with them."""
    if channel.tx is not None:
        check_tag(channel, int(tag), multiple, 80)
        channel.tx.settle(channel.unacked, int(tag), multiple, ACK, 80)
        return
    if channel.limit != 0:
        peer.touch_consumed(channel)  # now, because the queue whose message it was would be served first
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
    """An acknowledged delivery is done with."""
    _settle(peer, channel, entry.consumer, entry.message_list, entry.id, 1)


def _acknowledge_many(peer: Peer, channel: BrokerChannel, tag: i64) -> bool:
    """Up to this tag, 0 = all that the client may know of; False if there are more than a turn may have."""
    unacked, stop = channel.unacked, channel.acked_to
    if stop == 0:
        check_tag(channel, int(tag), True, 80)
        stop = tag if tag != 0 else channel.next_tag - 1  # there may be others when the next turn comes
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
        _settle(peer, channel, found.consumer, found.message_list, found.id, 1)
    elif isinstance(found, RunDelivery):
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
    # a deleted queue's unacknowledged entries are settled here, too: their file can go
    if id != 0:
        peer.broker.log.settle(message_list, id, count)
