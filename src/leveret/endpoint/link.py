"""What an endpoint has of one connection; when that goes, so does all of this."""

from __future__ import annotations

from leveret.client import Channel, Connection, connect
from leveret.endpoint.dispatcher import Dispatcher
from leveret.endpoint.replies import Replies
from leveret.endpoint.topology import Topology


class Link:
    """connection; dispatcher: sends over it; replies: waits on it; receiving: the channel that messages come on."""

    def __init__(self, connection: Connection, topology: Topology, name: str, receiving: Channel) -> None:
        self.connection = connection
        self.dispatcher = Dispatcher(connection, topology)
        self.replies = Replies(connection, topology, name)
        self.receiving = receiving

    @classmethod
    async def open(
        cls, url: str, topology: Topology, name: str, error_queue: str, events: list[tuple[str, ...]]
    ) -> Link:
        """Connect, and declare all that an endpoint of this name needs; what is there already stays as it is.

        events: the types to subscribe to, each with those it descends from. Raises what ``connect`` raises, and
        ``ChannelClosed`` where something stands there in another form (406), or may not be declared (403).
        """
        connection = await connect(url, name=name)
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
        """Let what is being sent be confirmed, then let go of everything; without effect the second time."""
        await self.dispatcher.settle()
        await self.connection.close()  # the first, since it does not wait for ever
        await self.replies.close()
        await self.dispatcher.close()
