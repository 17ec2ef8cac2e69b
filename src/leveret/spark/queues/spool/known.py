"""Recognises redelivered messages that are already in the spool, because their acknowledgement was lost.

Brokers mark such messages as redelivered. One with a message id is known if the last segments have a message with the
same id, exchange, routing key, properties and body. One without an id is compared by all the rest, if the option asks
for that. Each message of the spool accounts for one delivery.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from leveret.client import Delivery
from leveret.client.protocol.delivering import RawDeliveries
from leveret.spark.rows.deliveries import FLAG_AT
from leveret.spark.rows.properties import HEAD_SIZE, property_arrays, text_array
from leveret.wire.properties import PROPERTIES, Properties, decode_header

_COUNTS: Final = ("x-delivery-count", "x-acquired-count")
"""Headers in which quorum queues count deliveries; they differ between deliveries of a message."""

_ID: Final = pa.field("message_id", pa.string())

_Place = tuple[pa.RecordBatch, int]


class RedeliveryFilter:
    """The messages of some batches of the spool; with ``knows_content``, also those without an id."""

    def __init__(self, batches: Iterator[pa.RecordBatch], knows_content: bool) -> None:
        self._knows_content = knows_content
        self._places: dict[str | bytes, list[_Place]] = {}
        for batch in batches:
            ids = property_arrays(batch.column("properties"), [_ID])[0].to_pylist()
            bodies = batch.column("body").to_pylist() if knows_content else []
            for row, message_id in enumerate(ids):
                if message_id is not None:
                    self._places.setdefault(message_id, []).append((batch, row))
                elif knows_content:
                    self._places.setdefault(bodies[row], []).append((batch, row))

    def without(self, deliveries: RawDeliveries) -> RawDeliveries:
        """Return the new ones of these deliveries."""
        if not self._places:
            return deliveries
        new, first = RawDeliveries(deliveries.channel), 0
        for index, method in enumerate(deliveries.methods):
            if method[FLAG_AT] and self._has(deliveries.delivery(index)):
                new.extend(deliveries.part(first, index))
                first = index + 1
        new.extend(deliveries.part(first, len(deliveries)))
        return new

    def _has(self, delivery: Delivery) -> bool:
        message_id = delivery.properties.message_id
        if message_id is None and not self._knows_content:
            return False
        places = self._places.get(delivery.body if message_id is None else _text(message_id), [])
        wanted = _content(delivery.exchange, delivery.routing_key, delivery.properties, delivery.body)
        for number, (batch, row) in enumerate(places):
            if _content_at(batch, row) == wanted:
                del places[number]
                return True
        return False


def _content_at(batch: pa.RecordBatch, row: int) -> tuple[Any, ...]:
    exchange, routing_key, properties, body = (
        batch.column(name)[row].as_py() for name in ("exchange", "routing_key", "properties", "body")
    )
    return _content(exchange, routing_key, decode_header(bytes(HEAD_SIZE) + properties)[0], body)


def _content(exchange: str, routing_key: str, properties: Properties, body: bytes) -> tuple[Any, ...]:
    headers = {name: value for name, value in (properties.headers or {}).items() if name not in _COUNTS}
    others = [getattr(properties, name) for name, _ in PROPERTIES if name != "headers"]
    return _text(exchange), _text(routing_key), others, headers, body


def _text(text: str) -> str:
    mended: str = text_array([text.encode("utf-8", "surrogateescape")])[0].as_py()
    return mended
