"""Spans of what a connection of leveret's client publishes and receives: `instrument(connection)`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from opentelemetry import propagate, trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, TracerProvider

from leveret.client import BlockingChannel, BlockingConnection, Channel, Connection, Consumer, Delivery, Properties
from leveret.client.aio_channel import ChannelConnection
from leveret.client.blocking_channel import BlockingLink
from leveret.client.protocol.requests import Arguments
from leveret.otel.spans import MessageSpans, Processing, fail

__all__ = ["instrument"]

NAME = "leveret.client"


def instrument(
    connection: Connection | BlockingConnection,
    provider: TracerProvider | None = None,
    propagator: TextMapPropagator | None = None,
) -> None:
    """Trace the channels that are opened on the connection from now on, and its RPC clients and servers.

    A publish is a span until its confirm, on a blocking connection until publish() returns. Its context goes into the
    message's headers, unless these have one already: a program that passes messages on does not break traces. A
    delivery is a span, a child of its publish, from its iteration until it is acknowledged or rejected. It is the
    current span meanwhile, also of tasks that begin then, unless BlockingChannel.deliveries() returned it with others.

    Args:
        connection: The connection.
        provider: The tracer provider; None = the global one.
        propagator: The propagator; None = the global one.
    """
    tracer = trace.get_tracer(NAME, tracer_provider=provider)
    used = propagator or propagate.get_global_textmap()
    if isinstance(connection, Connection):
        connection.new_channel = lambda link: TracedChannel(link, MessageSpans(tracer, used))
    else:
        connection.new_channel = lambda link: TracedBlockingChannel(link, MessageSpans(tracer, used))


class TracedChannel(Channel):
    """A channel of an instrumented connection."""

    def __init__(self, link: ChannelConnection, spans: MessageSpans) -> None:
        super().__init__(link)
        self.spans = spans
        self._core.on_acknowledged = spans.end

    def publish(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        mandatory: bool = False,
        timeout_s: float | None = None,
    ) -> asyncio.Future[None]:
        """As Channel.publish. The span is an error if the message is nacked or returned, or the channel closes."""
        span, sent = self.spans.publish(body, exchange, routing_key, properties)
        try:
            future = super().publish(body, exchange, routing_key, sent, mandatory, timeout_s)
        except BaseException as error:
            fail(span, error)
            span.end()
            raise
        future.add_done_callback(partial(_end, span))
        return future

    async def get(self, queue: str, no_ack: bool = False) -> Delivery | None:
        """As Channel.get."""
        delivery = await super().get(queue, no_ack)
        if delivery is not None:
            self.spans.begin(delivery, queue, no_ack).enter()
        return delivery

    def _new_consumer(self, queue: str, tag: str, no_ack: bool) -> Consumer:
        return TracedConsumer(self, queue, tag, no_ack)


class TracedConsumer(Consumer):
    """A consumer of an instrumented connection."""

    def __init__(self, channel: TracedChannel, queue: str, tag: str, no_ack: bool) -> None:
        super().__init__(channel, tag, no_ack)
        self._traced = channel
        self._queue = queue
        self._begun: Processing | None = None

    async def __anext__(self) -> Delivery:
        if self._begun is not None:
            self._begun.leave()
        delivery = await super().__anext__()
        self._begun = self._traced.spans.begin(delivery, self._queue, self._no_ack)
        self._begun.enter()
        return delivery


class TracedBlockingChannel(BlockingChannel):
    """A channel of an instrumented blocking connection."""

    def __init__(self, link: BlockingLink, spans: MessageSpans) -> None:
        super().__init__(link)
        self._spans = spans
        self._core.on_acknowledged = spans.end
        self._consumed: dict[str, tuple[str, bool]] = {}  # queue and no_ack by consumer tag
        self._begun: Processing | None = None

    def publish(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        mandatory: bool = False,
    ) -> int:
        """As BlockingChannel.publish."""
        span, sent = self._spans.publish(body, exchange, routing_key, properties)
        try:
            return super().publish(body, exchange, routing_key, sent, mandatory)
        except BaseException as error:
            fail(span, error)
            raise
        finally:
            span.end()

    def consume(
        self,
        queue: str,
        no_ack: bool = False,
        exclusive: bool = False,
        tag: str = "",
        arguments: Arguments = None,
        prefetch_count: int | None = None,
        deliver: Callable[[Delivery], None] | None = None,
    ) -> str:
        """As BlockingChannel.consume."""

        def traced(delivery: Delivery) -> None:
            assert deliver is not None
            processing = self._spans.begin(delivery, queue, no_ack)
            processing.enter()
            try:
                deliver(delivery)
            finally:
                processing.leave()

        told = traced if deliver is not None else None
        found = super().consume(queue, no_ack, exclusive, tag, arguments, prefetch_count, told)
        self._consumed[found] = queue, no_ack
        return found

    def next_delivery(self, timeout_s: float | None = None) -> Delivery | None:
        """As BlockingChannel.next_delivery."""
        self._leave()
        delivery = super().next_delivery(timeout_s)
        if delivery is not None:
            self._make_current(delivery, *self._consumed[delivery.consumer_tag])
        return delivery

    def deliveries(self, limit: int, timeout_s: float | None = None) -> list[Delivery]:
        """As BlockingChannel.deliveries. None of their spans is the current one."""
        self._leave()
        found = super().deliveries(limit, timeout_s)
        for delivery in found:
            self._spans.begin(delivery, *self._consumed[delivery.consumer_tag])
        return found

    def get(self, queue: str, no_ack: bool = False) -> Delivery | None:
        """As BlockingChannel.get."""
        self._leave()
        delivery = super().get(queue, no_ack)
        if delivery is not None:
            self._make_current(delivery, queue, no_ack)
        return delivery

    def _leave(self) -> None:
        if self._begun is not None:
            self._begun.leave()

    def _make_current(self, delivery: Delivery, queue: str, no_ack: bool) -> None:
        self._begun = self._spans.begin(delivery, queue, no_ack)
        self._begun.enter()


def _end(span: Span, done: asyncio.Future[None]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        fail(span, error)
    span.end()
