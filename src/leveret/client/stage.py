"""Stages: leveret keeps the messages of a batch back until all of them are released, or none (docs/guides/stages.md).

The requests are plain AMQP 0-9-1, so every client can send them. A broker without stages answers 404 or returns the
message (312), which becomes StagesMissing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from leveret.client.protocol.errors import ChannelClosed, ClientError, FeatureMissing, Unroutable
from leveret.client.protocol.model import Delivery
from leveret.wire.errors import ACCESS_REFUSED, NOT_FOUND
from leveret.wire.table import Value

STAGE: Final = "amq.leveret.stage"
"""The pseudo-queue to consume from to attach a channel, and the routing key of release, abort and forget."""
QUERY_PREFIX: Final = "amq.leveret.query."
"""Prefix of the pseudo-queues from which basic.get reads the state of a query; the query's name follows."""
TAG: Final = "leveret-stage"
"""The consumer tag of an attached channel; basic.cancel detaches the channel."""


class StagesMissing(FeatureMissing):
    """The broker does not support stages."""

    def __str__(self) -> str:
        return f"the broker does not support stages (leveret does): {self.answer}"


def attach_arguments(query: str, batch: int, attempt: str, expires_ms: int | None) -> dict[str, Value]:
    """Return the arguments of the basic.consume that attaches a channel to a stage."""
    arguments: dict[str, Value] = {"x-leveret-query": query, "x-leveret-batch": batch, "x-leveret-attempt": attempt}
    if expires_ms is not None:
        arguments["x-leveret-expires-ms"] = expires_ms
    return arguments


def release_body(query: str, batch: int, attempts: Sequence[str]) -> bytes:
    """Return the body of the message that releases these attempts of a batch, in this order."""
    return json.dumps({"op": "release", "query": query, "batch": batch, "attempts": list(attempts)}).encode()


def abort_body(query: str, batch: int) -> bytes:
    """Return the body of the message that drops all stages of a batch."""
    return json.dumps({"op": "abort", "query": query, "batch": batch}).encode()


def forget_body(query: str) -> bytes:
    """Return the body of the message that makes the broker forget a query."""
    return json.dumps({"op": "forget", "query": query}).encode()


def query_in(delivery: Delivery) -> dict[str, Any]:
    """Decode the state of a query from the answer to basic.get."""
    found: dict[str, Any] = json.loads(delivery.body)
    return found


def missing(error: ClientError) -> StagesMissing | None:
    """Return StagesMissing if the error is the answer of a broker without stages, None for any other error."""
    if isinstance(error, Unroutable):
        return StagesMissing(str(error)) if error.routing_key == STAGE and not error.exchange else None
    if not isinstance(error, ChannelClosed):
        return None
    # RabbitMQ checks the permission first, also for queues that do not exist
    names_it = f"'{STAGE}'" in error.text or f"'{QUERY_PREFIX}" in error.text
    return StagesMissing(str(error)) if error.code in (NOT_FOUND, ACCESS_REFUSED) and names_it else None
