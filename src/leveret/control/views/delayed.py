"""Delayed messages in leveret's HTTP API. Times are wall clock times in milliseconds since 1970."""

from __future__ import annotations

from leveret.broker.delayed.holder import Holder
from leveret.broker.delayed.pending import Pending, PendingMessage
from leveret.broker.messages.carbon_copies import split_key
from leveret.broker.messages.contents import header_of
from leveret.broker.queues.limits import body_octets
from leveret.control.node import BrokerNode
from leveret.control.tables import sayable
from leveret.control.views.view import View
from leveret.wire.errors import ProtocolError
from leveret.wire.properties import text_property


def pending_view(node: BrokerNode, pending: Pending) -> View:
    """Return an item of list_delayed."""
    return {
        "vhost": pending.vhost,
        "layout": sayable(pending.layout),
        "type": _type(pending.is_exchange),
        "destination": sayable(pending.destination),
        "messages": int(pending.count),
        "parked": int(pending.undeliverable),
        "next_due_ms": wall_ms(node, int(pending.next_us)),
        "last_due_ms": wall_ms(node, int(pending.last_us)),
    }


def level_view(holder: Holder) -> View:
    """Return an item of list_delay_levels: a level queue, or the messages of a delayed exchange."""
    queue = holder.queue
    return {
        "vhost": queue.vhost.name,
        "layout": sayable(holder.layout),
        "type": _type(holder.level < 0),
        "level": int(holder.level) if holder.level >= 0 else None,
        "name": sayable(queue.name),
        "wait_ms": int(queue.ttl_us) // 1000 if holder.level >= 0 else None,
        "messages": int(queue.count()),
        "parked": int(holder.undeliverable_count()),
    }


def message_view(node: BrokerNode, single: PendingMessage) -> View:
    """Return an item of list_delayed_messages."""
    holder, due_us, now_us = single.part.holder, int(single.due_us), node.host.now_us()
    try:
        message_id = text_property(header_of(single.content), "message_id")
    except ProtocolError:
        message_id = None
    return {
        "vhost": holder.queue.vhost.name,
        "layout": sayable(holder.layout),
        "type": _type(holder.level < 0),
        "level": int(holder.level) if holder.level >= 0 else None,
        "message_id": None if message_id is None else sayable(message_id),
        "destination": sayable(holder.address(single.key).destination),
        "routing_key": sayable(split_key(single.key)[1]),
        "due_ms": wall_ms(node, due_us),
        "remaining_ms": max(-((now_us - due_us) // 1000), 0),
        "message_bytes": int(body_octets(single.content)),
        "state": "parked" if single.part.is_undeliverable else "pending",
    }


def _type(is_exchange: bool) -> str:
    return "exchange" if is_exchange else "levels"


def wall_ms(node: BrokerNode, time_us: int) -> int | None:
    """Convert broker time to wall clock time, rounded up as no message is early; 0 becomes None."""
    return -(-int(node.broker.timeline.wall_us(time_us)) // 1000) if time_us else None
