"""The spans of one channel's publishes and deliveries."""

from __future__ import annotations

import sys
from dataclasses import replace

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from leveret.client import Delivery, Properties
from leveret.otel.carrier import GETTER, SETTER
from leveret.otel.conventions import DELIVERY_TAG, DESTINATION, ERROR_TYPE, SUBSCRIPTION, attributes


class Processing:
    """The span of a delivery, and the context that was current before."""

    def __init__(self, span: Span, sent: Context) -> None:
        self.span = span
        self._inner = trace.set_span_in_context(span, sent)
        self._outer = contexts.get_current()

    def enter(self) -> None:
        """Make the span current."""
        contexts.attach(self._inner)

    def leave(self) -> None:
        """Make the outer context current again where the span is current."""
        if trace.get_current_span() is self.span:
            contexts.attach(self._outer)


class MessageSpans:
    """Begins and ends the spans of one channel."""

    def __init__(self, tracer: Tracer, propagator: TextMapPropagator) -> None:
        self._tracer = tracer
        self._propagator = propagator
        self._processing: dict[int, Processing] = {}  # by delivery tag

    def publish(
        self, body: bytes, exchange: str, routing_key: str, properties: Properties | None
    ) -> tuple[Span, Properties]:
        """Begin the span of a publish; return it and the properties with its context, unless they have one."""
        given = properties or Properties()
        headers = dict(given.headers or {})
        known = attributes("publish", "send", exchange, routing_key, "", given, len(body))
        span = self._tracer.start_span(f"publish {known[DESTINATION]}", kind=SpanKind.PRODUCER, attributes=known)
        if "traceparent" not in headers:
            self._propagator.inject(headers, trace.set_span_in_context(span), SETTER)
        return span, replace(given, headers=headers or None)

    def begin(self, delivery: Delivery, queue: str, no_ack: bool) -> Processing:
        """Begin the span of a delivery.

        Without acknowledgements it ends at once, since nobody learns how long the message is handled.
        """
        operation = "receive" if no_ack else "process"
        known = attributes(operation, operation, delivery.exchange, delivery.routing_key, queue, delivery.properties,
                           len(delivery.body))  # fmt: skip
        known |= {DELIVERY_TAG: delivery.delivery_tag, SUBSCRIPTION: queue}
        sent = self._propagator.extract(delivery.headers, getter=GETTER)
        span = self._tracer.start_span(f"{operation} {queue}", sent, SpanKind.CONSUMER, known)
        processing = Processing(span, sent)
        if no_ack:
            span.end()
        else:
            self._processing[delivery.delivery_tag] = processing
        return processing

    def end(self, tag: int, multiple: bool) -> None:
        """End the spans of settled deliveries, as errors in an except clause: then the exception is why."""
        tags = [each for each in self._processing if each <= tag or tag == 0] if multiple else [tag]
        error = sys.exception()
        for each in tags:
            processing = self._processing.pop(each, None)
            if processing is not None:
                if error is not None:
                    fail(processing.span, error)
                processing.span.end()
                processing.leave()


def fail(span: Span, error: BaseException) -> None:
    """Mark a span as failed by this error."""
    span.set_attribute(ERROR_TYPE, type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
