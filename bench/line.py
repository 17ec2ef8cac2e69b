"""AMQP connections that write frames encoded in advance and only count the octets of the answers, so that a client in
Python can keep a fast broker busy.

In these measurements names and numbers have fixed widths, so the size of every answer is known in advance: nothing is
decoded, and too many or too few octets are still detected.
"""

import selectors
import socket
import struct
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from leveret.wire import grammar
from leveret.wire.frames import FRAME_METHOD, PROTOCOL_HEADER, FrameReader, content_frames
from leveret.wire.grammar import MethodSpec
from leveret.wire.method import Method, decode_method, method_frame
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import Value

FRAME_MAX = 131072
PATIENCE_S = 60.0
SEND_OCTETS = 256 * 1024
NUMBER = "%07d"
"""The format of numbers in names and keys."""
PLACE = NUMBER % 0
CONFIRM = struct.Struct(">BHIIQBB")
OPEN = method_frame(1, grammar.CHANNEL_OPEN)


class Failed(Exception):
    """The broker did not answer as expected; the text contains the broker's error, if it sent one."""


class Confirms:
    """Tracks publishes that are not confirmed yet."""

    def __init__(self) -> None:
        self.published = 0
        self._open: set[int] = set()
        self._rest = b""

    def publish(self, count: int) -> None:
        """Count `count` more publishes."""
        self._open.update(range(self.published + 1, self.published + count + 1))
        self.published += count

    def feed(self, data: bytes) -> None:
        """Take octets from the broker, in pieces of any size. Raises Failed for anything but basic.ack."""
        data = self._rest + data
        whole = len(data) // CONFIRM.size * CONFIRM.size
        for kind, _, _, method, tag, multiple, _ in CONFIRM.iter_unpack(data[:whole]):
            if kind != FRAME_METHOD or method != grammar.BASIC_ACK.key:
                raise Failed(f"not a confirm: {data[:200]!r}")
            if multiple:
                self._open = {each for each in self._open if each > tag}
            else:
                self._open.discard(tag)
        self._rest = data[whole:]

    def __len__(self) -> int:
        return len(self._open)


