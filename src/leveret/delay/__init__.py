"""Delayed delivery on any AMQP 0-9-1 broker that expires and dead-letters messages.

A delay is a binary number, and each of its bits is a level: a topic exchange and a queue whose messages expire after
the time that the bit stands for. See :class:`Layout` for names and arithmetic, and docs/guides/delayed-delivery.md for
an overview.
"""

from leveret.delay.binder import DestinationMissing
from leveret.delay.blocking_sender import BlockingSender
from leveret.delay.layout import Layout
from leveret.delay.message import received, sendable
from leveret.delay.named import CELERY, CELERY_CLASSIC, LAYOUTS, MILLISECONDS, NSERVICEBUS, NSERVICEBUS_V2
from leveret.delay.routing import CONVENTIONAL, DIRECT, RoutingTopology
from leveret.delay.sender import Sender
from leveret.delay.topology import Declaration, ExchangeBinding, ExchangeDeclaration, QueueBinding, QueueDeclaration

__all__ = [
    "CELERY",
    "CELERY_CLASSIC",
    "CONVENTIONAL",
    "DIRECT",
    "LAYOUTS",
    "MILLISECONDS",
    "NSERVICEBUS",
    "NSERVICEBUS_V2",
    "BlockingSender",
    "Declaration",
    "DestinationMissing",
    "ExchangeBinding",
    "ExchangeDeclaration",
    "Layout",
    "QueueBinding",
    "QueueDeclaration",
    "RoutingTopology",
    "Sender",
    "received",
    "sendable",
]
