"""The server's side of RPC without asyncio: plain functions answer the requests in queues, one after the other."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from leveret.client.blocking import BlockingConnection
from leveret.client.protocol.codecs import Codec
from leveret.client.protocol.model import Delivery
from leveret.client.rpc_server import PREFETCH, ServedQueue, check_prefetch
from leveret.wire.properties import Properties

STOP_S: Final = 0.2
"""How often run() looks whether stop() was called, in seconds."""
FLUSH_S: Final = 0.001
"""How long a reply may wait for those behind it, so that replies of fast handlers are sent together, in seconds."""

Handler = Callable[[Any], Any]


class BlockingRpcServer:
    """Answers the requests in queues by functions: `@server.serve("queue")`, then `server.run()`.

    As :class:`RpcServer`, but requests are handled one at a time, on the thread that calls run(): run several servers,
    each with a connection of its own, to handle several. A request is acknowledged behind its reply on the same
    channel, so no request is lost without a reply.

    Args:
        connection: The connection to serve on. The server opens a channel of its own.
    """

    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection
        self._served: list[ServedQueue] = []
        self._stopping = threading.Event()

    def serve(
        self,
        queue: str,
        *,
        codec: Codec[Any] | None = None,
        reply_codec: Codec[Any] | None = None,
        prefetch: int = PREFETCH,
        requeue: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Return a decorator for the handler of a queue, which must exist when the server starts.

        Args:
            queue: Name of the queue.
            codec: The handler gets the decoded object and returns one; None = it gets the Delivery and returns the body
                of the reply, where None is an empty one. A request that cannot be decoded is rejected without requeue.
            reply_codec: Encodes the reply; None = codec does.
            prefetch: How many requests are fetched at a time, 1 to 65535.
            requeue: Requeue a request whose handler raises an exception, so that it is tried again at once, without
                end; otherwise it is dead-lettered or dropped.

        Raises:
            TypeError: The handler is a coroutine function, which needs RpcServer.
            ValueError: prefetch is out of range.
        """
        check_prefetch(prefetch)

        def add(handler: Handler) -> Handler:
            if inspect.iscoroutinefunction(handler):
                raise TypeError(f"{handler!r} is a coroutine function: use RpcServer and an asyncio connection")
            self._served.append(ServedQueue(queue, handler, prefetch, codec, reply_codec or codec, requeue))
            return handler

        return add

    def run(self) -> None:
        """Serve until stop() is called, or the calling thread is interrupted; requests not yet handled are requeued.

        Raises:
            ChannelClosed: A queue does not exist (404) or cannot be consumed from.
            ConsumerCancelled: A queue was deleted.
            ConnectionClosed: The connection is lost for good, or was closed.
            ValueError: The server has no handlers.
        """
        if not self._served:
            raise ValueError("the server has no handlers: add them with @server.serve(queue) before it runs")
        self._stopping.clear()
        with self._connection.channel() as channel:
            by_tag = {
                channel.consume(served.queue, prefetch_count=served.prefetch): served for served in self._served
            }
            most = max(served.prefetch for served in self._served)
            while not self._stopping.is_set():
                flushed_s = monotonic()
                for request in channel.deliveries(most, STOP_S):
                    if self._stopping.is_set():
                        break
                    _handle(by_tag[request.consumer_tag], request, channel.publish)
                    if monotonic() - flushed_s > FLUSH_S:
                        channel.flush()
                        flushed_s = monotonic()
                channel.flush()

    def stop(self) -> None:
        """Let run() return after the request that is being handled; from any thread, or a handler."""
        self._stopping.set()


def _handle(served: ServedQueue, request: Delivery, publish: Callable[..., object]) -> None:
    """Answer a request and acknowledge it, or reject it."""
    try:
        body = served.body(served.handler(served.argument(request)))
    except Exception as error:
        served.reject(request, error)
        return
    if request.reply_to:
        publish(body, "", request.reply_to, Properties(correlation_id=request.correlation_id))
    request.ack()
