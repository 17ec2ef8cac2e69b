"""Delayed delivery on any AMQP 0-9-1 broker that expires and dead-letters messages.

A delay is written in binary, and each of its bits is a level: a topic exchange and a queue whose messages expire after
the bit's worth of time. See :class:`Layout` for the names and the arithmetic, and docs/DELAY.md for the whole picture.
"""

from leveret.delay.layout import MILLISECONDS, SECONDS, Layout
from leveret.delay.topology import Declaration, ExchangeBinding, ExchangeDeclaration, QueueBinding, QueueDeclaration

__all__ = [
    "MILLISECONDS",
    "SECONDS",
    "Declaration",
    "ExchangeBinding",
    "ExchangeDeclaration",
    "Layout",
    "QueueBinding",
    "QueueDeclaration",
]
