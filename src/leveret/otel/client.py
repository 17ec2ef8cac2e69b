"""A wrapper for a channel of leveret's client that makes spans of publishes and deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider

from leveret.client import Channel, Consumer, Delivery, Properties
from leveret.client.requests import Arguments
from leveret.otel.carrier import GETTER, SETTER
from leveret.otel.conventions import DELIVERY_TAG, ERROR_TYPE, SUBSCRIPTION, Attributes, attributes

__all__ = ["TracedChannel", "TracedConsumer"]

NAME = "leveret.client"


class TracedChannel:
    """A channel whose publishes and deliveries are spans.

    A span begins with the publish and ends with its confirm. Its context is put into the message's headers, unless they
    have a context already: programs that forward messages do not break traces.

    Args:
        channel: the wrapped channel; use it directly for everything that this class does not define.
        provider: the tracer provider; None for the global one.
        propagator: the propagator; None for the global one.
    """

    def __init__(
        self, channel: Channel, provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None
    ) -> None:
        self.channel = channel
        self._tracer = trace.get_tracer(NAME, tracer_provider=provider)
        self._propagator = propagator or propagate.get_global_textmap()

    def publish(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        mandatory: bool = False,
    ) -> asyncio.Future[None]:
        """As Channel.publish. The span is an error if the message is nacked or returned, or the channel closes."""
        given = properties or Properties()
        headers = dict(given.headers or {})
        known = attributes("publish", "send", exchange, routing_key, "", given, len(body))
        span = self._tracer.start_span(f"publish {known['messaging.destination.name']}", kind=SpanKind.PRODUCER,
                                       attributes=known)  # fmt: skip
        if "traceparent" not in headers:
            self._propagator.inject(headers, trace.set_span_in_context(span), SETTER)
        try:
            future = self.channel.publish(
                body, exchange, routing_key, replace(given, headers=headers or None), mandatory
            )
        except BaseException as error:
            _fail(span, error)
            span.end()
            raise
        future.add_done_callback(lambda done: _end(span, done))
        return future

    async def consume(
        self, queue: str, no_ack: bool = False, exclusive: bool = False, tag: str = "", arguments: Arguments = None
    ) -> TracedConsumer:
        """Consume like Channel.consume; handle each delivery within `process`."""
        return TracedConsumer(self, queue, await self.channel.consume(queue, no_ack, exclusive, tag, arguments))

    @contextmanager
    def process(self, delivery: Delivery, queue: str = "") -> Iterator[Span]:
        """Open a span for handling a message, as a child of its publish; it is current within the block.

        An exception that leaves the block marks the span as an error.
        """
        sent = self._propagator.extract(delivery.properties.headers or {}, getter=GETTER)
        known = self._of("process", "process", delivery, queue)
        with self._tracer.start_as_current_span(f"process {queue or known['messaging.destination.name']}", sent,
                                                SpanKind.CONSUMER, known) as span:  # fmt: skip
            yield span

    def ack(self, delivery: Delivery, queue: str = "") -> None:
        """Acknowledge a delivery, and record it as a span."""
        self._settle("ack", delivery, queue)
        self.channel.ack(delivery.delivery_tag)

    def nack(self, delivery: Delivery, queue: str = "", requeue: bool = True) -> None:
        """Reject a delivery, and record it as a span."""
        self._settle("requeue" if requeue else "nack", delivery, queue)
        self.channel.nack(delivery.delivery_tag, requeue=requeue)

    def _settle(self, name: str, delivery: Delivery, queue: str) -> None:
        """Record a settlement as a child of the current span, with a link to a publish in another trace."""
        sent = self._propagator.extract(delivery.properties.headers or {}, contexts.Context(), GETTER)
        published = trace.get_current_span(sent).get_span_context()
        here = trace.get_current_span().get_span_context()
        links = [Link(published)] if published.is_valid and published.trace_id != here.trace_id else []
        known = self._of(name, "settle", delivery, queue)
        self._tracer.start_span(f"{name} {queue or known['messaging.destination.name']}", kind=SpanKind.CLIENT,
                                attributes=known, links=links).end()  # fmt: skip

    def _of(self, name: str, kind: str, delivery: Delivery, queue: str) -> Attributes:
        size = len(delivery.body)
        known = attributes(name, kind, delivery.exchange, delivery.routing_key, queue, delivery.properties, size)
        known[DELIVERY_TAG] = delivery.delivery_tag
        if queue:
            known[SUBSCRIPTION] = queue
        return known


class TracedConsumer:
    """A consumer's deliveries, with the name of their queue."""

    def __init__(self, channel: TracedChannel, queue: str, consumer: Consumer) -> None:
        self.queue = queue
        self.consumer = consumer
        self._channel = channel

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        async for delivery in self.consumer:
            yield delivery

    @contextmanager
    def process(self, delivery: Delivery) -> Iterator[Span]:
        """Open the span of TracedChannel.process for this queue; acknowledge the message within the block."""
        with self._channel.process(delivery, self.queue) as span:
            yield span

    def ack(self, delivery: Delivery) -> None:
        """Acknowledge a delivery, and record it as a span."""
        self._channel.ack(delivery, self.queue)

    async def cancel(self) -> None:
        """Stop consuming."""
        await self.consumer.cancel()


def _end(span: Span, done: asyncio.Future[None]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        _fail(span, error)
    span.end()


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute(ERROR_TYPE, type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
