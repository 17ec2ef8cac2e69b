"""Endpoints compatible with NServiceBus, for asyncio, on any AMQP 0-9-1 broker. See docs/guides/endpoints.md."""

from leveret.delay import CONVENTIONAL, DIRECT, NSERVICEBUS, NSERVICEBUS_V2, DestinationMissing
from leveret.endpoint.body import UndecodableMessage
from leveret.endpoint.context import Context
from leveret.endpoint.endpoint import Endpoint
from leveret.endpoint.message import Incoming, PoisonMessage
from leveret.endpoint.recoverability import (
    Discard,
    Failure,
    MoveToError,
    Recoverability,
    RetryLater,
    RetryNow,
    UnknownMessage,
)
from leveret.endpoint.types import message_type

__all__ = [
    "CONVENTIONAL",
    "DIRECT",
    "NSERVICEBUS",
    "NSERVICEBUS_V2",
    "Context",
    "DestinationMissing",
    "Discard",
    "Endpoint",
    "Failure",
    "Incoming",
    "MoveToError",
    "PoisonMessage",
    "Recoverability",
    "RetryLater",
    "RetryNow",
    "UndecodableMessage",
    "UnknownMessage",
    "message_type",
]
