"""A queue as RabbitMQ's HTTP API shows it. docs/reference/lists-counters-rates.md tells which values are estimates."""

from __future__ import annotations

from typing import Final

from leveret.broker.queues.census import Census
from leveret.broker.queues.priority import PriorityQueue
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.queue_types import QUORUM, STREAM, queue_type
from leveret.control.node import BrokerNode
from leveret.control.pid import pid_of
from leveret.control.tables import plain_table
from leveret.control.views.connection import peer_details
from leveret.control.views.consumer import consumer_view
from leveret.control.views.rates import MESSAGES, rates, stats_of, with_rates
from leveret.control.views.view import View

# approximate memory of a queue without its messages
QUEUE_OCTETS: Final = 3000


def queue_view(node: BrokerNode, queue: Queue) -> View:
    """Return an item of list_queues."""
    now_us = node.host.now_us()
    queue.consumers.count_deliveries()
    queue.vhost.tally.count_publishes()
    ready, unacked = int(queue.count()), int(queue.outstanding())
    messages = (ready + unacked, ready, unacked)
    counted = queue.counters.values()
    speeds = rates(queue.counters, now_us, counted + messages)
    kind, effect = queue_type(queue.arguments), queue.effect
    view: View = {
        "name": queue.name,
        "vhost": queue.vhost.name,
        "type": kind,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner is not None,
        "arguments": plain_table(queue.arguments) if queue.arguments else {},
        "node": node.name,
        "state": "running",
        "policy": effect.policy or None,
        "operator_policy": effect.operator_policy or None,
        "effective_policy_definition": plain_table(effect.settings) if effect.settings else {},
        "consumers": int(queue.consumers.count),
        "head_message_timestamp": None,
    }
    view |= with_rates(MESSAGES, messages, speeds[len(counted) :])
    stats = stats_of(counted, speeds[: len(counted)])
    if stats:
        view["message_stats"] = _of_queue(stats)
    view |= figures(queue, ready, unacked)
    view |= _consumption(queue, ready)
    view["owner_pid"] = pid_of(node, queue.owner.number) if queue.owner is not None else ""
    if queue.owner is not None:
        view["owner_pid_details"] = peer_details(queue.owner)
    if kind == QUORUM:
        view |= _quorum(node, queue, view["single_active_consumer_tag"])
    elif kind == STREAM:
        view |= _replicas(node) | {"readers": {node.name: int(queue.consumers.count)}}
    else:
        view |= _classic(queue, ready)
    return view


def queue_details(node: BrokerNode, queue: Queue) -> View:
    """Return the item of list_queues with the queue's consumers, for get_queue."""
    view = queue_view(node, queue)
    view["consumer_details"] = [consumer_view(node, consumer) for consumer in queue.consumers.all()]
    # RabbitMQ has statistics for each channel and each exchange here when its rates_mode is "detailed"
    view["deliveries"] = []
    view["incoming"] = []
    return view


def _of_queue(stats: View) -> View:
    """Remove the counts that only concern publishers."""
    for name in ("confirm", "return_unroutable", "drop_unroutable"):
        stats.pop(name, None)
        stats.pop(f"{name}_details", None)
    return stats


def figures(queue: Queue, ready: int, unacked: int) -> View:
    """Return the sizes of its messages, estimated without looking at each message."""
    if ready == 0 and unacked == 0:
        return _NOTHING
    census = Census(queue)
    octets_ready, octets_unacked = int(census.octets), int(census.octets_unacked)
    persistent = int(census.persistent) + int(census.persistent_unacked)
    in_memory = ready - int(census.on_disk)
    mean = octets_ready / ready if ready else 0.0
    share = persistent / (ready + unacked)
    return {
        "memory": QUEUE_OCTETS + int(census.memory_octets),
        "message_bytes": octets_ready + octets_unacked,
        "message_bytes_ready": octets_ready,
        "message_bytes_unacknowledged": octets_unacked,
        "message_bytes_ram": octets_ready + octets_unacked - round(mean * int(census.on_disk)),
        "message_bytes_persistent": round((octets_ready + octets_unacked) * share),
        "message_bytes_paged_out": round(mean * int(census.on_disk)),
        "messages_ram": in_memory + unacked,
        "messages_ready_ram": in_memory,
        "messages_unacknowledged_ram": unacked,
        "messages_persistent": persistent,
        "messages_paged_out": int(census.on_disk),
    }


_NOTHING: Final[View] = {
    "memory": QUEUE_OCTETS,
    "message_bytes": 0,
    "message_bytes_ready": 0,
    "message_bytes_unacknowledged": 0,
    "message_bytes_ram": 0,
    "message_bytes_persistent": 0,
    "message_bytes_paged_out": 0,
    "messages_ram": 0,
    "messages_ready_ram": 0,
    "messages_unacknowledged_ram": 0,
    "messages_persistent": 0,
    "messages_paged_out": 0,
}


def _consumption(queue: Queue, ready: int) -> View:
    """Return the consumer fields; capacity and utilisation are those of this moment, not averages."""
    consumers = queue.consumers
    only = consumers.only
    capacity = 0 if consumers.count == 0 else 1.0 if ready == 0 else 0.0
    return {
        "consumer_capacity": capacity,
        "consumer_utilisation": capacity,
        "exclusive_consumer_tag": only.tag if only is not None and only.is_exclusive else None,
        "single_active_consumer_tag": only.tag if only is not None and consumers.has_active else None,
    }


def _classic(queue: Queue, ready: int) -> View:
    mode = str(queue.arguments.get("x-queue-mode", "default"))
    status: View = {"mode": mode, "version": 1, "len": ready}
    if isinstance(queue, PriorityQueue):
        lengths = {str(priority): 0 for priority in range(int(queue.max_priority) + 1)}
        for message_list in queue.message_lists:
            lengths[str(int(message_list.index))] = int(message_list.ready.count())
        status["priority_lengths"] = lengths
    keys = queue.limits.keys if queue.limits is not None else None
    if keys is not None:
        status["message_deduplication_cache_info"] = {"bytes": keys.octets(), "entries": keys.count()}
    return {"backing_queue_status": status, "recoverable_slaves": None}


def _replicas(node: BrokerNode) -> View:
    nodes = [node.name]
    return {"leader": node.name, "members": nodes, "online": nodes}


def _quorum(node: BrokerNode, queue: Queue, tag: str | None) -> View:
    return _replicas(node) | {
        "open_files": {node.name: 0},
        "messages_dlx": int(queue.undeliverable_count()),
        "message_bytes_dlx": int(queue.undeliverable.octets) if queue.undeliverable is not None else 0,
        "single_active_consumer_ctag": tag,  # RabbitMQ's name for it in quorum queues
    }