class Line:
    """A connection with channel 1 open."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self.socket = socket.create_connection((address.hostname, address.port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.confirms: Confirms | None = None  # set in confirm mode
        self.wanted = 0  # octets still to be received
        self._outgoing = memoryview(b"")
        self._last = b""
        reader = FrameReader(0)
        self.socket.sendall(PROTOCOL_HEADER)
        self._expect(reader, grammar.CONNECTION_START)
        login = method_frame(
            0, grammar.CONNECTION_START_OK, mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US"
        )
        self.socket.sendall(login)
        self._expect(reader, grammar.CONNECTION_TUNE)
        tuned = method_frame(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=FRAME_MAX)
        self.socket.sendall(tuned + method_frame(0, grammar.CONNECTION_OPEN, virtual_host="/") + OPEN)
        self._expect(reader, grammar.CONNECTION_OPEN_OK)
        self._expect(reader, grammar.CHANNEL_OPEN_OK)
        self.socket.setblocking(False)

    def _expect(self, reader: FrameReader, spec: MethodSpec) -> Method:
        while (frame := reader.next()) is None:
            data = self.socket.recv(1 << 16)
            if not data:
                raise Failed(f"the broker closed the connection before {spec.name}")
            reader.feed(data)
        method = decode_method(frame.payload)
        if method.spec is not spec:
            raise Failed(f"expected {spec.name}, got {method}")
        return method

    def fileno(self) -> int:
        return self.socket.fileno()

    def say(self, data: bytes, answer: int = 0) -> None:
        """Queue octets for `run` to write; `answer` octets are expected in return."""
        self._outgoing = memoryview(bytes(self._outgoing) + data if self._outgoing else data)
        self.wanted += answer

    def publish(self, data: bytes, count: int) -> None:
        """Queue messages for `run` to write; if the line has confirms, `run` waits for all of them."""
        self.say(data)
        if self.confirms is not None:
            self.confirms.publish(count)

    @property
    def events(self) -> int:
        """Return the events that `run` must wait for."""
        reads = self.wanted > 0 or bool(self.confirms)
        return (selectors.EVENT_WRITE if self._outgoing else 0) | (selectors.EVENT_READ if reads else 0)

    def work(self, events: int, room: bytearray) -> None:
        """Write and read without blocking. Raises Failed if the broker sends something unexpected."""
        if events & selectors.EVENT_WRITE:
            sent = self.socket.send(self._outgoing[:SEND_OCTETS])
            self._outgoing = self._outgoing[sent:]
        if events & selectors.EVENT_READ:
            size = self.socket.recv_into(room)
            if self.confirms is not None:
                self.confirms.feed(bytes(room[:size]))
                return
            self.wanted -= size
            self._last = bytes(room[max(size - 300, 0) : size])
            if size == 0 or self.wanted < 0:
                raise Failed(self.account())

    def account(self) -> str:
        """Describe an unexpected answer, for an error."""
        return f"{self.wanted} octets still expected; the last that came: {self._last!r}"

    def call(self, spec: MethodSpec, channel: int = 1, **values: object) -> None:
        """Send one method and await its -ok, whose arguments are empty or take four octets."""
        answer = {"channel.open": 16, "queue.delete": 16, "queue.purge": 16}.get(spec.name, 12)
        self.say(method_frame(channel, spec, **values), answer)
        run([self])

    def close(self) -> None:
        self.socket.close()


def run(lines: Iterable[Line]) -> None:
    """Write and read until everything is sent and answered. Raises Failed if nothing happens for PATIENCE_S."""
    room = bytearray(1 << 20)
    with selectors.DefaultSelector() as selector:
        for line in lines:
            if line.events:
                selector.register(line, line.events)
        while selector.get_map():
            ready = selector.select(PATIENCE_S)
            if not ready:
                stuck = next(iter(selector.get_map().values())).fileobj
                raise Failed(f"nothing for {PATIENCE_S:.0f} s: {stuck.account() if isinstance(stuck, Line) else stuck}")
            for key, events in ready:
                line = key.fileobj
                assert isinstance(line, Line)
                line.work(events, room)
                if line.events == 0:
                    selector.unregister(line)
                elif line.events != key.events:
                    selector.modify(line, line.events)


def barrier(line: Line, queue: str) -> None:
    """Wait until the broker has handled everything sent before, by a passive declaration that it answers last."""
    line.say(method_frame(1, grammar.QUEUE_DECLARE, queue=queue, passive=True), 21 + len(queue))
    run([line])


def content(body: bytes, persistent: bool = False, headers: dict[str, Value] | None = None) -> bytes:
    """Return the content frames of a message."""
    properties = Properties(delivery_mode=2 if persistent else 1, headers=headers)
    return content_frames(1, encode_header(properties, len(body)), body, FRAME_MAX)


def publish(exchange: str, key: str, channel: int = 1) -> bytes:
    """Return the method frame of a publish."""
    return method_frame(channel, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key)


def numbered(frame: bytes, numbers: Iterable[int]) -> list[bytes]:
    """Return copies of a frame with each of the numbers at its PLACEs: 50 times as quick as encoding each."""
    parts = frame.split(PLACE.encode())
    if len(parts) == 1:
        raise ValueError(f"{PLACE} must be in the frame")
    return [(b"%07d" % number).join(parts) for number in numbers]


def delivery_octets(tag: str, exchange: str, key: str, sizes: Sequence[int]) -> int:
    """Return the size of the deliveries of messages whose contents have these sizes."""
    spec = grammar.BASIC_DELIVER
    head = method_frame(1, spec, consumer_tag=tag, delivery_tag=1, exchange=exchange, routing_key=key)
    return len(head) * len(sizes) + sum(sizes)
