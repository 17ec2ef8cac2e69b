"""Names of spans and attributes, from OpenTelemetry's semantic conventions for messaging and for RabbitMQ."""

from __future__ import annotations

from typing import Final

from leveret.wire.properties import Properties

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
ROUTING_KEY: Final = "messaging.rabbitmq.destination.routing_key"
DELIVERY_TAG: Final = "messaging.rabbitmq.message.delivery_tag"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
BODY_SIZE: Final = "messaging.message.body.size"
SUBSCRIPTION: Final = "messaging.destination.subscription.name"
ERROR_TYPE: Final = "error.type"
# attributes that only a broker can set; OpenTelemetry has no names for them
ROUTED: Final = "leveret.routed_queues"
CLUSTER: Final = "leveret.cluster"
VHOST: Final = "leveret.vhost"
REDELIVERED: Final = "leveret.redelivered"
CAME_FROM: Final = "leveret.received_from"
DEATHS: Final = "leveret.deaths"
CONFIRM: Final = "leveret.confirm"

Attributes = dict[str, str | int | bool | list[str]]


def destination(exchange: str, routing_key: str, queue: str = "") -> str:
    """Return EXCHANGE:KEY:QUEUE without empty parts; the queue is left out if it equals the key."""
    parts = [exchange, routing_key] if routing_key == queue else [exchange, routing_key, queue]
    return ":".join(part for part in parts if part) or "amq.default"


def attributes(
    name: str, kind: str, exchange: str, routing_key: str, queue: str, properties: Properties | None, size: int | None
) -> Attributes:
    """Return the attributes of a span.

    Args:
        name: the operation's name, e.g. "publish".
        kind: the operation's type in OpenTelemetry's conventions, e.g. "send".
        exchange, routing_key, queue: "" if not applicable.
        properties: the message's properties, if known.
        size: the size of the body in bytes; None if the span is not about one message.
    """
    found: Attributes = {
        SYSTEM: "rabbitmq",
        OPERATION_NAME: name,
        OPERATION_TYPE: kind,
        DESTINATION: destination(exchange, routing_key, queue),
    }
    if routing_key:
        found[ROUTING_KEY] = routing_key
    if size is not None:
        found[BODY_SIZE] = size
    if properties is not None and properties.message_id is not None:
        found[MESSAGE_ID] = properties.message_id
    if properties is not None and properties.correlation_id is not None:
        found[CONVERSATION_ID] = properties.correlation_id
    return found
