"""Bindings of the destinations of messages that are moved."""

from __future__ import annotations

from enum import Enum

from leveret.client import ChannelClosed, Connection
from leveret.delay.binder import Binder, DestinationMissing
from leveret.delay.layout import Layout
from leveret.delay.routing import CONVENTIONAL, DIRECT
from leveret.wire.errors import NOT_FOUND


class DestinationBinding(Enum):
    """What is bound to the delivery exchange for a destination.

    Attributes:
        AUTO: The exchange of its name if that exists, else its queue.
        CONVENTIONAL: Its exchange.
        DIRECT: Its queue.
        NONE: Nothing; the receiver declares the binding, as Celery does.
    """

    AUTO = "auto"
    CONVENTIONAL = "conventional"
    DIRECT = "direct"
    NONE = "none"


class Destinations:
    """Binds each destination once, and remembers those that do not exist."""

    def __init__(self, connection: Connection, layout: Layout, binding: DestinationBinding) -> None:
        self._connection = connection
        self._binding = binding
        self._exchanges = Binder(connection, lambda name: CONVENTIONAL.destination_binding(layout, name))
        self._queues = Binder(connection, lambda name: DIRECT.destination_binding(layout, name))
        self._known: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        """The destinations that exist, sorted by name."""
        return sorted(name for name, reason in self._known.items() if not reason)

    async def bind(self, name: str) -> str:
        """Bind a destination; return "" or the reason why it cannot be bound."""
        if name not in self._known:
            self._known[name] = "" if self._binding is DestinationBinding.NONE else await self._bind(name)
        return self._known[name]

    async def look(self, name: str) -> str:
        """Check a destination without binding it; return "" if it exists, else the reason."""
        if self._binding is not DestinationBinding.NONE and name not in self._known:
            wants = {DestinationBinding.CONVENTIONAL: [True], DestinationBinding.DIRECT: [False]}.get(
                self._binding, [True, False]
            )
            self._known[name] = f"the destination {name!r} does not exist"
            for is_exchange in wants:
                if await self._is_there(name, is_exchange):
                    self._known[name] = ""
                    break
        return self._known.setdefault(name, "")

    async def close(self) -> None:
        """Close the channels."""
        await self._exchanges.close()
        await self._queues.close()

    async def _bind(self, name: str) -> str:
        binders = {DestinationBinding.CONVENTIONAL: [self._exchanges], DestinationBinding.DIRECT: [self._queues]}
        reason = ""
        for binder in binders.get(self._binding, [self._exchanges, self._queues]):
            try:
                await binder.bind(name)
            except DestinationMissing:
                reason = f"the destination {name!r} does not exist"
            except ChannelClosed as error:
                return str(error)
            else:
                return ""
        return reason

    async def _is_there(self, name: str, is_exchange: bool) -> bool:
        async with await self._connection.channel() as channel:
            try:
                if is_exchange:
                    await channel.declare_exchange(name, passive=True)
                else:
                    await channel.declare_queue(name, passive=True)
            except ChannelClosed as error:
                if error.code == NOT_FOUND:
                    return False
                raise
        return True
