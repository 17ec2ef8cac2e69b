"""What the client hands to its user: a delivery, and what a queue declaration tells."""

from __future__ import annotations

from typing import NamedTuple

from leveret.wire.properties import Properties, decode_header


class QueueInfo(NamedTuple):
    """The answer to queue.declare: the name (made by the broker where "" was asked for) and two counts."""

    name: str
    message_count: int
    consumer_count: int


class Delivery:
    """One message received.

    body: bytes; header: the content header's payload as it came, undecoded; exchange, routing_key: as it was published;
    delivery_tag: int, for ack on the same channel; redelivered: bool; consumer_tag: "" for a message fetched with get.
    properties are decoded at their first use.
    """

    __slots__ = (
        "_properties",
        "body",
        "consumer_tag",
        "delivery_tag",
        "exchange",
        "header",
        "redelivered",
        "routing_key",
    )

    def __init__(
        self,
        body: bytes,
        header: bytes,
        exchange: str,
        routing_key: str,
        delivery_tag: int,
        redelivered: bool,
        consumer_tag: str,
    ) -> None:
        self.body = body
        self.header = header
        self._properties: Properties | None = None
        self.exchange = exchange
        self.routing_key = routing_key
        self.delivery_tag = delivery_tag
        self.redelivered = redelivered
        self.consumer_tag = consumer_tag

    @property
    def properties(self) -> Properties:
        """The message's properties. ProtocolError (502) if the header is malformed."""
        if self._properties is None:
            self._properties = decode_header(self.header)[0]
        return self._properties

    def __repr__(self) -> str:
        return (
            f"<Delivery {self.delivery_tag} exchange={self.exchange!r} routing_key={self.routing_key!r}"
            f" {len(self.body)} octets>"
        )
