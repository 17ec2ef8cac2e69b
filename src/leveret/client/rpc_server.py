"""The server's side of RPC: handlers of requests, by queue.

A request is acknowledged when its reply is confirmed. So a request whose connection was lost comes again, and its
handler may run twice: handlers should be idempotent. The caller drops the second reply.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, TypeVar, overload

from leveret.client.aio_channel import Channel, Consumer
from leveret.client.protocol.codecs import Codec
from leveret.client.protocol.errors import ClientError, UndecodableBody
from leveret.client.protocol.model import Delivery
from leveret.wire.properties import Properties

log: Final = logging.getLogger("leveret.client")

Q = TypeVar("Q")
R = TypeVar("R")
PREFETCH: Final = 10


class ChannelOpener(Protocol):
    """What a server needs of a connection."""

    async def channel(self, confirms: bool = False) -> Channel: ...


class ServedQueue(NamedTuple):
    """A queue with its handler, which takes the delivery, or the object that codec decodes."""

    queue: str
    handler: Callable[[Any], Any]
    prefetch: int
    codec: Codec[Any] | None
    reply_codec: Codec[Any] | None
    requeue: bool

    def argument(self, request: Delivery) -> Any:
        """Return what the handler gets. Raises UndecodableBody."""
        return request if self.codec is None else request.decode(self.codec)

    def body(self, result: Any) -> bytes:
        """Return the body of the reply."""
        return self.reply_codec.encode(result) if self.reply_codec is not None else result or b""

    def reject(self, request: Delivery, error: BaseException) -> None:
        """Reject a request whose handler has failed, and log why."""
        requeue = self.requeue and not isinstance(error, UndecodableBody)
        done = "requeued" if requeue else "rejected without requeue: it is dead-lettered or dropped, and gets no reply"
        try:
            if not request.reject(requeue):
                done = "delivered again, because the connection was lost"
        except ClientError as closed:
            done = f"requeued by the broker: {closed}"
        log.error("%r of queue %r has failed and is %s", request, self.queue, done, exc_info=error)


def check_prefetch(prefetch: int) -> None:
    """Raise ValueError for a limit that a consumer of requests cannot have."""
    if not 1 <= prefetch <= 65535:
        raise ValueError(f"prefetch is the number of requests taken at a time, 1 to 65535, not {prefetch}")


class RpcServer:
    """Answers the requests in queues by coroutine functions: `@server.serve("queue")`, then `await server.run()`.

    The reply goes to the request's reply_to with its correlation_id; a request without reply_to is carried out all the
    same. Requests of a queue are handled concurrently, up to the queue's prefetch. If a handler raises an exception,
    the request is rejected and the error logged; its caller gets no reply. On a connection that reconnects, the server
    goes on after a reconnect.

    `async with server:` serves within the block instead. At the end no more requests are taken, and those that are
    being handled are finished; what then still runs after stop_timeout_s is cancelled, and the broker requeues it.

    Args:
        connection: The connection to serve on; each queue gets a channel of its own.
        stop_timeout_s: Seconds that handlers may take to finish at the end.
    """

    def __init__(self, connection: ChannelOpener, stop_timeout_s: float = 30.0) -> None:
        self._connection = connection
        self._stop_timeout_s = stop_timeout_s
        self._served: list[ServedQueue] = []
        self._channels: list[Channel] = []
        self._consumers: list[Consumer] = []
        self._receiving: list[asyncio.Task[None]] = []
        self._handling: set[asyncio.Task[None]] = set()

    @overload
    def serve(
        self, queue: str, *, prefetch: int = PREFETCH, requeue: bool = False
    ) -> Callable[
        [Callable[[Delivery], Awaitable[bytes | None]]], Callable[[Delivery], Awaitable[bytes | None]]
    ]: ...

    @overload
    def serve(
        self, queue: str, *, codec: Codec[Q], prefetch: int = PREFETCH, requeue: bool = False
    ) -> Callable[[Callable[[Q], Awaitable[Q]]], Callable[[Q], Awaitable[Q]]]: ...

    @overload
    def serve(
        self, queue: str, *, codec: Codec[Q], reply_codec: Codec[R], prefetch: int = PREFETCH, requeue: bool = False
    ) -> Callable[[Callable[[Q], Awaitable[R]]], Callable[[Q], Awaitable[R]]]: ...

    def serve(
        self,
        queue: str,
        *,
        codec: Codec[Any] | None = None,
        reply_codec: Codec[Any] | None = None,
        prefetch: int = PREFETCH,
        requeue: bool = False,
    ) -> Callable[[Callable[[Any], Awaitable[Any]]], Callable[[Any], Awaitable[Any]]]:
        """Return a decorator for the handler of a queue, which must exist when the server starts.

        Args:
            queue: Name of the queue.
            codec: The handler gets the decoded object and returns one; None = it gets the Delivery and returns the body
                of the reply, where None is an empty one. A request that cannot be decoded is rejected without requeue.
            reply_codec: Encodes the reply; None = codec does.
            prefetch: How many requests are handled at a time, 1 to 65535.
            requeue: Requeue a request whose handler raises an exception, so that it is tried again at once, without
                end; otherwise it is dead-lettered or dropped.

        Raises:
            TypeError: The handler is no coroutine function (async def).
            ValueError: prefetch is out of range.
        """
        check_prefetch(prefetch)

        def add(handler: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
            if not inspect.iscoroutinefunction(handler):
                raise TypeError(f"a handler must be a coroutine function: write async def for {handler!r}")
            self._served.append(ServedQueue(queue, handler, prefetch, codec, reply_codec or codec, requeue))
            return handler

        return add

    async def run(self) -> None:
        """Serve until the calling task is cancelled.

        Raises:
            ChannelClosed: A queue does not exist (404) or cannot be consumed from.
            ConsumerCancelled: A queue was deleted.
            ConnectionClosed: The connection is lost for good, or was closed.
        """
        async with self:
            done, _ = await asyncio.wait(self._receiving, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    async def __aenter__(self) -> RpcServer:
        if not self._served:
            raise ValueError("the server has no handlers: add them with @server.serve(queue) before it starts")
        try:
            for served in self._served:
                await self._start(served)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _start(self, served: ServedQueue) -> None:
        channel = await self._connection.channel(confirms=True)
        self._channels.append(channel)
        await channel.qos(served.prefetch)
        consumer = await channel.consume(served.queue)
        self._consumers.append(consumer)
        self._receiving.append(asyncio.create_task(self._receive(served, channel, consumer)))

    async def _stop(self) -> None:
        for receiving in self._receiving:
            receiving.cancel()
        await asyncio.gather(*self._receiving, return_exceptions=True)
        try:
            # before Python 3.11.3 asyncio.timeout() raises no TimeoutError in a task that was cancelled
            await asyncio.wait_for(self._finish(), self._stop_timeout_s)
        except TimeoutError:
            log.warning(
                "requests were not finished within %g s: they are cancelled, and the broker requeues them",
                self._stop_timeout_s,
            )
            for late in self._handling:
                late.cancel()
            await asyncio.gather(*self._handling, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in self._channels), return_exceptions=True)
        self._receiving, self._consumers, self._channels = [], [], []

    async def _finish(self) -> None:
        await asyncio.gather(*(consumer.cancel() for consumer in self._consumers), return_exceptions=True)
        await asyncio.gather(*self._handling, return_exceptions=True)

    async def _receive(self, served: ServedQueue, channel: Channel, consumer: Consumer) -> None:
        """Start a task for each request. After a reconnect older tasks may still run, so the prefetch is not enough."""
        slots = asyncio.Semaphore(served.prefetch)
        try:
            while True:
                await slots.acquire()
                task = asyncio.create_task(_handle(served, channel, await anext(consumer)))
                self._handling.add(task)
                task.add_done_callback(self._handling.discard)
                task.add_done_callback(lambda _: slots.release())
        except ClientError as error:
            log.error("queue %r is served no longer: %s", served.queue, error)
            raise


async def _handle(served: ServedQueue, channel: Channel, request: Delivery) -> None:
    """Answer a request and acknowledge it, or reject it."""
    try:
        await _answer(served, channel, request)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # the broker requeues the request when the channel is closed
        served.reject(request, error)  # something that the handler awaited was cancelled
    except Exception as error:
        served.reject(request, error)


async def _answer(served: ServedQueue, channel: Channel, request: Delivery) -> None:
    body = served.body(await served.handler(served.argument(request)))
    if request.reply_to:
        await channel.publish(body, "", request.reply_to, Properties(correlation_id=request.correlation_id))
    request.ack()
