"""FastStream's RabbitBroker on leveret's client.

FastStream's classes stay as they are, down to one place: RabbitBroker._connect, which returns an aio-pika connection.
Here it returns an object with the part of aio-pika's interface that FastStream uses, on leveret's client. Messages are
aio-pika's own classes, because FastStream's parsers, middlewares and its users' code read their attributes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final, cast
from urllib.parse import quote, unquote, urlsplit

import aio_pika
from aio_pika.abc import AbstractMessage
from aiormq.abc import AbstractChannel, DeliveredMessage
from faststream.rabbit import RabbitBroker, TestRabbitBroker
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from leveret.client import (
    Channel,
    ChannelClosed,
    ClientError,
    Connection,
    Consumer,
    Delivery,
    Properties,
    connect,
)
from leveret.client.protocol.reconnect import Reconnect
from leveret.wire.table import Value

__all__ = ["LeveretBroker", "TestLeveretBroker"]

OnMessage = Callable[[aio_pika.IncomingMessage], Awaitable[Any]]

REPLY_TO: Final = "amq.rabbitmq.reply-to"
TIMEOUT_S: Final = 15.0
CLOSE_S: Final = 5.0
RECONNECT_INTERVAL_S: Final = 5.0
FIRST_INTERVAL_S: Final = 0.2
# options of RabbitBroker that have no meaning for leveret's client, with their defaults
_AIO_PIKA_ONLY: Final[Mapping[str, object]] = {"ssl_context": None, "fail_fast": True}

log = logging.getLogger("leveret.frameworks")


class LeveretBroker(RabbitBroker):
    """FastStream's RabbitBroker with leveret's client in place of aio-pika's, for leveret and RabbitMQ::

        broker = LeveretBroker("amqp://guest:guest@localhost:5672/")

        @broker.subscriber("orders")
        @broker.publisher("invoices")
        async def invoice(order: Order) -> Invoice: ...

    Everything is written as for RabbitBroker (FastStream's documentation), with these differences: an unroutable
    message raises :class:`leveret.client.Unroutable` if its channel has on_return_raises; publish() returns None. TLS
    and login by certificate are set by options of the URL, as for :func:`leveret.client.connect`. The arguments
    on_close, on_reconnected, fail_fast=False and an ssl_context belong to aio-pika and are refused when the broker
    connects. reconnect_interval is the longest delay between two attempts to reconnect; the first ones are shorter.
    """

    async def _connect(self) -> aio_pika.RobustConnection:
        given = self._connection_kwargs
        refused = [name for name, default in _AIO_PIKA_ONLY.items() if given.get(name, default) != default]
        refused += [name for name in ("on_close", "on_reconnected") if getattr(self, f"_{name}", ())]
        if refused:
            raise ValueError(
                f"{', '.join(refused)}: leveret's client has no such option. Remove it; for TLS use an amqps URL with "
                "cacertfile, certfile and keyfile"
            )
        url = urlsplit(str(given["url"]))  # with the virtual host as it is, such as "//"
        url = url._replace(path="/" + quote(unquote(url.path[1:]), safe=""))
        interval_s = float(given.get("reconnect_interval") or RECONNECT_INTERVAL_S)
        client = await connect(
            url.geturl(),
            timeout_s=float(given.get("timeout") or TIMEOUT_S),
            reconnect=Reconnect(min(interval_s, FIRST_INTERVAL_S), interval_s),
        )
        connection = cast(aio_pika.RobustConnection, _AioPikaConnection(client))
        if self._channel is None:
            self.config.connect(connection)
            self._channel = await self.config.channel_manager.get_channel()
        return connection


class TestLeveretBroker(TestRabbitBroker):
    """FastStream's TestRabbitBroker for a LeveretBroker: subscribers are called in memory, without a broker."""

    __test__ = False


class _AioPikaConnection:
    """The part of aio_pika.RobustConnection that FastStream uses."""

    def __init__(self, client: Connection) -> None:
        self._client = client

    @property
    def connected(self) -> asyncio.Event:
        """An event that is set if the connection is open now, for ping()."""
        event = asyncio.Event()
        if self._client.is_connected:
            event.set()
        return event

    async def channel(
        self, channel_number: int | None = None, publisher_confirms: bool = True, on_return_raises: bool = False
    ) -> _AioPikaChannel:
        if channel_number is not None:
            raise ValueError("leveret's client numbers its channels itself: remove channel_number")
        channel = _AioPikaChannel(self._client, publisher_confirms, on_return_raises)
        await channel.publishing()
        return channel

    async def close(self) -> None:
        await self._client.close()


class _AioPikaChannel:
    """The part of aio_pika.RobustChannel that FastStream uses: two channels of leveret's client, opened when needed.

    One publishes and declares, the other consumes, so that an error of the former, which closes it, does not end the
    consumers. Both are opened again after an error.

    Args:
        client: The connection.
        confirms: Whether publish() waits for the broker's confirm.
        is_return_error: Whether publish() raises an error for a mandatory message that no queue takes.
    """

    def __init__(self, client: Connection, confirms: bool, is_return_error: bool) -> None:
        self._client = client
        self._confirms = confirms
        self.is_return_error = is_return_error
        self._publishing: Channel | None = None
        self._consuming: Channel | None = None
        self._prefetch: tuple[int, bool] | None = None
        self._is_opening = asyncio.Lock()
        self._is_closed = False
        self.default_exchange = _AioPikaExchange(self, "")

    @property
    def is_closed(self) -> bool:
        return self._is_closed or self._client.is_closed

    async def publishing(self) -> Channel:
        async with self._is_opening:
            if self._publishing is None or self._publishing.is_closed:
                self._publishing = await self._client.channel(self._confirms)
            return self._publishing

    async def consuming(self) -> Channel:
        async with self._is_opening:
            if self._consuming is None or self._consuming.is_closed:
                channel = await self._client.channel()
                if self._prefetch is not None:
                    await channel.qos(*self._prefetch)
                self._consuming = channel
            return self._consuming

    async def set_qos(self, prefetch_count: int = 0, global_: bool = False) -> None:
        self._prefetch = prefetch_count, global_

    async def declare_queue(
        self,
        name: str,
        *,
        durable: bool,
        exclusive: bool,
        passive: bool,
        auto_delete: bool,
        arguments: Mapping[str, Value] | None,
        timeout: float | None = None,
        robust: bool = True,
    ) -> _AioPikaQueue:
        channel = await self.publishing()
        async with asyncio.timeout(timeout):
            info = await channel.declare_queue(
                name, durable, exclusive, auto_delete, passive, dict(arguments) if arguments else None
            )
        return _AioPikaQueue(self, info.name)

    async def declare_exchange(
        self,
        name: str,
        *,
        type: str,
        durable: bool,
        auto_delete: bool,
        passive: bool,
        arguments: Mapping[str, Value] | None,
        internal: bool = False,
        timeout: float | None = None,
        robust: bool = True,
    ) -> _AioPikaExchange:
        channel = await self.publishing()
        async with asyncio.timeout(timeout):
            await channel.declare_exchange(
                name, type, durable, auto_delete, internal, passive, dict(arguments) if arguments else None
            )
        return _AioPikaExchange(self, name)

    async def close(self) -> None:
        self._is_closed = True
        for channel in (self._consuming, self._publishing):
            if channel is not None and not channel.is_closed:
                await self.briefly(channel.close())

    async def briefly(self, ending: Awaitable[None]) -> None:
        """Wait for the broker's answer, but not until a lost connection is restored."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S if self._client.is_connected else 0):
                await ending


class _AioPikaExchange:
    """The part of aio_pika.RobustExchange that FastStream uses."""

    def __init__(self, channel: _AioPikaChannel, name: str) -> None:
        self.channel = channel
        self.name = name

    async def bind(
        self,
        exchange: _AioPikaExchange,
        routing_key: str = "",
        arguments: Mapping[str, Value] | None = None,
        timeout: float | None = None,
        robust: bool = True,
    ) -> None:
        channel = await self.channel.publishing()
        async with asyncio.timeout(timeout):
            await channel.bind_exchange(self.name, exchange.name, routing_key, dict(arguments) if arguments else None)

    async def publish(
        self,
        message: AbstractMessage,
        routing_key: str,
        mandatory: bool = True,
        immediate: bool = False,
        timeout: float | None = None,
    ) -> None:
        if immediate:
            raise ValueError("immediate: RabbitMQ and leveret have no such publishes since RabbitMQ 3.0")
        channel = await self.channel.publishing()
        async with asyncio.timeout(timeout):
            await channel.drain()
            # a returned message that is no error would be dropped here
            is_mandatory = mandatory and self.channel.is_return_error
            await channel.publish(message.body, self.name, routing_key, _sent(message), is_mandatory)


class _AioPikaQueue:
    """The part of aio_pika.RobustQueue that FastStream uses."""

    def __init__(self, channel: _AioPikaChannel, name: str) -> None:
        self.channel = channel
        self.name = name
        self._consumers: dict[str, Consumer] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def bind(
        self,
        exchange: _AioPikaExchange,
        routing_key: str = "",
        arguments: Mapping[str, Value] | None = None,
        timeout: float | None = None,
        robust: bool = True,
    ) -> None:
        channel = await self.channel.publishing()
        async with asyncio.timeout(timeout):
            await channel.bind_queue(self.name, exchange.name, routing_key, dict(arguments) if arguments else None)

    async def consume(
        self, callback: OnMessage, no_ack: bool = False, arguments: Mapping[str, Value] | None = None
    ) -> str:
        channel, consumer = await self._consumer(no_ack, arguments)
        tag = consumer.tag
        self._consumers[tag] = consumer
        self._start(self._serve(tag, channel, callback, no_ack, arguments))
        return tag

    async def cancel(self, consumer_tag: str) -> None:
        await self.channel.briefly(self._consumers.pop(consumer_tag).cancel())

    async def get(
        self, *, no_ack: bool = False, fail: bool = True, timeout: float | None = None
    ) -> aio_pika.IncomingMessage | None:
        channel = await self.channel.consuming()
        async with asyncio.timeout(timeout):
            delivery = await channel.get(self.name, no_ack)
        return None if delivery is None else _received(delivery, channel, no_ack)

    @asynccontextmanager
    async def iterator(self) -> AsyncIterator[AsyncIterator[aio_pika.IncomingMessage]]:
        channel, consumer = await self._consumer(False, None)

        async def messages() -> AsyncIterator[aio_pika.IncomingMessage]:
            async for delivery in consumer:
                yield _received(delivery, channel, False)

        try:
            yield messages()
        finally:
            await self.channel.briefly(_give_back(channel, consumer))

    async def _consumer(self, no_ack: bool, arguments: Mapping[str, Value] | None) -> tuple[Channel, Consumer]:
        # replies arrive only on the channel that published the requests (RabbitMQ, "Direct Reply-to")
        channel = await (self.channel.publishing() if self.name == REPLY_TO else self.channel.consuming())
        return channel, await channel.consume(self.name, no_ack, arguments=dict(arguments) if arguments else None)

    async def _serve(
        self, tag: str, channel: Channel, callback: OnMessage, no_ack: bool, arguments: Mapping[str, Value] | None
    ) -> None:
        """Call the callback for each message, in a task of its own, until cancel()."""
        try:
            while tag in self._consumers:
                try:
                    async for delivery in self._consumers[tag]:
                        self._start(callback(_received(delivery, channel, no_ack)))
                except ChannelClosed as error:
                    if self.channel.is_closed:
                        return
                    log.warning("Queue %s is consumed again, since the broker closed the channel: %s", self.name, error)
                    channel, consumer = await self._consumer(no_ack, arguments)
                    self._consumers[tag] = consumer
        except ClientError as error:
            if not self.channel.is_closed:
                log.error("Queue %s is not consumed any more: %s", self.name, error)

    def _start(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _AioPikaAcknowledgements:
    """The part of aiormq's channel that an aio_pika.IncomingMessage uses."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.connection = self

    @property
    def is_closed(self) -> bool:
        return self._channel.is_closed

    async def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        self._channel.ack(delivery_tag, multiple)

    async def basic_nack(self, delivery_tag: int, multiple: bool = False, requeue: bool = True) -> None:
        self._channel.nack(delivery_tag, multiple, requeue)

    async def basic_reject(self, delivery_tag: int, requeue: bool = True) -> None:
        self._channel.reject(delivery_tag, requeue)


async def _give_back(channel: Channel, consumer: Consumer) -> None:
    """End a consumer, and requeue what has arrived and was not iterated."""
    await consumer.cancel()
    async for delivery in consumer:
        if not channel.is_closed:
            channel.nack(delivery.delivery_tag)


def _sent(message: AbstractMessage) -> Properties:
    """Return the properties of an aio-pika message for leveret's client."""
    given = message.properties
    return Properties(
        content_type=given.content_type,
        content_encoding=given.content_encoding,
        headers=cast("dict[str, Value]", dict(given.headers)) if given.headers else None,
        delivery_mode=given.delivery_mode,
        priority=given.priority,
        correlation_id=given.correlation_id,
        reply_to=given.reply_to,
        expiration=given.expiration,
        message_id=given.message_id,
        timestamp=None if given.timestamp is None else int(given.timestamp.timestamp()),
        type=given.message_type,
        user_id=given.user_id,
        app_id=given.app_id,
    )


def _received(delivery: Delivery, channel: Channel, no_ack: bool) -> aio_pika.IncomingMessage:
    """Return a delivery as an aio-pika message that is acknowledged on its channel."""
    given = delivery.properties
    properties = Basic.Properties(
        content_type=given.content_type,
        content_encoding=given.content_encoding,
        headers=cast(Any, given.headers),
        delivery_mode=given.delivery_mode,
        priority=given.priority,
        correlation_id=given.correlation_id,
        reply_to=given.reply_to,
        expiration=given.expiration,
        message_id=given.message_id,
        timestamp=None if given.timestamp is None else datetime.fromtimestamp(given.timestamp, UTC),
        message_type=given.type,
        user_id=given.user_id,
        app_id=given.app_id,
    )
    deliver = Basic.Deliver(
        consumer_tag=delivery.consumer_tag,
        delivery_tag=delivery.delivery_tag,
        redelivered=delivery.redelivered,
        exchange=delivery.exchange,
        routing_key=delivery.routing_key,
    )
    return aio_pika.IncomingMessage(
        DeliveredMessage(
            delivery=deliver,
            header=ContentHeader(0, len(delivery.body), properties),
            body=delivery.body,
            channel=cast(AbstractChannel, _AioPikaAcknowledgements(channel)),
        ),
        no_ack=no_ack,
    )
