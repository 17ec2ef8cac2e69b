"""Requests that wait for their reply, on an address that belongs to this process only."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from leveret.client import Channel, ClientError, Connection, Delivery
from leveret.endpoint import body
from leveret.endpoint.message import Incoming, PoisonMessage
from leveret.endpoint.topology import Topology


class Replies:
    """The private reply address of one connection, declared at the first request, and the outstanding requests."""

    def __init__(self, connection: Connection, topology: Topology, endpoint: str) -> None:
        self._connection = connection
        self._topology = topology
        self._address = f"{endpoint}-{uuid.uuid4().hex}"
        self._channel: Channel | None = None
        self._reader: asyncio.Task[None] | None = None
        self._is_opening = asyncio.Lock()
        self._waiting: dict[str, asyncio.Future[Incoming]] = {}

    async def address(self) -> str:
        """Return the reply address; the first call declares it and starts a consumer."""
        async with self._is_opening:
            if self._channel is None or self._channel.is_closed:
                channel = await self._connection.channel()
                try:
                    await self._topology.declare_private(channel, self._address)
                    consumer = await channel.consume(self._address, no_ack=True)
                except BaseException:
                    channel.abandon()
                    raise
                self._reader = asyncio.create_task(self._read(consumer))
                self._channel = channel
        return self._address

    def expect(self, correlation_id: str) -> asyncio.Future[Incoming]:
        """Return a future of the reply to this request. It raises ``ClientError`` if the connection is lost before."""
        future: asyncio.Future[Incoming] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        future.add_done_callback(lambda _: self._waiting.pop(correlation_id, None))
        return future

    async def close(self) -> None:
        """Stop the consumer."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait((self._reader,))

    async def _read(self, consumer: Any) -> None:
        try:
            async for delivery in consumer:
                self._arrived(delivery)
        except ClientError as error:
            for future in list(self._waiting.values()):
                if not future.done():
                    future.set_exception(error)

    def _arrived(self, delivery: Delivery) -> None:
        try:
            message = Incoming.of(delivery, self._topology.layout.delay_header)
        except PoisonMessage:
            return  # its request is unknown, and runs into its timeout
        future = self._waiting.get(delivery.properties.correlation_id or "")
        if future is not None and not future.done():
            future.set_result(message)


def content(message: Incoming, kind: type | None) -> Any:
    """Decode a reply to an object of a class, or to plain dicts and lists. Raises ``UndecodableMessage``."""
    return body.decode(message.body, message.content_type, kind)
