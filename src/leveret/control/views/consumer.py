"""A consumer as RabbitMQ's HTTP API shows it."""

from __future__ import annotations

from leveret.broker.peer import Peer
from leveret.broker.queues.consumer import Consumer
from leveret.control.node import BrokerNode
from leveret.control.pid import pid_of
from leveret.control.tables import plain_table
from leveret.control.views.view import View


def consumer_view(node: BrokerNode, consumer: Consumer) -> View:
    """Return an item of list_consumers."""
    queue, peer = consumer.queue, consumer.connection
    assert queue is not None
    assert isinstance(peer, Peer)
    is_single = queue.consumers.has_active
    is_active = not is_single or queue.consumers.only is consumer
    named = consumer.reader.named if consumer.reader is not None else None
    if named is not None and named.is_single:
        is_single, is_active = True, named.is_active
    return {
        "consumer_tag": consumer.tag,
        "queue": {"name": queue.name, "vhost": queue.vhost.name},
        "channel_pid": pid_of(node, peer.number, int(consumer.channel.number)),
        "channel_details": channel_details(node, peer, int(consumer.channel.number)),
        "ack_required": not consumer.no_ack,
        "active": is_active,
        "activity_status": "single_active" if is_single and is_active else "up" if is_active else "waiting",
        "exclusive": consumer.is_exclusive,
        "prefetch_count": int(consumer.limit),
        "arguments": plain_table(consumer.arguments),
    }


def channel_details(node: BrokerNode, peer: Peer, number: int) -> View:
    """Return the fields that identify a channel and its connection."""
    host, _, port = peer.address.rpartition(":")
    return {
        "name": f"{peer.name} ({number})",
        "number": number,
        "node": node.name,
        "connection_name": peer.name,
        "peer_host": host,
        "peer_port": int(port),
        "user": peer.user,
    }
