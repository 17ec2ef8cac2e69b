"""Spans of what an asyncio connection of leveret's client publishes and receives: `instrument(connection)`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from leveret.client import Channel, Connection, Consumer, Delivery, Properties
from leveret.client.aio_channel import ChannelConnection
from leveret.otel.carrier import GETTER, SETTER
from leveret.otel.conventions import DELIVERY_TAG, DESTINATION, ERROR_TYPE, SUBSCRIPTION, attributes

__all__ = ["instrument"]

NAME = "leveret.client"


def instrument(
    connection: Connection, provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None
) -> None:
    """Trace the channels that are opened on the connection from now on, and its RPC clients and servers.

    A publish is a span until its confirm. Its context goes into the message's headers, unless these have one already: a
    program that passes messages on does not break traces. A delivery is a span, a child of its publish, from its
    iteration until it is acknowledged or rejected. It is the current span meanwhile, also of tasks that begin then.

    Args:
        connection: The connection.
        provider: The tracer provider; None = the global one.
        propagator: The propagator; None = the global one.
    """
    tracer = trace.get_tracer(NAME, tracer_provider=provider)
    used = propagator or propagate.get_global_textmap()
    connection.new_channel = lambda link: TracedChannel(link, tracer, used)


class _Processing(NamedTuple):
    """The span of a delivery that is not settled, and the context that was current before."""

    span: Span
    outer: Context

    def leave(self) -> None:
        """Make the outer context current again where the span is current."""
        if trace.get_current_span() is self.span:
            contexts.attach(self.outer)


class TracedChannel(Channel):
    """A channel of an instrumented connection."""

    def __init__(self, link: ChannelConnection, tracer: Tracer, propagator: TextMapPropagator) -> None:
        super().__init__(link)
        self._tracer = tracer
        self._propagator = propagator
        self._processing: dict[int, _Processing] = {}  # by delivery tag

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
        given = properties or Properties()
        headers = dict(given.headers or {})
        known = attributes("publish", "send", exchange, routing_key, "", given, len(body))
        span = self._tracer.start_span(f"publish {known[DESTINATION]}", kind=SpanKind.PRODUCER, attributes=known)
        if "traceparent" not in headers:
            self._propagator.inject(headers, trace.set_span_in_context(span), SETTER)
        sent = replace(given, headers=headers or None)
        try:
            future = super().publish(body, exchange, routing_key, sent, mandatory, timeout_s)
        except BaseException as error:
            _fail(span, error)
            span.end()
            raise
        future.add_done_callback(partial(_end, span))
        return future

    async def get(self, queue: str, no_ack: bool = False) -> Delivery | None:
        """As Channel.get."""
        delivery = await super().get(queue, no_ack)
        if delivery is not None:
            self.begin(delivery, queue, no_ack)
        return delivery

    def begin(self, delivery: Delivery, queue: str, no_ack: bool) -> _Processing:
        """Begin the span of a delivery and make it current; for this package only.

        Without acknowledgements it ends at once, since nobody learns how long the message is handled.
        """
        operation = "receive" if no_ack else "process"
        known = attributes(operation, operation, delivery.exchange, delivery.routing_key, queue, delivery.properties,
                           len(delivery.body))  # fmt: skip
        known |= {DELIVERY_TAG: delivery.delivery_tag, SUBSCRIPTION: queue}
        sent = self._propagator.extract(delivery.headers, getter=GETTER)
        span = self._tracer.start_span(f"{operation} {queue}", sent, SpanKind.CONSUMER, known)
        processing = _Processing(span, contexts.get_current())
        contexts.attach(trace.set_span_in_context(span, sent))
        if no_ack:
            span.end()
        else:
            self._processing[delivery.delivery_tag] = processing
        return processing

    def ack(self, tag: int, multiple: bool = False) -> bool:
        """As Channel.ack; ends the spans."""
        is_sent = super().ack(tag, multiple)
        self._end_spans(tag, multiple)
        return is_sent

    def nack(self, tag: int, multiple: bool = False, requeue: bool = True) -> bool:
        """As Channel.nack; ends the spans."""
        is_sent = super().nack(tag, multiple, requeue)
        self._end_spans(tag, multiple)
        return is_sent

    def reject(self, tag: int, requeue: bool = True) -> bool:
        """As Channel.reject; ends the span."""
        is_sent = super().reject(tag, requeue)
        self._end_spans(tag, False)
        return is_sent

    def _new_consumer(self, queue: str, tag: str, no_ack: bool) -> Consumer:
        return TracedConsumer(self, queue, tag, no_ack)

    def _end_spans(self, tag: int, multiple: bool) -> None:
        """End spans, as errors if this is done in an except clause: then the exception is why."""
        tags = [each for each in self._processing if each <= tag or tag == 0] if multiple else [tag]
        error = sys.exception()
        for each in tags:
            processing = self._processing.pop(each, None)
            if processing is not None:
                if error is not None:
                    _fail(processing.span, error)
                processing.span.end()
                processing.leave()


class TracedConsumer(Consumer):
    """A consumer of an instrumented connection."""

    def __init__(self, channel: TracedChannel, queue: str, tag: str, no_ack: bool) -> None:
        super().__init__(channel, tag, no_ack)
        self._traced = channel
        self._queue = queue
        self._begun: _Processing | None = None

    async def __anext__(self) -> Delivery:
        if self._begun is not None:
            self._begun.leave()
        delivery = await super().__anext__()
        self._begun = self._traced.begin(delivery, self._queue, self._no_ack)
        return delivery


def _end(span: Span, done: asyncio.Future[None]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        _fail(span, error)
    span.end()


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute(ERROR_TYPE, type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
