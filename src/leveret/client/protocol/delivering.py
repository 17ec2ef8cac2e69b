"""The hot path of receiving: parses a batch of deliveries in one loop, without an object per frame or per method.

The client's consumers and the Spark source read by it. It is pure Python, as it is on Spark's executors, where an
iterator or a call for each delivery would cost a fifth of the time; so the loop itself knows both kinds of results. A
federation link has compiled code for the same (federation/transfer.py), and `leveret bench` counts runs without looking
at each delivery (cli/bench/frames.py).

It handles only deliveries that are completely in the buffer, each with its body in one frame, and leaves the rest to
the general path, so that every unusual case is handled in one place only. A test checks that both give equal results.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from leveret.client.protocol.channel_core import ChannelCore
from leveret.client.protocol.model import Delivery
from leveret.wire import grammar
from leveret.wire.table import encode_short

# frame header, class and method: the first eleven bytes of a delivery
DELIVER_HEAD: Final = struct.Struct(">BHII")
# the frame header of a content header, its class, weight and body size
CONTENT_HEAD: Final = struct.Struct(">BHIHHQ")
_BODY_HEAD: Final = struct.Struct(">BHI")
_TAG: Final = struct.Struct(">QB")
# limit of the cache of decoded routes
ROUTES_MAX: Final = 4096


class RawDeliveries:
    """Deliveries of one channel, by its number, as octets of the wire; a message has the same index in each list."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.headers: list[bytes] = []  # payloads of content headers
        self.bodies: list[bytes] = []
        # basic.deliver from the delivery tag on: eight octets of it, one of the flag redelivered, exchange, routing key
        self.methods: list[bytes] = []

    def __len__(self) -> int:
        return len(self.bodies)

    @property
    def octets(self) -> int:
        """The size of all bodies in bytes."""
        return sum(map(len, self.bodies))

    @property
    def last_tag(self) -> int:
        """The delivery tag of the last of the deliveries, 0 without deliveries."""
        return int.from_bytes(self.methods[-1][:8], "big") if self.methods else 0

    def add(self, delivery: Delivery) -> None:
        """Add a delivery that the loop of DeliveryReader has left to the general path."""
        self.headers.append(delivery.header)
        self.bodies.append(delivery.body)
        place = _TAG.pack(delivery.delivery_tag, delivery.redelivered)
        self.methods.append(place + encode_short(delivery.exchange) + encode_short(delivery.routing_key))

    def delivery(self, index: int) -> Delivery:
        """Return one of the deliveries as an object."""
        method = self.methods[index]
        delivery_tag, flags = _TAG.unpack_from(method)
        exchange, routing_key = _decoded_route(method[_TAG.size :])
        header, body = self.headers[index], self.bodies[index]
        return Delivery(body, header, exchange, routing_key, delivery_tag, flags & 1 != 0, "")

    def extend(self, others: RawDeliveries) -> None:
        """Add other deliveries behind these."""
        self.headers += others.headers
        self.bodies += others.bodies
        self.methods += others.methods

    def part(self, first: int, end: int) -> RawDeliveries:
        """Return the deliveries from index `first` on and below `end`."""
        part = RawDeliveries(self.channel)
        part.headers, part.bodies = self.headers[first:end], self.bodies[first:end]
        part.methods = self.methods[first:end]
        return part

    def take(self, count: int) -> RawDeliveries:
        """Remove the first `count` deliveries, and return them."""
        taken = self.part(0, count)
        for each in (self.headers, self.bodies, self.methods):
            del each[:count]
        return taken


class DeliveryReader:
    """Parses batches of deliveries for the channels of one connection.

    raw: Takes the deliveries of its channel in place of their sinks; those of other channels are left to the general
        path.
    """

    def __init__(self, raw: RawDeliveries | None = None) -> None:
        self._raw = raw
        self._routes: dict[bytes, tuple[str, str]] = {}

    def read(self, channels: Mapping[int, ChannelCore[Any]], data: bytes, start: int) -> int:
        """Pass on the deliveries from offset start on; return the offset of the first unused byte.

        Raises IndexError, struct.error or UnicodeDecodeError for frames whose fields contradict their lengths.
        """
        end = len(data)
        routes = self._routes
        raw = self._raw
        known, sink, number, size, tag_at = b"", None, 0, 0, 0
        while end - start >= 11:
            # a batch mostly has one consumer and one length of routes, so its frames begin with the same bytes
            if not (known and data.startswith(known, start)):
                kind, number, size, key = DELIVER_HEAD.unpack_from(data, start)
                if key != grammar.BASIC_DELIVER.key or kind != 1:
                    break
                channel = channels.get(number)
                if channel is None or not channel.is_between_contents or start + size + 8 > end:
                    break
                tag_at = 12 + data[start + 11]
                if raw is None:
                    sink = channel.sinks.get(data[start + 11 : start + tag_at])
                    if sink is None:
                        break
                elif number != raw.channel:
                    break
                known = data[start : start + tag_at]
            head = start + size + 8
            if head + CONTENT_HEAD.size > end:
                break
            kind, header_on, header_size, _, _, body_size = CONTENT_HEAD.unpack_from(data, head)
            if kind != 2 or header_on != number or header_size < 14:
                break
            after = body = head + header_size + 8
            if body_size:
                if body + 7 > end:
                    break
                body_kind, body_on, frame_size = _BODY_HEAD.unpack_from(data, body)
                after = body + frame_size + 8
                if body_kind != 3 or body_on != number or frame_size != body_size:
                    break
            if after > end or not data[head - 1] == data[body - 1] == data[after - 1] == 0xCE:
                break
            if raw is not None:
                raw.headers.append(data[head + 7 : body - 1])
                raw.bodies.append(data[body + 7 : after - 1] if body_size else b"")
                raw.methods.append(data[start + tag_at : head - 1])
                start = after
                continue
            raw_route = data[start + tag_at + 9 : head - 1]
            assert sink is not None
            delivery_tag, flags = _TAG.unpack_from(data, start + tag_at)
            exchange, routing_key = routes.get(raw_route) or self._decode_route(raw_route)
            sink.deliver(
                Delivery(
                    data[body + 7 : after - 1] if body_size else b"",
                    data[head + 7 : body - 1],
                    exchange,
                    routing_key,
                    delivery_tag,
                    flags & 1 != 0,
                    sink.tag,
                )
            )
            start = after
        return start

    def _decode_route(self, raw: bytes) -> tuple[str, str]:
        route = _decoded_route(raw)
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[raw] = route
        return route


def _decoded_route(raw: bytes) -> tuple[str, str]:
    middle = 1 + raw[0]
    if middle + 1 + raw[middle] != len(raw):
        raise IndexError("a route with inconsistent lengths")
    return (
        raw[1:middle].decode("utf-8", "surrogateescape"),
        raw[middle + 1 :].decode("utf-8", "surrogateescape"),
    )
