"""Checks of consumers: acknowledgements, prefetch, backlogs, and consumers that make no progress."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from leveret.cli.doctor.check import Check, Hit, Severity
from leveret.cli.doctor.checks.naming import object_hit, octets, span
from leveret.cli.doctor.observation import Observation, Row, count, dead_letter_way, queue_key, setting
from leveret.cli.terminal import counted

BACKLOG: Final = 1_000
UNACKED: Final = 10_000
PREFETCH_ABSURD: Final = 10_000
TIMEOUT_MS: Final = 30 * 60 * 1000
"""The default consumer_timeout of RabbitMQ and leveret; the HTTP API of neither tells the configured one."""
TIMEOUT_SHARE: Final = 0.5
REDELIVERED_PER_S: Final = 1.0


def auto_ack(seen: Observation) -> Iterator[Hit]:
    for consumer, queue in _consumers(seen):
        ready, size = count(queue, "messages_ready"), count(queue, "message_bytes")
        if not consumer.get("ack_required") and queue.get("type") != "stream" and ready >= BACKLOG:
            yield object_hit(
                "queue",
                queue,
                f"{counted(ready, 'message')} ({octets(size)}) waiting, and consumer {consumer['consumer_tag']!r} "
                "consumes without acknowledgements",
            )


def no_prefetch(seen: Observation) -> Iterator[Hit]:
    for consumer, queue in _consumers(seen):
        channel = seen.channels.get((consumer.get("channel_details") or {}).get("name", ""), {})
        if (
            consumer.get("ack_required")
            and count(consumer, "prefetch_count") == 0
            and not count(channel, "global_prefetch_count")
            and not queue.get("exclusive")
        ):
            waiting, unacked = count(queue, "messages_ready"), count(queue, "messages_unacknowledged")
            evidence = (
                f"consumer {consumer['consumer_tag']!r} has no limit; {unacked:,} unacknowledged, {waiting:,} waiting"
            )
            yield object_hit("queue", queue, evidence)


def large_prefetch(seen: Observation) -> Iterator[Hit]:
    for consumer, queue in _consumers(seen):
        prefetch = count(consumer, "prefetch_count")
        if prefetch > PREFETCH_ABSURD and queue.get("type") != "stream":
            yield object_hit(
                "queue", queue, f"consumer {consumer['consumer_tag']!r} may hold {counted(prefetch, 'message')}"
            )


def no_consumers(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        ready = count(queue, "messages_ready")
        if not ready or count(queue, "consumers") or queue.get("type") == "stream" or _is_waiting_room(queue):
            continue
        if queue_key(queue) not in seen.dead_letter_targets:
            yield object_hit("queue", queue, f"{counted(ready, 'message')} waiting, no consumer", weight=ready)


def dead_letters_wait(seen: Observation) -> Iterator[Hit]:
    for key in sorted(seen.dead_letter_targets):
        queue = seen.queues[key]
        ready = count(queue, "messages_ready")
        if ready and not count(queue, "consumers") and not _is_waiting_room(queue):
            yield object_hit("queue", queue, f"{counted(ready, 'dead letter')} waiting, no consumer", weight=ready)


def many_unacked(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        unacked, consumers = count(queue, "messages_unacknowledged"), count(queue, "consumers")
        if unacked >= UNACKED:
            yield object_hit(
                "queue",
                queue,
                f"{counted(unacked, 'message')} unacknowledged at {counted(consumers, 'consumer')}",
                weight=unacked,
            )


def near_timeout(seen: Observation) -> Iterator[Hit]:
    timeouts: dict[str, float] = defaultdict(lambda: TIMEOUT_MS)
    for consumer, queue in _consumers(seen):
        given = (consumer.get("arguments") or {}).get("x-consumer-timeout", setting(queue, "consumer-timeout"))
        name = (consumer.get("channel_details") or {}).get("name", "")
        if isinstance(given, int) and given > 0:
            timeouts[name] = min(timeouts[name], given)
    for name, channel in seen.channels.items():
        unacked, age_ms = count(channel, "messages_unacknowledged"), _age_ms(channel)
        if unacked and age_ms >= TIMEOUT_SHARE * timeouts[name]:
            evidence = (
                f"{unacked:,} unacknowledged, the oldest for at least {span(age_ms)}; the channel is closed after "
                f"{span(timeouts[name])}"
            )
            yield Hit(f"channel {name!r}", evidence)


def stalled(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        ready, unacked = count(queue, "messages_ready"), count(queue, "messages_unacknowledged")
        if not ready or not count(queue, "consumers") or queue.get("type") == "stream":
            continue
        is_idle = not any(seen.rate("queues", queue, f"message_stats.{name}") for name in ("deliver_get", "ack"))
        if is_idle and seen.was_there("queues", queue):
            yield object_hit(
                "queue",
                queue,
                f"{counted(ready, 'message')} waiting and {unacked:,} unacknowledged, but none was delivered or "
                f"acknowledged in {seen.span_s:.1f} s",
            )


def redelivering(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        again = seen.rate("queues", queue, "message_stats.redeliver")
        delivered = seen.rate("queues", queue, "message_stats.deliver_get")
        if again >= REDELIVERED_PER_S and again >= delivered / 2:
            yield object_hit("queue", queue, f"{again:,.1f} of {delivered:,.1f} deliveries per second are redeliveries")


def _consumers(seen: Observation) -> Iterator[tuple[Row, Row]]:
    """Yield each consumer with its queue."""
    for consumer in seen.rows("consumers"):
        where = consumer.get("queue") or {}
        queue = seen.queues.get((where.get("vhost", ""), where.get("name", "")))
        if queue is not None:
            yield consumer, queue


def _is_waiting_room(queue: Row) -> bool:
    """Whether messages wait in the queue until they expire, and are then dead-lettered."""
    return dead_letter_way(queue) is not None and setting(queue, "message-ttl") is not None


def _age_ms(channel: Row) -> float:
    """Return the least age of the oldest unacknowledged delivery. RabbitMQ only tells how long the channel is idle."""
    if "oldest_unacknowledged_ms" in channel:
        return count(channel, "oldest_unacknowledged_ms")
    try:
        since = datetime.fromisoformat(str(channel["idle_since"]))
        return (datetime.now(since.tzinfo) - since).total_seconds() * 1000
    except (KeyError, ValueError, TypeError):
        return 0.0


W, H, E = Severity.WARNING, Severity.HINT, Severity.ERROR
CHECKS: Final = (
    Check(
        "auto-ack-backlog", W, "Consumers without acknowledgements behind a backlog",
        "No prefetch limits the deliveries: the broker sends as fast as the socket accepts data, the consumer's "
        "memory fills up, and all delivered messages are lost if it crashes.",
        "Consume with acknowledgements and a prefetch: `channel.consume('NAME', prefetch_count=100)`, then "
        "`channel.ack(tag)`",
        auto_ack, ("consumers", "queues", "statistics"),
    ),
    Check(
        "prefetch-unlimited", W, "Consumers without a prefetch limit",
        "The first consumer receives the whole backlog and holds it in memory, while other consumers get nothing; "
        "if it crashes, everything is requeued at once.",
        "Set a prefetch before consuming: `channel.qos(prefetch_count=100)`",
        no_prefetch, ("consumers", "queues", "channels", "statistics"),
    ),
    Check(
        "prefetch-absurd", H, f"Consumers with a prefetch of more than {PREFETCH_ABSURD:,}",
        "Such a prefetch limits nothing: messages pile up at one consumer while others are idle. Beyond a few "
        "hundred, throughput does not increase.",
        "Set a prefetch of 100 to 1,000: `channel.qos(prefetch_count=300)`",
        large_prefetch, ("consumers", "queues"),
    ),
    Check(
        "queue-without-consumers", W, "Messages in queues without consumers",
        "They use disk and memory indefinitely. Often the consumer has crashed, or a queue outlived its application.",
        "Start the consumer, or delete the queue if it is no longer needed: `ctl delete_queue -p VHOST NAME`",
        no_consumers, ("queues", "bindings", "exchanges", "statistics"),
    ),
    Check(
        "dead-letters-waiting", H, "Dead letters without consumers",
        "Each is a message that an application failed to process, and they use space indefinitely.",
        "Inspect them and send them back, or let them expire: `ctl set_policy -p VHOST --apply-to queues "
        "keep-dead-letters '^NAME$' '{\"message-ttl\": 1209600000}'`",
        dead_letters_wait, ("queues", "bindings", "exchanges", "statistics"),
    ),
    Check(
        "unacked-huge", W, f"Queues with more than {UNACKED:,} unacknowledged messages",
        "They stay in the broker's memory, and are all requeued at once when the consumer's channel closes. Often "
        "the consumer forgets to acknowledge.",
        "Acknowledge each message after processing it, and set a prefetch: `channel.qos(prefetch_count=300)`",
        many_unacked, ("queues", "statistics"),
    ),
    Check(
        "consumer-timeout-near", W, "Deliveries that stay unacknowledged for a long time",
        "The broker closes a channel whose delivery stays unacknowledged for longer than consumer_timeout (30 "
        "minutes by default); all its messages are then redelivered.",
        "Acknowledge earlier, split long tasks, or raise the limit: declare the queue with x-consumer-timeout (ms), "
        "or set the policy key consumer-timeout",
        near_timeout, ("channels", "consumers", "queues", "statistics"),
    ),
    Check(
        "consumers-stalled", W, "Stalled consumers",
        "Messages wait and consumers are connected, but nothing is delivered: each consumer has reached its "
        "prefetch limit or does not read its socket.",
        "Find out what blocks them (a lock, a slow database, a forgotten acknowledgement). To requeue their "
        "messages, close them: `ctl close_all_connections -p VHOST stalled`",
        stalled, ("queues", "statistics"), True,
    ),
    Check(
        "redelivery-loop", W, "Messages that are redelivered repeatedly",
        "A consumer requeues messages that it cannot handle and receives them again at once: it uses processor time "
        "without progress.",
        "Reject without requeue and set a dead letter exchange, or use a quorum queue with a delivery-limit: `ctl "
        "set_policy -p VHOST --apply-to queues limit '^NAME$' '{\"dead-letter-exchange\": \"dead\"}'`",
        redelivering, ("queues", "statistics"), True,
    ),
)  # fmt: skip
