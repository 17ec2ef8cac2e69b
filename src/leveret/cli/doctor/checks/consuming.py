"""Checks of consumers: acknowledgements, prefetch, backlogs, and consumers that make no progress."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from leveret.cli.doctor.check import Check, Hit, Severity
from leveret.cli.doctor.checks.naming import object_hit, octets, some, span
from leveret.cli.doctor.observation import Observation, Row, count, dead_letter_way, queue_key, setting

BACKLOG: Final = 1_000
BACKLOG_OCTETS: Final = 64 << 20
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
                f"{some(ready, 'message')} ({octets(size)}) waiting, and consumer "
                f"{consumer['consumer_tag']!r} has them without acknowledgements",
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
                "queue", queue, f"consumer {consumer['consumer_tag']!r} may hold {some(prefetch, 'message')}"
            )


def no_consumers(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        ready = count(queue, "messages_ready")
        if not ready or count(queue, "consumers") or queue.get("type") == "stream" or _is_waiting_room(queue):
            continue
        if queue_key(queue) not in seen.dead_letter_targets:
            yield object_hit("queue", queue, f"{some(ready, 'message')} waiting, no consumer", weight=ready)


def dead_letters_wait(seen: Observation) -> Iterator[Hit]:
    for key in sorted(seen.dead_letter_targets):
        queue = seen.queues[key]
        ready = count(queue, "messages_ready")
        if ready and not count(queue, "consumers") and not _is_waiting_room(queue):
            yield object_hit("queue", queue, f"{some(ready, 'dead letter')} waiting, no consumer", weight=ready)


def many_unacked(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        unacked, consumers = count(queue, "messages_unacknowledged"), count(queue, "consumers")
        if unacked >= UNACKED:
            yield object_hit(
                "queue",
                queue,
                f"{some(unacked, 'message')} unacknowledged at {some(consumers, 'consumer')}",
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
                f"{unacked:,} unacknowledged, the oldest for {span(age_ms)} at least; the channel is closed after "
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
                f"{some(ready, 'message')} waiting and {unacked:,} unacknowledged, but in "
                f"{seen.span_s:.1f} s none was delivered or acknowledged",
            )


def redelivering(seen: Observation) -> Iterator[Hit]:
    for queue in seen.rows("queues"):
        again = seen.rate("queues", queue, "message_stats.redeliver")
        delivered = seen.rate("queues", queue, "message_stats.deliver_get")
        if again >= REDELIVERED_PER_S and again >= delivered / 2:
            yield object_hit("queue", queue, f"{again:,.1f} of {delivered:,.1f} deliveries per second are repeated")


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
        "The broker sends as fast as the socket takes it: no prefetch holds it back, the consumer's memory fills, "
        "and all that was sent is lost when it dies.",
        "Consume with acknowledgements and a prefetch: `channel.consume('NAME', prefetch_count=100)`, then "
        "`channel.ack(tag)`",
        auto_ack, ("consumers", "queues", "statistics"),
    ),
    Check(
        "prefetch-unlimited", W, "Consumers without a prefetch limit",
        "The first consumer gets all that waits, others get nothing, and its memory holds the whole backlog; when "
        "it dies, all of it comes back at once.",
        "Set a prefetch before consuming: `channel.qos(prefetch_count=100)`",
        no_prefetch, ("consumers", "queues", "channels", "statistics"),
    ),
    Check(
        "prefetch-absurd", H, f"Consumers with a prefetch of more than {PREFETCH_ABSURD:,}",
        "It is as good as none: messages pile up at one consumer while others idle. Throughput stops growing at "
        "some hundreds.",
        "Set a prefetch of 100 to 1,000: `channel.qos(prefetch_count=300)`",
        large_prefetch, ("consumers", "queues"),
    ),
    Check(
        "queue-without-consumers", W, "Messages wait in queues that nobody consumes",
        "They take disk and memory for ever; often a consumer has died, or a subscription outlived its application.",
        "Start the consumer; or look, and delete what nobody needs: `ctl delete_queue -p VHOST NAME`",
        no_consumers, ("queues", "bindings", "exchanges", "statistics"),
    ),
    Check(
        "dead-letters-waiting", H, "Dead letters that nobody looks at",
        "Each is a message that somebody failed to process; they also take room for ever.",
        "Look at them and send them back, or let them go after a while: "
        "`ctl set_policy -p VHOST --apply-to queues keep-dead-letters '^NAME$' '{\"message-ttl\": 1209600000}'`",
        dead_letters_wait, ("queues", "bindings", "exchanges", "statistics"),
    ),
    Check(
        "unacked-huge", W, f"Queues with more than {UNACKED:,} unacknowledged messages",
        "They stay in the broker's memory, and come back all at once when the consumer's channel closes. Often an "
        "acknowledgement was forgotten.",
        "Acknowledge each message when it is done, and set a prefetch: `channel.qos(prefetch_count=300)`",
        many_unacked, ("queues", "statistics"),
    ),
    Check(
        "consumer-timeout-near", W, "Deliveries are unacknowledged for long",
        "The broker closes a channel whose delivery is unacknowledged for longer than consumer_timeout (30 minutes "
        "if not set otherwise); all its messages are then delivered again.",
        "Acknowledge earlier, split long work, or allow more: declare the queue with x-consumer-timeout (ms), or "
        "set the policy key consumer-timeout",
        near_timeout, ("channels", "consumers", "queues", "statistics"),
    ),
    Check(
        "consumers-stalled", W, "Consumers that do not get on",
        "Messages wait, consumers are there, and nothing moves: each has as many unacknowledged as its prefetch "
        "allows, or does not read its socket.",
        "Look what they do (a lock, a slow database, a forgotten acknowledgement); to free what they hold, close "
        "them: `ctl close_all_connections -p VHOST stalled`",
        stalled, ("queues", "statistics"), True,
    ),
    Check(
        "redelivery-loop", W, "The same messages are delivered again and again",
        "A consumer gives back what it can't handle, and gets it at once again: processors work, nothing is done.",
        "Reject without requeue into a dead letter exchange, or use a quorum queue with a delivery-limit: "
        "`ctl set_policy -p VHOST --apply-to queues limit '^NAME$' '{\"dead-letter-exchange\": \"dead\"}'`",
        redelivering, ("queues", "statistics"), True,
    ),
)  # fmt: skip
