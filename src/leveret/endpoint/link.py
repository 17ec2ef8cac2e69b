"""The objects of an endpoint that exist per connection."""

from __future__ import annotations

from leveret.client import Channel, Connection, connect
from leveret.endpoint.dispatcher import Dispatcher
from leveret.endpoint.replies import Replies
from leveret.endpoint.topology import Topology


class ConnectionResources:
    """A connection with its dispatcher (sends), its replies (to requests) and the channel that receives messages."""

    def __init__(self, connection: Connection, topology: Topology, name: str, receiving: Channel) -> None:
        self.connection = connection
        self.dispatcher = Dispatcher(connection, topology)
        self.replies = Replies(connection, topology, name)
        self.receiving = receiving

    @classmethod
    async def open(
        cls, url: str, topology: Topology, name: str, error_queue: str, events: list[tuple[str, ...]]
    ) -> ConnectionResources:
        """Connect, and declare the queues, exchanges and subscriptions that an endpoint of this name needs.

        events are the types to subscribe to, each with its parent types. Raises the errors of ``connect``, and
        ``ChannelClosed`` if something exists with other properties (406) or permissions are missing (403).
        """
        connection = await connect(url, name=name, reconnect=False)
        try:
            channel = await connection.channel()
            await topology.declare_queue(channel, name)
            await topology.declare_exchange(channel, name)
            await topology.declare_delays(channel, name)
            for names in events:
                await topology.subscribe(channel, names, name)
            link = cls(connection, topology, name, channel)
            await link.dispatcher.declare_shared(error_queue)
            return link
        except BaseException:
            await connection.close()
            raise

    async def close(self) -> None:
        """Wait for outstanding confirms, then close everything. No effect the second time."""
        await self.dispatcher.settle()
        await self.connection.close()  # first, since it has a timeout
        await self.replies.close()
        await self.dispatcher.close()
