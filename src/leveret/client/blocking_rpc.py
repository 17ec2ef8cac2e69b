"""RPC without asyncio: one request at a time, or a list of them pipelined. See rpc.py for the rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from types import TracebackType

from leveret.client.blocking_channel import BlockingChannel
from leveret.client.correlation import Correlation, request_properties
from leveret.client.protocol.errors import RpcInterrupted, RpcTimeout, Unroutable
from leveret.client.protocol.model import Delivery
from leveret.client.protocol.requests import REPLY_TO
from leveret.wire.properties import Properties


class _Request:
    """A request without a reply: its index in the call, its deadline (monotonic), and what sends it."""

    def __init__(self, index: int, deadline: float, publish: Callable[[], object]) -> None:
        self.index = index
        self.deadline = deadline
        self.publish = publish
        self.is_sent = False


class BlockingRpc:
    """An RPC client, made by BlockingConnection.rpc(), with a channel of its own. Use it from one thread at a time.

    A context manager that closes the channel.

    """

    def __init__(self, channel: BlockingChannel, reply_queue: bool) -> None:
        self._reply_to = REPLY_TO
        self._channel = channel
        self._correlation = Correlation()
        self._pending: dict[str, _Request] = {}  # requests without a reply, by correlation id
        self._is_idempotent = False
        if reply_queue:
            self._reply_to = channel.declare_queue("", durable=False, exclusive=True, auto_delete=True).name
        channel.on_return(self._on_return)
        channel.when_interrupted(self._interrupted, self._send_all)
        channel.consume(self._reply_to, no_ack=True)

    @property
    def reply_to(self) -> str:
        """The queue to which replies are sent: a pseudo-queue (direct reply-to), or an exclusive queue."""
        return self._channel.present_name(self._reply_to)

    def call(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        timeout_s: float = 30.0,
        mandatory: bool = False,
        idempotent: bool = False,
    ) -> Delivery:
        """Send one request and wait for its reply; parameters and errors are those of calls()."""
        return self.calls([body], exchange, routing_key, 1, timeout_s, properties, mandatory, idempotent)[0]

    def calls(
        self,
        bodies: Sequence[bytes],
        exchange: str = "",
        routing_key: str = "",
        window: int = 256,
        timeout_s: float = 30.0,
        properties: Properties | None = None,
        mandatory: bool = False,
        idempotent: bool = False,
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
            idempotent: Send a request again, with the same correlation id, if the connection is lost before its reply
                and restored: carrying it out twice has the same result as once.

        Raises:
            RpcTimeout: A request had no reply after timeout_s seconds.
            RpcInterrupted: The connection was lost after a request was sent, and it is not idempotent.
            Unroutable: mandatory is set, and no queue took a request.
            ValueError: window is less than 1.
        """
        if window < 1:
            raise ValueError(f"window is the number of requests unanswered at a time, at least 1, not {window}")
        self._channel.interrupt(None)
        replies: dict[int, Delivery] = {}
        self._is_idempotent = idempotent
        pending = self._pending = {}

        def publish(body: bytes, correlation_id: str) -> None:
            request = request_properties(properties, correlation_id, self.reply_to)
            self._channel.publish(body, exchange, routing_key, request, mandatory)

        asked = 0
        try:
            while len(replies) < len(bodies):
                while asked < len(bodies) and len(pending) < window:
                    correlation_id = self._correlation.next_id()
                    send = partial(publish, bodies[asked], correlation_id)
                    pending[correlation_id] = request = _Request(asked, monotonic() + timeout_s, send)
                    asked += 1
                    if not self._channel.is_interrupted:
                        self._send(request)
                self._take_replies(replies, window, timeout_s)
        finally:
            self._pending = {}  # none of them is sent again
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
        left = self._pending[oldest].deadline - monotonic()
        arrived = self._channel.deliveries(window, max(0.0, left))
        if not arrived and left <= 0:
            raise RpcTimeout(oldest, timeout_s)
        for delivery in arrived:
            waiting = self._pending.pop(delivery.properties.correlation_id or "", None)
            if waiting is not None:
                replies[waiting.index] = delivery

    def _on_return(self, error: Unroutable) -> None:
        if error.properties.correlation_id in self._pending:
            self._channel.interrupt(error)

    def _send(self, request: _Request) -> None:
        request.is_sent = True  # before: the connection may be lost while it is published
        request.publish()

    def _interrupted(self) -> None:
        sent = [correlation_id for correlation_id, request in self._pending.items() if request.is_sent]
        if sent and not self._is_idempotent:
            self._channel.interrupt(RpcInterrupted(sent[0]))

    def _send_all(self) -> None:
        """Send the requests that were made while the connection was lost, and idempotent ones once more."""
        for request in list(self._pending.values()):
            if self._is_idempotent or not request.is_sent:
                self._send(request)
