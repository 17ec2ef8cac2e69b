"""The types of queues: classic, quorum and stream.

A quorum queue is one copy on one disk here. It promises more than a classic queue: it keeps and syncs all messages,
counts returned deliveries, and may keep a dead letter until a queue takes it.
"""

from __future__ import annotations

from typing import Final

from leveret.wire.table import Value

CLASSIC: Final = "classic"
QUORUM: Final = "quorum"
STREAM: Final = "stream"


def queue_type(arguments: dict[str, Value]) -> str:
    """Return the type of a queue with these arguments."""
    return str(arguments.get("x-queue-type", CLASSIC))


def is_at_least_once(arguments: dict[str, Value]) -> bool:
    """Return whether the queue keeps dead letters until another queue takes them.

    As in RabbitMQ, this needs the overflow reject-publish.
    """
    return (
        queue_type(arguments) == QUORUM
        and arguments.get("x-dead-letter-strategy") == "at-least-once"
        and arguments.get("x-overflow") == "reject-publish"
        and "x-dead-letter-exchange" in arguments
    )
