"""A client of the simulated broker: it sends and parses real bytes, and records what it received."""

from __future__ import annotations

from leveret.broker.peer import Peer
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER, FrameReader, content_frames
from leveret.wire.method import Method, decode_method, method_frame
from leveret.wire.properties import Properties, decode_header, encode_header

from .model import Delivery
from .state import body, meaning_of
from .topology import STREAMS, priority_of

FRAME_MAX = 131072


class SimClient:
    """One connection with one channel."""

    def __init__(self, name: str, peer: Peer) -> None:
        self.name = name
        self.peer = peer
        self.deliveries: list[Delivery] = []
        # requests without an answer yet: (name of the answer, batch it waits for, expected message count)
        self.waiting: list[tuple[str, int, int | None]] = []
        # sequence number of a publish -> (id, batch that the confirm waits for, 0 = none)
        self.unconfirmed: dict[int, tuple[int, int]] = {}
        self.queues: dict[str, tuple[str, bool]] = {}  # consumer tag -> (queue, no_ack)
        self.got: list[tuple[str, bool]] = []  # (queue, no_ack) of each basic.get without an answer yet
        self.published = 0
        self._reader = FrameReader(0)
        self._method: Method | None = None
        self._header = b""
        self._body = b""

    @staticmethod
    def greeting() -> list[bytes]:
        """Return the bytes that open a connection and channel 1, one item for each turn."""
        return [
            PROTOCOL_HEADER,
            method_frame(0, grammar.CONNECTION_START_OK, mechanism="PLAIN", response=b"\0guest\0guest"),
            method_frame(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=FRAME_MAX)
            + method_frame(0, grammar.CONNECTION_OPEN, virtual_host="/")
            + method_frame(1, grammar.CHANNEL_OPEN),
        ]

    @staticmethod
    def publish(id: int, exchange: str, key: str, persistent: bool, ttl_ms: int | None) -> bytes:
        """Return the bytes of basic.publish."""
        expiration = None if ttl_ms is None else str(ttl_ms)
        mode = 2 if persistent else 1
        properties = Properties(delivery_mode=mode, priority=priority_of(id), expiration=expiration)
        content = body(id)
        method = method_frame(1, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key)
        return method + content_frames(1, encode_header(properties, len(content)), content, FRAME_MAX)

    def receive(self, data: bytes) -> list[Method]:
        """Parse bytes from the broker; return the methods in them, except deliveries, which go to `deliveries`."""
        self._reader.feed(data)
        methods: list[Method] = []
        while (frame := self._reader.next()) is not None:
            if frame.kind == 1:
                method = decode_method(frame.payload)
                if method.spec.has_content:
                    self._method = method
                else:
                    methods.append(method)
            elif frame.kind == 2:
                self._header, self._body = frame.payload, b""
                self._finish()
            elif frame.kind == 3:
                self._body += frame.payload
                self._finish()
        return methods

    def _finish(self) -> None:
        method = self._method
        if method is None or len(self._body) < int.from_bytes(self._header[4:12], "big"):
            return
        self._method = None
        if method.spec is grammar.BASIC_GET_OK:
            queue, no_ack = self.got.pop(0)
            consumer = "get"
        else:
            consumer = method.text("consumer_tag")
            queue, no_ack = self.queues[consumer]
        of = meaning_of(self._header, self._body)
        offset = None
        if queue in STREAMS:
            offset = (decode_header(self._header)[0].headers or {})["x-stream-offset"]
            assert isinstance(offset, int)
        self.deliveries.append(
            Delivery(
                (self.name, consumer), queue, None if no_ack else method.number("delivery_tag"), of.id,
                method.text("exchange"), method.text("routing_key"), of.deaths, method.flag("redelivered"), offset,
            )
        )  # fmt: skip
