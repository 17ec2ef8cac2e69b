"""RPC without asyncio: one request at a time, or a list of them pipelined. See rpc.py for the rules."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from types import TracebackType

from leveret.client.blocking_channel import BlockingChannel
from leveret.client.correlation import Correlation, request_properties
from leveret.client.errors import RpcTimeout, Unroutable
from leveret.client.model import Delivery
from leveret.client.requests import REPLY_TO
from leveret.wire.properties import Properties


class BlockingRpc:
    """An RPC client, made by BlockingConnection.rpc(), with a channel of its own. Use it from one thread at a time.

    A context manager that closes the channel.

    Attributes:
        reply_to (str): The queue to which replies are sent: a pseudo-queue (direct reply-to), or an exclusive queue.
    """

    def __init__(self, channel: BlockingChannel, reply_queue: bool) -> None:
        self.reply_to = REPLY_TO
        self._channel = channel
        self._correlation = Correlation()
        self._pending: dict[str, tuple[int, float]] = {}  # by correlation id: index of the request, deadline
        if reply_queue:
            self.reply_to = channel.declare_queue("", durable=False, exclusive=True, auto_delete=True).name
        channel.on_return(self._on_return)
        channel.consume(self.reply_to, no_ack=True)

    def call(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        timeout_s: float = 30.0,
        mandatory: bool = False,
    ) -> Delivery:
        """Send one request and wait for its reply; parameters and errors are those of calls()."""
        return self.calls([body], exchange, routing_key, 1, timeout_s, properties, mandatory)[0]

    def calls(
        self,
        bodies: Sequence[bytes],
        exchange: str = "",
        routing_key: str = "",
        window: int = 256,
        timeout_s: float = 30.0,
        properties: Properties | None = None,
        mandatory: bool = False,
    ) -> list[Delivery]:
        """Send one request per body and return the replies in the order of the bodies.

        After an error, the replies to the requests that were sent before are dropped when they arrive.

        Args:
            bodies: Contents of the requests.
            exchange: Exchange to publish to.
            routing_key: Routing key of the requests.
            window: How many requests may be unanswered at a time, at least 1.
            timeout_s: Seconds that each request may wait for its reply.
            properties: Properties of the requests; reply_to and correlation_id are set here.
            mandatory: Fail if no queue takes a request.

        Raises:
            RpcTimeout: A request had no reply after timeout_s seconds.
            Unroutable: mandatory is set, and no queue took a request.
            ValueError: window is less than 1.
        """
        if window < 1:
            raise ValueError(f"window is the number of requests unanswered at a time, at least 1, not {window}")
        self._channel.interrupt(None)
        replies: dict[int, Delivery] = {}
        pending = self._pending = {}
        sent = 0
        while len(replies) < len(bodies):
            while sent < len(bodies) and len(pending) < window:
                correlation_id = self._correlation.next_id()
                pending[correlation_id] = (sent, monotonic() + timeout_s)
                request = request_properties(properties, correlation_id, self.reply_to)
                self._channel.publish(bodies[sent], exchange, routing_key, request, mandatory)
                sent += 1
            self._take_replies(replies, window, timeout_s)
        return [replies[index] for index in range(len(bodies))]

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def __enter__(self) -> BlockingRpc:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take_replies(self, replies: dict[int, Delivery], window: int, timeout_s: float) -> None:
        """Wait for a reply to any pending request and take all replies that have arrived."""
        oldest = next(iter(self._pending))
        left = self._pending[oldest][1] - monotonic()
        arrived = self._channel.deliveries(window, max(0.0, left))
        if not arrived and left <= 0:
            raise RpcTimeout(oldest, timeout_s)
        for delivery in arrived:
            waiting = self._pending.pop(delivery.properties.correlation_id or "", None)
            if waiting is not None:
                replies[waiting[0]] = delivery

    def _on_return(self, error: Unroutable) -> None:
        if error.properties.correlation_id in self._pending:
            self._channel.interrupt(error)
