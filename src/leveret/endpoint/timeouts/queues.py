"""The two queues of a timeout manager, and its error queue, as the older transport declares them."""

from __future__ import annotations

from dataclasses import dataclass

from leveret.client import ChannelClosed, Connection, QueueInfo
from leveret.delay.routing import CONVENTIONAL, RoutingTopology
from leveret.wire.errors import NOT_FOUND


@dataclass(frozen=True)
class TimeoutQueues:
    """The names of the queues. In the conventional topology each queue has a fanout exchange of its name."""

    endpoint: str
    routing: RoutingTopology = CONVENTIONAL
    error_queue: str = "error"

    @property
    def timeouts(self) -> str:
        """The queue to which older endpoints send deferred messages."""
        return f"{self.endpoint}.Timeouts"

    @property
    def dispatcher(self) -> str:
        """The queue of the orders to send messages that are due."""
        return f"{self.endpoint}.TimeoutsDispatcher"

    async def declare(self, connection: Connection) -> None:
        """Declare all three queues. A queue that exists is left unchanged, whatever its type."""
        for name in (self.timeouts, self.dispatcher, self.error_queue):
            is_there = await queue_info(connection, name) is not None
            async with await connection.channel() as channel:
                if not is_there:
                    await channel.declare_queue(name)
                if self.routing is CONVENTIONAL:
                    await channel.declare_exchange(name, kind="fanout")
                    await channel.bind_queue(name, name)

    async def info(self, connection: Connection) -> dict[str, QueueInfo | None]:
        """Return the counts of the two queues of timeouts, None for a queue that does not exist."""
        return {name: await queue_info(connection, name) for name in (self.timeouts, self.dispatcher)}

    async def delete(self, connection: Connection, force: bool = False) -> None:
        """Delete the two queues and their exchanges. Without force raises ``ChannelClosed`` (406) if one is in use."""
        for name in (self.timeouts, self.dispatcher):
            async with await connection.channel() as channel:
                await channel.delete_queue(name, if_unused=not force, if_empty=not force)
                if self.routing is CONVENTIONAL:
                    await channel.delete_exchange(name)


async def queue_info(connection: Connection, name: str) -> QueueInfo | None:
    """Return a queue's counts, None if the queue does not exist."""
    async with await connection.channel() as channel:
        try:
            return await channel.declare_queue(name, passive=True)
        except ChannelClosed as error:
            if error.code != NOT_FOUND:
                raise
            return None
