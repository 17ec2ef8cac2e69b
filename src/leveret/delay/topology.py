"""Declarations of a delay layout as values, which can be compared, printed, and carried out with either client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from leveret.client import BlockingChannel, Channel
    from leveret.wire.table import Value


@dataclass(frozen=True)
class ExchangeDeclaration:
    """The declaration of a durable topic exchange."""

    name: str


@dataclass(frozen=True)
class QueueDeclaration:
    """The declaration of a durable, shared queue with these ``x-`` arguments."""

    name: str
    arguments: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class QueueBinding:
    """The binding of ``queue`` to ``exchange`` with the binding key ``routing_key``."""

    queue: str
    exchange: str
    routing_key: str


@dataclass(frozen=True)
class ExchangeBinding:
    """The binding of the exchange ``destination`` to the exchange ``source`` with the binding key ``routing_key``."""

    destination: str
    source: str
    routing_key: str


Declaration: TypeAlias = ExchangeDeclaration | QueueDeclaration | QueueBinding | ExchangeBinding


async def declare(channel: Channel, declarations: Iterable[Declaration]) -> None:
    """Carry the declarations out in their order on an asyncio channel.

    Raises:
        ChannelClosed: The broker refuses one; 406 if it exists with other arguments.
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
    """Carry the declarations out in their order on a blocking channel. Raises the errors of :func:`declare`."""
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
