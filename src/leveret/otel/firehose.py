"""Spans of what a broker did with messages, made of what its firehose tells (broker/exchanges/tracing.py).

| event | span | start | end |
|---|---|---|---|
| publish.EXCHANGE | receive EXCHANGE | the publish | its confirm; without confirm mode, the publish |
| publish.EXCHANGE with x-received-from | hop EXCHANGE | the publish by the link | as above |
| deliver.QUEUE | deliver QUEUE | the publish, if its event was seen, else the delivery | the delivery |

The broker's publish span is a child of the publisher's span (the message's traceparent), and its deliveries are
children of the publish span. Messages without a context, or not sampled, get no spans.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from leveret.otel.carrier import GETTER, text_of
from leveret.otel.conventions import (
    CAME_FROM,
    CLUSTER,
    CONFIRM,
    DEATHS,
    REDELIVERED,
    ROUTED,
    SUBSCRIPTION,
    VHOST,
    Attributes,
    attributes,
)
from leveret.wire.properties import Properties

# at most this many publishes, and spans without confirm, are remembered; beyond that, the oldest are dropped or ended
REMEMBERED_MAX: Final = 50_000
_W3C: Final = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class FirehoseEvent:
    """One message of the firehose.

    Attributes:
        key: its routing key on amq.rabbitmq.trace.
        fields: its headers.
        size: the size of its body in bytes.
        now_us: when it arrived here, used for brokers that send no timestamps.
    """

    key: str
    fields: Mapping[str, Any]
    size: int
    now_us: int

    @property
    def time_us(self) -> int:
        time_us = self.fields.get("timestamp_in_us")
        return time_us if isinstance(time_us, int) else self.now_us

    def text(self, name: str) -> str:
        return text_of(self.fields.get(name)) or ""

    @property
    def properties(self) -> Mapping[str, Any]:
        found = self.fields.get("properties")
        return found if isinstance(found, Mapping) else {}

    @property
    def headers(self) -> Mapping[str, Any]:
        found = self.properties.get("headers")
        return found if isinstance(found, Mapping) else {}

    @property
    def routing_key(self) -> str:
        keys = self.fields.get("routing_keys")
        return text_of(keys[0]) or "" if isinstance(keys, list) and keys else ""


class Firehose:
    """A converter of one broker's firehose events, given in order, to spans."""

    def __init__(self, tracer: Tracer, remembered_max: int = REMEMBERED_MAX) -> None:
        self._tracer = tracer
        self._most = remembered_max
        # time of the publish, and the broker's span of it, by traceparent and message id
        self._published: OrderedDict[tuple[str, str], tuple[int, Span]] = OrderedDict()
        # publish spans that wait for their confirm: by connection and channel, then by sequence number
        self._waiting: dict[tuple[str, int], OrderedDict[int, Span]] = {}
        self._waiting_count = 0

    def take(self, event: FirehoseEvent) -> None:
        """Handle one event."""
        kind, _, name = event.key.partition(".")
        if kind == "confirm":
            self._confirmed(event, name)
        elif kind in ("publish", "deliver"):
            context = _W3C.extract(event.headers, trace.set_span_in_context(trace.INVALID_SPAN), GETTER)
            sent = trace.get_current_span(context).get_span_context()
            if sent.is_valid and sent.trace_flags.sampled:
                (self._publish if kind == "publish" else self._deliver)(event, name, context)

    def close(self) -> None:
        """End all spans that still wait for a confirm, at their start time."""
        while self._waiting_count:
            self._give_up()

    def _publish(self, event: FirehoseEvent, exchange: str, context: Any) -> None:
        came_from = event.headers.get("x-received-from")
        operation = "hop" if came_from else "receive"
        found = self._attributes(operation, "receive", event, exchange, "")
        queues = event.fields.get("routed_queues")
        found[ROUTED] = [text_of(queue) or "" for queue in queues] if isinstance(queues, list) else []
        if isinstance(came_from, list) and came_from and isinstance(came_from[0], Mapping):
            found[CAME_FROM] = text_of(came_from[0].get("cluster-name")) or text_of(came_from[0].get("uri")) or ""
        span = self._tracer.start_span(
            f"{operation} {exchange or event.routing_key}",
            context,
            SpanKind.SERVER,
            found,
            start_time=event.time_us * 1000,
        )
        self._remember(event, span)
        number = event.fields.get("publish_seq_no")
        if not isinstance(number, int):
            span.end(event.time_us * 1000)
            return
        self._waiting.setdefault(_channel(event), OrderedDict())[number] = span
        self._waiting_count += 1
        if self._waiting_count > self._most:
            self._give_up()

    def _remember(self, event: FirehoseEvent, span: Span) -> None:
        self._published[_identity(event)] = (event.time_us, span)
        self._published.move_to_end(_identity(event))
        if len(self._published) > self._most:
            self._published.popitem(last=False)

    def _deliver(self, event: FirehoseEvent, queue: str, context: Any) -> None:
        found = self._attributes("deliver", "receive", event, event.text("exchange_name"), queue)
        found[SUBSCRIPTION] = queue
        found[REDELIVERED] = bool(event.fields.get("redelivered"))
        deaths = event.headers.get("x-death")
        if isinstance(deaths, list):
            found[DEATHS] = [
                f"{text_of(death.get('reason'))} in {text_of(death.get('queue'))}"
                for death in deaths
                if isinstance(death, Mapping)
            ]
        since_us, published = self._published.get(_identity(event), (event.time_us, None))
        if published is not None:
            context = trace.set_span_in_context(trace.NonRecordingSpan(published.get_span_context()))
        span = self._tracer.start_span(
            f"deliver {queue}", context, SpanKind.SERVER, found, start_time=min(since_us, event.time_us) * 1000
        )
        span.end(event.time_us * 1000)

    def _confirmed(self, event: FirehoseEvent, word: str) -> None:
        waiting = self._waiting.get(_channel(event))
        first, last = event.fields.get("first_seq_no"), event.fields.get("last_seq_no")
        if waiting is None or not isinstance(first, int) or not isinstance(last, int):
            return
        for number in [each for each in waiting if first <= each <= last]:
            span = waiting.pop(number)
            self._waiting_count -= 1
            span.set_attribute(CONFIRM, word)
            if word == "nack":
                span.set_status(Status(StatusCode.ERROR, "refused: basic.nack"))
            span.end(event.time_us * 1000)
        if not waiting:
            del self._waiting[_channel(event)]

    def _give_up(self) -> None:
        """End the oldest span of the channel that has waited longest for a confirm."""
        channel = next(iter(self._waiting))
        waiting = self._waiting[channel]
        _, span = waiting.popitem(last=False)
        self._waiting_count -= 1
        start_ns = getattr(span, "start_time", None)
        span.end(start_ns)
        if not waiting:
            del self._waiting[channel]

    def _attributes(self, name: str, kind: str, event: FirehoseEvent, exchange: str, queue: str) -> Attributes:
        given = event.properties
        message = Properties(
            message_id=text_of(given.get("message_id")), correlation_id=text_of(given.get("correlation_id"))
        )
        found = attributes(name, kind, exchange, event.routing_key, queue, message, event.size)
        return found | {CLUSTER: event.text("node"), VHOST: event.text("vhost")}


def _identity(event: FirehoseEvent) -> tuple[str, str]:
    return text_of(event.headers.get("traceparent")) or "", text_of(event.properties.get("message_id")) or ""


def _channel(event: FirehoseEvent) -> tuple[str, int]:
    number = event.fields.get("channel")
    return event.text("connection"), number if isinstance(number, int) else 0
