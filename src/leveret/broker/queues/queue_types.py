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
    """The type that a queue with these arguments has."""
    return str(arguments.get("x-queue-type", CLASSIC))


def is_at_least_once(arguments: dict[str, Value]) -> bool:
    """Whether dead letters stay until a queue has them. RabbitMQ asks for reject-publish and else drops them, too."""
    return (
        queue_type(arguments) == QUORUM
        and arguments.get("x-dead-letter-strategy") == "at-least-once"
        and arguments.get("x-overflow") == "reject-publish"
        and "x-dead-letter-exchange" in arguments
    )
