"""A channel as RabbitMQ's HTTP API shows it."""

from __future__ import annotations

from leveret.broker.channel import BrokerChannel
from leveret.broker.peer import Peer
from leveret.control.node import BrokerNode
from leveret.control.pid import pid_of
from leveret.control.tables import sayable
from leveret.control.views.connection import NOBODY, peer_details
from leveret.control.views.consumer import consumer_view
from leveret.control.views.rates import rates, stats_of
from leveret.control.views.view import View


def channel_view(node: BrokerNode, peer: Peer, channel: BrokerChannel) -> View:
    """Return an item of list_channels."""
    confirms, held = channel.confirms, channel.tx
    if confirms is not None:
        channel.counters.confirm = confirms.confirmed()
    for consumer in channel.consumers.values():
        consumer.count()
    values = channel.counters.values()
    view: View = {
        "pid": pid_of(node, peer.number, int(channel.number)),
        "connection": pid_of(node, peer.number),
        "name": f"{peer.name} ({int(channel.number)})",
        "number": int(channel.number),
        "vhost": peer.vhost.name,
        "user": peer.user or NOBODY,
        "user_who_performed_action": peer.user or NOBODY,
        "node": node.name,
        "connection_details": peer_details(peer),
        "state": "running",
        "consumer_count": len(channel.consumers),
        "confirm": confirms is not None,
        "transactional": held is not None,
        "prefetch_count": channel.default_limit,
        "global_prefetch_count": int(channel.limit),
        "messages_unacknowledged": int(channel.unacked.count),
        "messages_unconfirmed": int(confirms.published - confirms.answered) if confirms is not None else 0,
        "messages_uncommitted": len(held.publishes) if held is not None else 0,
        "acks_uncommitted": len(held.held()) if held is not None else 0,
        "pending_raft_commands": 0,
        "reply_to_consumer_tag": sayable(channel.reply.tag) if channel.reply is not None else None,
        "reply_to_delivered": int(channel.reply_to_delivered),
        "reply_to_dropped": int(channel.reply_to_dropped),
    }
    if channel.unacked.count:
        view["oldest_unacknowledged_ms"] = _age_ms(channel, node.host.now_us())
    stats = stats_of(values, rates(channel.counters, node.host.now_us(), values))
    if stats:
        view["message_stats"] = stats
    return view


def _age_ms(channel: BrokerChannel, now_us: int) -> int:
    """Return the minimum age of the oldest unacknowledged delivery; delivery times are only sampled
    (ack_timeout.py)."""
    oldest = int(channel.unacked.first_tag())
    noted_us = next((us for tag, us in channel.notes if tag > oldest), now_us)
    return (now_us - noted_us) // 1000


def channel_details(node: BrokerNode, peer: Peer, channel: BrokerChannel) -> View:
    """Return the item of list_channels with the channel's consumers, for get_channel."""
    view = channel_view(node, peer, channel)
    consumers = channel.consumers.values()
    view["consumer_details"] = [consumer_view(node, consumer) for consumer in consumers]
    # RabbitMQ has statistics for each queue and each exchange here when its rates_mode is "detailed"
    view["deliveries"] = []
    view["publishes"] = []
    return view
