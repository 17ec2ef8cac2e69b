"""Stages: messages that a leveret keeps back until all of their batch are released, or none (docs/guides/stages.md).

What is said here goes over plain AMQP 0-9-1, so every client can say it; a broker without stages answers 404 or returns
the message (312), which is StagesMissing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from leveret.client.errors import ChannelClosed, ClientError, Unroutable
from leveret.client.model import Delivery
from leveret.wire.errors import ACCESS_REFUSED, NOT_FOUND
from leveret.wire.table import Value

STAGE: Final = "amq.leveret.stage"
"""The queue to consume from to attach a channel, and the routing key of release and abort."""
QUERY_PREFIX: Final = "amq.leveret.query."
"""basic.get from the queue with this prefix and a query's name tells what is known of the query."""
TAG: Final = "leveret-stage"
"""The consumer tag of an attached channel; to cancel it detaches."""


class StagesMissing(ClientError):
    """The broker has no stages: it is no leveret, or an older one. answer: what it said instead."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.answer = answer

    def __str__(self) -> str:
        return f"the broker has no stages (leveret has): {self.answer}"


def attach_arguments(query: str, batch: int, attempt: str, expires_ms: int | None) -> dict[str, Value]:
    """Of the basic.consume that attaches a channel to a stage."""
    arguments: dict[str, Value] = {"x-leveret-query": query, "x-leveret-batch": batch, "x-leveret-attempt": attempt}
    if expires_ms is not None:
        arguments["x-leveret-expires-ms"] = expires_ms
    return arguments


def release_body(query: str, batch: int, attempts: Sequence[str]) -> bytes:
    """Of the message that releases a batch: these attempts, in this order."""
    return json.dumps({"op": "release", "query": query, "batch": batch, "attempts": list(attempts)}).encode()


def abort_body(query: str, batch: int) -> bytes:
    """Of the message that drops all that is staged for a batch."""
    return json.dumps({"op": "abort", "query": query, "batch": batch}).encode()


def forget_body(query: str) -> bytes:
    """Of the message that ends what the broker knows of a query."""
    return json.dumps({"op": "forget", "query": query}).encode()


def query_in(delivery: Delivery) -> dict[str, Any]:
    """What the answer to basic.get tells of a query."""
    found: dict[str, Any] = json.loads(delivery.body)
    return found


def missing(error: ClientError) -> StagesMissing | None:
    """What the answer means, if it is that of a broker without stages; None for any other error."""
    if isinstance(error, Unroutable):
        return StagesMissing(str(error)) if error.routing_key == STAGE and not error.exchange else None
    if not isinstance(error, ChannelClosed):
        return None
    # RabbitMQ asks for permission first, for queues that are not there, too
    names_it = f"'{STAGE}'" in error.text or f"'{QUERY_PREFIX}" in error.text
    return StagesMissing(str(error)) if error.code in (NOT_FOUND, ACCESS_REFUSED) and names_it else None
