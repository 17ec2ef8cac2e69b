"""Applies a queue's effective arguments: those of its declaration combined with policies."""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.dead_letters.undeliverable import Undeliverable
from leveret.broker.delayed.levels import level_of
from leveret.broker.policies import Effect
from leveret.broker.queues.ack_timeout import given_timeout_ms
from leveret.broker.queues.limits import limits_of
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.queue_keys import QueueKeys
from leveret.broker.queues.queue_types import is_at_least_once, queue_type
from leveret.broker.streams.limits import stream_limits
from leveret.broker.streams.stream import Stream
from leveret.wire.table import Value


def configure(queue: Queue, effect: Effect) -> None:
    """Set what follows from a queue's arguments and policies, without examining its messages."""
    queue.effect = effect
    arguments = effect.on(queue.arguments, queue_type(queue.arguments))
    ttl, idle, limit = arguments.get("x-message-ttl"), arguments.get("x-expires"), arguments.get("x-delivery-limit")
    exchange, key = arguments.get("x-dead-letter-exchange"), arguments.get("x-dead-letter-routing-key")
    queue.ttl_us = ttl * 1000 if isinstance(ttl, int) else -1
    queue.idle_us = idle * 1000 if isinstance(idle, int) else 0
    queue.delivery_limit = limit if isinstance(limit, int) else -1
    queue.counts_returns = queue.is_quorum or queue.delivery_limit >= 0
    queue.dead_letter_exchange = exchange if isinstance(exchange, str) else None
    queue.dead_letter_key = key if isinstance(key, str) else None
    if isinstance(queue, Stream):
        queue.kept = stream_limits(arguments)
    else:
        queue.level = level_of(queue.name, arguments)
        queue.limits = limits_of(arguments, _keys(queue, arguments))
    queue.keeps_undeliverable = queue.level is not None or is_at_least_once(arguments)
    if queue.keeps_undeliverable and queue.undeliverable is None:
        queue.undeliverable = Undeliverable(queue)
    queue.timeout_ms = given_timeout_ms(arguments)
    queue.vhost.ack_timeout.allow_for(queue.timeout_ms)


def _keys(queue: Queue, arguments: dict[str, Value]) -> QueueKeys | None:
    """Return the deduplication keys of a queue, those that it has or new ones; None if it takes duplicates.

    A level of a delay layout does: messages pass it, whatever a policy for all queues says.
    """
    keys = queue.limits.keys if queue.limits is not None else None
    if arguments.get("x-message-deduplication") is not True or queue.level is not None:
        queue.forget_keys()
        return None
    return keys if keys is not None else QueueKeys()


def reconfigure(queue: Queue, effect: Effect, now_us: i64) -> None:
    """Apply other policies or arguments to a queue in use.

    As in RabbitMQ, a new length limit applies at once, the time of x-expires restarts, and messages keep the TTL with
    which they arrived.
    """
    vhost, before = queue.vhost, queue.limits
    configure(queue, effect)
    if queue.limits is not None:
        is_known = before is not None and (before.octets_max >= 0 or queue.limits.octets_max < 0)
        queue.limits.octets = before.octets if before is not None and is_known else queue.body_octets()
        vhost.over.append(queue)
    if queue.undeliverable is not None:
        queue.undeliverable.recount()
    queue.idle_timer_us = 0  # it fires in vain
    vhost.used(queue, now_us)
