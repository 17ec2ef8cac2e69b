"""The hot path of publishing: encodes basic.publish as complete frames, and caches the parts that repeat."""

from __future__ import annotations

import struct
from operator import attrgetter
from typing import Final

from leveret.client.protocol.arguments import check
from leveret.wire import grammar
from leveret.wire.frames import FRAME_BODY, FRAME_HEADER, FRAME_OVERHEAD, content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import PROPERTIES, Properties, encode_properties

# limit of the cache of encoded routes; programs with more routes encode them again
ROUTES_MAX: Final = 4096
# size in bytes of the part of a header payload before the property flags: class, weight, body size
FIXED_SIZE: Final = 12
NO_PROPERTIES: Final = Properties()

_pack_head = struct.Struct(">BHIHHQ").pack
_pack_body = struct.Struct(">BHI").pack
_head = struct.Struct(">BHI").unpack_from
_snapshot = attrgetter(*(name for name, _ in PROPERTIES))


class PublishEncoder:
    """Encodes the publishes of one channel. frame_max: the negotiated maximum frame size in bytes, 0 = no limit."""

    def __init__(self, channel: int, frame_max: int) -> None:
        self._channel = channel
        self._frame_max = frame_max
        self._room = frame_max - FRAME_OVERHEAD if frame_max else 1 << 62
        self._routes: dict[tuple[str, str, bool], bytes] = {}
        self._empty = encode_properties(NO_PROPERTIES)
        self._last: object = None
        self._last_encoded = self._empty

    def encode(
        self, body: bytes, exchange: str, routing_key: str, properties: Properties | None, mandatory: bool
    ) -> bytes:
        """Return the frames of one publish. Raises ValueError for a short string of more than 255 bytes."""
        route = self._routes.get((exchange, routing_key, mandatory))
        if route is None:
            route = self._encode_route(exchange, routing_key, mandatory)
        encoded = self._empty if properties is None else self._encode_properties(properties)
        size = len(body)
        if not 0 < size <= self._room:
            header = struct.pack(">HHQ", 60, 0, size) + encoded
            return route + content_frames(self._channel, header, body, self._frame_max)
        channel = self._channel
        return b"".join(
            (
                route,
                _pack_head(FRAME_HEADER, channel, FIXED_SIZE + len(encoded), 60, 0, size),
                encoded,
                b"\xce",
                _pack_body(FRAME_BODY, channel, size),
                body,
                b"\xce",
            )
        )

    def _encode_route(self, exchange: str, routing_key: str, mandatory: bool) -> bytes:
        for name in (exchange, routing_key):
            check("a name", name, str, "str")  # the encoder would take None for ""
        route = method_frame(
            self._channel, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=routing_key, mandatory=mandatory
        )
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[exchange, routing_key, mandatory] = route
        return route

    def _encode_properties(self, properties: Properties) -> bytes:
        """Encode flags and values, once for equal properties; those with headers always, since the dict may change."""
        if properties.headers is not None:
            return encode_properties(properties)
        snapshot = _snapshot(properties)
        if snapshot != self._last:
            self._last_encoded = encode_properties(properties)
            self._last = snapshot
        return self._last_encoded


def cut_again(frames: bytes, frame_max: int) -> bytes:
    """Return the frames of a publish for a connection with this frame_max, which may be smaller than before."""
    if not frame_max or len(frames) <= frame_max:
        return frames
    parts: list[tuple[int, int, bytes]] = []
    at = 0
    while at < len(frames):
        kind, channel, size = _head(frames, at)
        parts.append((kind, channel, frames[at + 7 : at + 7 + size]))
        at += size + FRAME_OVERHEAD
    method, header, *bodies = parts
    route = _pack_body(method[0], method[1], len(method[2])) + method[2] + b"\xce"
    return route + content_frames(header[1], header[2], b"".join(body[2] for body in bodies), frame_max)
