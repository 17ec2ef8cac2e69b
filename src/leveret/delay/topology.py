"""What a delay layout declares, as plain values: they can be compared, printed, and carried out over either client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from leveret.client import BlockingChannel, Channel
    from leveret.wire.table import Value


@dataclass(frozen=True)
class ExchangeDeclaration:
    """A durable topic exchange of this name."""

    name: str


@dataclass(frozen=True)
class QueueDeclaration:
    """A durable, shared queue with these ``x-`` arguments."""

    name: str
    arguments: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class QueueBinding:
    """``queue`` receives what ``exchange`` gets with a key that matches ``routing_key``."""

    queue: str
    exchange: str
    routing_key: str


@dataclass(frozen=True)
class ExchangeBinding:
    """``destination`` (an exchange) receives what ``source`` gets with a key that matches ``routing_key``."""

    destination: str
    source: str
    routing_key: str


Declaration: TypeAlias = ExchangeDeclaration | QueueDeclaration | QueueBinding | ExchangeBinding


async def declare(channel: Channel, declarations: Iterable[Declaration]) -> None:
    """Carry the declarations out in their order on an asyncio channel.

    Raises ``ChannelClosed`` where the broker refuses one (406: it exists with other arguments).
    """
    for one in declarations:
        match one:
            case ExchangeDeclaration():
                await channel.declare_exchange(one.name, kind="topic", durable=True)
            case QueueDeclaration():
                await channel.declare_queue(one.name, durable=True, arguments=dict(one.arguments))
            case QueueBinding():
                await channel.bind_queue(one.queue, one.exchange, one.routing_key)
            case ExchangeBinding():
                await channel.bind_exchange(one.destination, one.source, one.routing_key)


def declare_blocking(channel: BlockingChannel, declarations: Iterable[Declaration]) -> None:
    """Carry the declarations out in their order on a blocking channel; errors as in :func:`declare`."""
    for one in declarations:
        match one:
            case ExchangeDeclaration():
                channel.declare_exchange(one.name, kind="topic", durable=True)
            case QueueDeclaration():
                channel.declare_queue(one.name, durable=True, arguments=dict(one.arguments))
            case QueueBinding():
                channel.bind_queue(one.queue, one.exchange, one.routing_key)
            case ExchangeBinding():
                channel.bind_exchange(one.destination, one.source, one.routing_key)
