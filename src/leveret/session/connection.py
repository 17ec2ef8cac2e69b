"""One connection: bytes in, frames checked and cut, messages and methods passed on, bytes out.

`receive` is the hot loop. A publish whose header and body are in the buffer goes to the channel's `publish` as offsets
into it, an acknowledgement to its `acknowledge` as numbers; everything else is decoded by the grammar and goes to its
`handle`. handler.py lists all that the broker implements. Output collects in `output`; the network takes it once per
turn with `take`.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from leveret.session import lifecycle, violations
from leveret.session.assembly import Assembly
from leveret.session.channel import Channel
from leveret.session.handler import ConnectionHandler
from leveret.session.holdback import Holdback
from leveret.session.output import LARGE_OCTETS_MIN, Buffer, Output, cut
from leveret.wire import grammar
from leveret.wire.errors import CHANNEL_ERROR, COMMAND_INVALID, ProtocolError
from leveret.wire.frames import HEARTBEAT, PROTOCOL_HEADER
from leveret.wire.grammar import MethodSpec
from leveret.wire.method import Method, decode_method, frame_with, method_frame

PUBLISH: Final[i64] = 0x003C0028
ACK: Final[i64] = 0x003C0050
TICK_US: Final[i64] = 1_000_000
GET: Final[i64] = 0x003C0046
# When more than this many bytes of answers have not left yet, no basic.get is handled: the client does not read, or
# asks for gigabytes with the few bytes of basic.get. Other answers are hardly longer than their requests. Deliveries do
# not count: a client that gets them may be busy writing, and its input must be handled before it reads.
FLOOD_OCTETS: Final[i64] = 8 << 20
# an incomplete content waits in the read buffer up to this size; a larger one is assembled frame by frame
WAIT_OCTETS_MAX: Final[i64] = 65536
# A read buffer full of messages for thousands of queues is handled in several turns, so that no connection waits long
# and memory is checked in between.
TURN_OCTETS_MAX: Final[i64] = 1 << 20
# The same holds for declarations, bindings and other methods, each of which costs as much as many acknowledgements.
TURN_METHODS_MAX: Final[i64] = 128
# A run keeps its part of the read buffer, and is copied once more at delivery: not worthwhile for larger messages.
RUN_CONTENT_OCTETS_MAX: Final[i64] = 2048
# 0-9-1, and 0-9 as old clients write it: the methods are the same
PROTOCOL_HEADERS: Final = (PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09")


class Unfinished(Exception):
    """A publish needs more turns than this one (`Connection.resume`)."""


class Connection(ConnectionHandler):
    """The protocol of one connection, without I/O. Set now_us, the time of the current turn, before each call."""

    def __init__(self, frame_max: int, message_octets_max: int) -> None:
        self.state = lifecycle.HEADER
        self.frame_max: i64 = frame_max  # bytes of a frame, until another size is agreed on
        self.message_octets_max: i64 = message_octets_max  # bytes of a message's body
        self.now_us: i64 = 0
        self.output = Output()
        self.is_dirty = False
        # there is enough output for now: this connection's consumers are skipped until the network has taken it
        self.is_full = False
        # the client does not read its answers: nothing is read from it until they have left
        self.is_flooded = False
        # approximate bytes that this turn's messages take in queues
        self.cost: i64 = 0
        self.has_more = False  # input is left for another turn
        self._methods: i64 = 0  # how many methods this turn has handled one by one
        self.is_unfinished = False  # the last frame is not done, and is handled again in another turn
        self.is_suspended = False  # a publish needs more turns; input behind it waits
        self.is_held = False  # input waits until a login is decided
        self.name = ""  # both ends' addresses
        self.user = ""
        self.heartbeat_s = 0
        self.hears_cancel = False  # the client understands basic.cancel from the broker
        self.hears_blocked = False  # the client understands connection.blocked
        self.is_blocked = False  # it has published while the broker accepts no messages: its input waits
        self.received_us: i64 = 0
        self.sent_us: i64 = 0
        self._current: Channel | None = None
        self._data = b""
        self._position: i64 = 0
        self._assembly: Assembly | None = None  # the content whose last frame is incomplete
        self._holdback = Holdback()

    # -- output ------------------------------------------------------------------------------------------------------

    def send(self, channel: i64, spec: MethodSpec, **values: object) -> None:
        """Write a method frame."""
        self.output.writer.write(frame_with(int(channel), spec, values))
        self.mark()

    def send_ahead(self, frame: bytes) -> None:
        """Write a frame that must not wait at a gate, because it answers nothing."""
        self.output.write_ahead(frame)
        self.mark()

    def gate(self, batch: int, octets: i64 = 0) -> None:
        """Hold back what is written from now on, and the last `octets` bytes, until this journal batch is synced."""
        self.output.gate(batch, octets)

    def take(self, synced: int) -> list[Buffer]:
        """The output that may leave, in order: all of it, or up to the first gate whose batch is later than `synced`.

        No buffer is empty, and none changes later.
        """
        self.is_dirty = False
        return self.output.take(synced)

    @property
    def is_gated(self) -> bool:
        return self.output.is_gated

    def close(self, code: int, text: str) -> None:
        """Close the connection from the broker's side."""
        if self.state < lifecycle.CLOSING:
            self._fail(ProtocolError(code, text, hard=True), None)

    def close_channel(self, channel: Channel, code: int, text: str) -> None:
        """Close a channel from the broker's side, or the connection if the code is one of a connection error."""
        if channel.state == lifecycle.OPEN:
            self._fail(ProtocolError(code, text), channel)

    def tick(self) -> bool:
        """Send a heartbeat after half an interval; False if the peer was silent for two. Called every TICK_US."""
        self.output.narrow()
        if self.heartbeat_s == 0 or self.state < lifecycle.OPENING or self.state >= lifecycle.CLOSING:
            return True
        interval: i64 = i64(self.heartbeat_s) * 1_000_000
        if self.now_us - self.received_us > 2 * interval:
            return False
        if self.now_us - self.sent_us > interval // 2 - TICK_US:  # the next tick would be too late
            self.send_ahead(HEARTBEAT)
        return True

    # -- input -------------------------------------------------------------------------------------------------------

    def receive_unless_content(self, data: bytes, reason: str) -> None:
        """`receive` up to the next message's content, which waits with all that follows; the client gets the reason."""
        if self.is_blocked:
            self._holdback.add(data)
            if self.has_more:
                self.receive(b"")  # of what stands before it
            return
        # the publish method that the content belongs to may be left from the last turn, and stays where it is
        left: i64 = len(self._data) - self._position
        if left > 0:
            data = self._data[self._position :] + data
        self._data = b""
        self._position = 0
        if self._assembly is None:
            data = self._holdback.pass_on(data, 8 if self.state == lifecycle.HEADER else 0)
        else:
            self._holdback.add(data)
            data = b""
        self.receive(data)
        if self._holdback.data:
            self.block(reason)

    def block(self, reason: str) -> None:
        """Hold back the client's input from now on, and send connection.blocked with this reason."""
        if not self.is_blocked:
            self.is_blocked = True
            if self.hears_blocked and self.state == lifecycle.RUNNING:
                self.send_ahead(method_frame(0, grammar.CONNECTION_BLOCKED, reason=reason))

    def release(self) -> bytes:
        """Send connection.unblocked; returns the input that waited, which is to be received now."""
        if self.is_blocked:
            self.is_blocked = False
            if self.hears_blocked and self.state == lifecycle.RUNNING:
                self.send_ahead(method_frame(0, grammar.CONNECTION_UNBLOCKED))
        return self._holdback.release()

    def receive(self, data: bytes) -> None:
        """Handle bytes from the peer. Violations are answered in the output; nothing is raised for them."""
        self.received_us = self.now_us
        self.cost = 0
        self.has_more = False
        self._methods = 0
        if self.state >= lifecycle.DRAINING:
            return
        left: i64 = len(self._data) - self._position
        size: i64 = len(data)
        is_waiting = self.is_held or self.is_suspended
        if left > 0 and size >= LARGE_OCTETS_MIN and not is_waiting and self._is_open():
            self._receive_behind(left, data)
        elif left == 0 or size > 0:
            self._data = self._data[self._position :] + data if left > 0 else data
            self._position = 0
        if self.is_held or (self.state == lifecycle.HEADER and not self._protocol_header()):
            return
        self._advance()
        if self._position == len(self._data) or self.state >= lifecycle.DRAINING:
            self._data = b""
            self._position = 0

    def _is_open(self) -> bool:
        return lifecycle.HEADER < self.state < lifecycle.CLOSING

    def _receive_behind(self, left: i64, data: bytes) -> None:
        """Handle many bytes behind a few left ones, without copying all of them.

        A message that is not assembled from pieces is complete after LARGE_OCTETS_MIN more bytes.
        """
        assembly = self._assembly
        seam: i64 = 0 if assembly is not None else LARGE_OCTETS_MIN
        self._data = self._data[self._position :] + data[:seam]
        self._position = 0
        if assembly is not None:
            self._take(assembly, 0, left)
        else:
            self._advance()
        if self._position >= left:
            self._position -= left
            self._data = data
        else:
            self._data = self._data[self._position :] + data[seam:]
            self._position = 0

    def _advance(self) -> None:
        """Handle the input that is there."""
        if self.is_suspended and not self._resumed():
            return
        while self.state < lifecycle.DRAINING:
            before = self._position
            try:
                if self._assembly is None or self._go_on(self._assembly):
                    self._scan()
                break
            except Unfinished:
                self.has_more = True
                break
            except ProtocolError as error:
                if self._position == before:
                    # invalid input has no end that could be found, so nothing behind it can be read
                    self._position = len(self._data)
                self._fail(error, self._current)

    def _resumed(self) -> bool:
        """Continue a publish that needs several turns. False if it needs another."""
        try:
            self.resume()
        except Unfinished:
            self.has_more = True
        except ProtocolError as error:
            self._fail(error, self._current)
        return not self.is_suspended

    def _protocol_header(self) -> bool:
        data = self._data
        if len(data) < 8 and any(header.startswith(data) for header in PROTOCOL_HEADERS):
            return False
        if data[:8] not in PROTOCOL_HEADERS:
            # AMQP 0-9-1, section 4.2.2: answer with the header that would be understood, and close
            self.output.writer.write(PROTOCOL_HEADER)
            self.unknown_protocol(data)
            self.state = lifecycle.CLOSED
            self.mark()
            return False
        self._position = 8
        self.state = lifecycle.STARTING
        self.start()
        return True

    def _scan(self) -> None:
        data = self._data
        end: i64 = len(data)
        position = self._position
        last: Channel | None = None  # of the frame before; only what _frame handles can have closed it
        while end - position >= 7:
            self._current = None
            size: i64 = i64(read_i32_be(data, position + 3)) & 0xFFFF_FFFF
            kind: i64 = i64(data[position])
            if size > self.frame_max:
                # 8 bytes more than agreed are accepted: some clients do not count the frame's own
                raise violations.frame_too_large(kind, size, self.frame_max)
            after = position + size + 8
            number: i64 = i64(read_i16_be(data, position + 1)) & 0xFFFF
            channel = self._current = last if last is not None and last.number == number else self._channel(number)
            last = channel
            if kind == 3 and end >= LARGE_OCTETS_MIN and channel is not None and self._begin(channel, size, after):
                position = self._position
                continue
            if after > end:
                break
            if data[after - 1] != 0xCE:
                raise violations.wrong_end(data[position:after])
            if kind == 1 and channel is not None and channel.assembly is None and size >= 4 and channel.state == 0:
                key: i64 = i64(read_i32_be(data, position + 7))
                if key == PUBLISH:
                    if self.cost > TURN_OCTETS_MAX:
                        self.has_more = True
                        return
                    stop = self._content_end(data, after, end, number)
                    if stop > 0:
                        method = data[position:after]
                        self._position = stop
                        is_repeatable = channel.publish(method, data, after, stop)
                        if is_repeatable and stop - after <= RUN_CONTENT_OCTETS_MAX:
                            stop = self._repeats(channel, data, position, after, stop)
                            self._position = stop
                        position = stop
                        continue
                    if stop == 0 and end - position < WAIT_OCTETS_MAX and not _is_large(data, after, end):
                        break
                    channel.assembly = self._assembly_of(number, data[position:after])
                    position = after
                    self._position = after
                    continue
                if key == ACK and size == 13:
                    self._position = after
                    channel.acknowledge(read_i64_be(data, position + 11), data[position + 19] & 1 != 0)
                    if self.is_unfinished:
                        self._repeat(position)
                        return
                    position = after
                    continue
                if key == GET and (self.is_flooded or self.output.octets() > FLOOD_OCTETS):
                    self.is_flooded = True
                    return
            if kind == 1:
                if self._methods == TURN_METHODS_MAX:
                    self.has_more = True
                    return
                self._methods += 1
            self._position = after
            last = None
            self._frame(kind, number, channel, data[position:after])
            if self.is_unfinished:
                self._repeat(position)
                return
            position = after
            if self.state >= lifecycle.DRAINING or self.is_held:
                return

    def _repeat(self, position: i64) -> None:
        """Have the frame that begins here handled again in another turn."""
        self._position = position
        self.is_unfinished = False
        self.has_more = True

    def _repeats(self, channel: Channel, data: bytes, first: i64, content: i64, stop: i64) -> i64:
        """Pass on the publishes from `stop` on that differ from data[first:stop] only in their body.

        content: where the header frame of the first begins. Returns where the last of them ends.
        """
        stride = stop - first
        end: i64 = len(data)
        body: i64 = read_i64_be(data, content + 11)
        # lengths first: they tell most unlike messages apart without a copy
        if stop + stride > end or read_i64_be(data, content + stride + 11) != body:
            return stop
        if body == 0 or i64(read_i32_be(data, content + 3)) + 16 != stop - content - body:
            return stop  # no body, or one of several frames
        head_size = stride - body - 1
        head = data[first : first + head_size]
        at = stop
        while at + stride <= end and data[at : at + head_size] == head and data[at + stride - 1] == 0xCE:
            at += stride
        if at > stop:
            channel.publish_more(data, stop + content - first, at, stride, first + stride - content)
        return at

    def _channel(self, number: i64) -> Channel | None:
        channel = self._current
        if channel is None or channel.number != number:
            channel = self.find_channel(number) if number != 0 else None
            self._current = channel
        return channel

    def _content_end(self, data: bytes, start: i64, end: i64, number: i64) -> i64:
        """Where the content that begins at `start` ends; 0 if it is incomplete; -1 if it must be read frame by frame.
        """
        if end - start < 7:
            return 0 if end == start or data[start] == 2 else -1
        if data[start] != 2 or i64(read_i16_be(data, start + 1)) & 0xFFFF != number:
            return -1
        size: i64 = i64(read_i32_be(data, start + 3))
        if size < 14 or size + 8 > self.frame_max:
            return -1
        stop = start + size + 8
        if stop > end:
            return 0
        if data[stop - 1] != 0xCE or i64(read_i32_be(data, start + 7)) != 0x003C0000:
            return -1
        left = read_i64_be(data, start + 11)
        if left < 0 or left > self.message_octets_max:
            return -1
        while left > 0:
            if end - stop < 8:
                return 0
            size = i64(read_i32_be(data, stop + 3))
            if data[stop] != 3 or i64(read_i16_be(data, stop + 1)) & 0xFFFF != number or size < 0 or size > left:
                return -1
            if size + 8 > self.frame_max:
                return -1
            stop += size + 8
            left -= size
            if stop > end:
                return 0
            if data[stop - 1] != 0xCE:
                return -1
        return stop

    def _frame(self, kind: i64, number: i64, channel: Channel | None, raw: bytes) -> None:
        """Handle a frame that is off the fast path; raw is the whole frame."""
        size: i64 = len(raw) - 8
        if kind == 0 or kind > 3:
            if kind != 8 or size > 0:
                raise violations.unknown_frame(raw)
            if number != 0:
                raise violations.unexpected_frame(raw)
            return
        if (kind == 1 and size < 4) or (kind == 2 and size < 12):
            raise violations.unknown_frame(raw)
        if channel is not None and channel.state == lifecycle.CLOSE_SENT:
            self._frame_after_close(kind, channel, raw)
            return
        if number == 0 and kind == 1:
            self._connection_method(decode_method(raw[7:-1], True))
        elif self.state == lifecycle.CLOSING:
            return
        elif number == 0 or self.state != lifecycle.RUNNING:
            raise violations.unexpected_frame(raw)
        elif kind == 1:
            self._method(number, channel, raw)
        else:
            self._content(kind, channel, raw)

    def _frame_after_close(self, kind: i64, channel: Channel, raw: bytes) -> None:
        if kind != 1:
            return
        method = decode_method(raw[7:-1], True)
        if method.spec is grammar.CHANNEL_CLOSE_OK:
            self.remove_channel(channel)
            self._current = None
        elif method.spec is grammar.CHANNEL_CLOSE:
            self.send(channel.number, grammar.CHANNEL_CLOSE_OK)
        elif method.spec is grammar.CHANNEL_OPEN:
            raise _second_open()

    def _content(self, kind: i64, channel: Channel | None, raw: bytes) -> None:
        assembly = channel.assembly if channel is not None else None
        if channel is None or assembly is None:
            raise violations.expected_method()
        assembly.add(kind, raw)
        self._complete(channel, assembly)

    def _complete(self, channel: Channel, assembly: Assembly) -> None:
        if assembly.left == 0:
            channel.assembly = None
            channel.publish_pieces(assembly)

    def _assembly_of(self, number: i64, method: bytes) -> Assembly:
        return Assembly(number, method, self.frame_max, self.message_octets_max)

    def _begin(self, channel: Channel, size: i64, after: i64) -> bool:
        """Take a body frame with a payload of `size` bytes, or what is there of it, without a copy.

        False if it must be checked on the slow path.
        """
        assembly = channel.assembly
        if assembly is None or channel.state != 0 or self.state != lifecycle.RUNNING:
            return False
        if size + 8 > self.frame_max or not assembly.begin(size):
            return False
        end: i64 = len(self._data)
        self._take(assembly, self._position, min(after, end))
        return True

    def _go_on(self, assembly: Assembly) -> bool:
        """Take what has come of a frame that is partly there; True if it is complete now."""
        position = self._position
        end: i64 = len(self._data)
        stop = min(position + assembly.missing, end)
        if stop - position < assembly.missing and stop - position < LARGE_OCTETS_MIN:
            return False  # keeping small pieces would take more memory than they hold
        self._take(assembly, position, stop)
        return self._assembly is None

    def _take(self, assembly: Assembly, start: i64, stop: i64) -> None:
        """Add data[start:stop] to the body frame of a content."""
        data = self._data
        self._assembly = None
        if stop - start == assembly.missing and data[stop - 1] != 0xCE:
            raise violations.wrong_end(assembly.last_frame() + data[start:stop])
        self._position = stop
        assembly.take(cut(data, start, stop))
        if assembly.missing > 0:
            self._assembly = assembly
            return
        channel = self._channel(assembly.number)
        if channel is not None and channel.assembly is assembly:  # unless it was given up meanwhile
            self._complete(channel, assembly)

    def _method(self, number: i64, channel: Channel | None, raw: bytes) -> None:
        if channel is not None and channel.assembly is not None:
            raise violations.expected_header() if channel.assembly.left < 0 else violations.expected_body()
        method = decode_method(raw[7:-1], True)
        spec = method.spec
        if channel is None:
            if spec is not grammar.CHANNEL_OPEN:
                raise ProtocolError(CHANNEL_ERROR, "expected 'channel.open'", spec.class_id, spec.method_id)
            self.open_channel(int(number))
            self.send(number, grammar.CHANNEL_OPEN_OK)
        elif spec is grammar.CHANNEL_OPEN:
            raise _second_open()
        elif spec is grammar.CHANNEL_CLOSE:
            channel.closed()
            self.remove_channel(channel)
            self._current = None
            self.send(number, grammar.CHANNEL_CLOSE_OK)
        elif spec.has_content:
            if spec is not grammar.BASIC_PUBLISH:
                raise ProtocolError(COMMAND_INVALID, "unimplemented method", spec.class_id, spec.method_id)
            channel.assembly = self._assembly_of(number, raw)
        else:
            channel.handle(method)

    def _connection_method(self, method: Method) -> None:
        spec = method.spec
        next_state = lifecycle.CONNECTION.get((self.state, spec.key))
        if next_state is None:
            if self.state == lifecycle.CLOSING:
                return
            text = f"unexpected method in connection state {lifecycle.NAMES[self.state]}"
            raise ProtocolError(CHANNEL_ERROR, text, spec.class_id, spec.method_id)
        if spec is grammar.CONNECTION_CLOSE:
            self.close_all_channels()
            if not self.has_left():
                self.is_unfinished = True
                return
            self.send(0, grammar.CONNECTION_CLOSE_OK)
        elif spec is not grammar.CONNECTION_CLOSE_OK:
            self.handle_on_connection(method)
        self.state = next_state
        if next_state == lifecycle.CLOSED:
            self.mark()  # so that the network closes the socket

    # -- errors ------------------------------------------------------------------------------------------------------

    def close_all_channels(self) -> None:
        """Release what all channels hold, and incomplete contents."""
        for channel in self.all_channels():
            if channel.state == lifecycle.OPEN:
                channel.closed()
            self._give_up(channel)
            self.remove_channel(channel)
        self._current = None
        if self._holdback.data:
            # it is not handled any more, but the frames behind it must still be read
            self._data = self._data[self._position :] + self._holdback.release()
            self._position = 0

    def drop_input(self) -> None:
        """Drop all input; none follows."""
        self._data = b""
        self._position = 0
        self._assembly = None
        self._holdback.release()

    def _give_up(self, channel: Channel) -> None:
        """Drop the content that this channel has begun to send."""
        assembly = channel.assembly
        if assembly is not None:
            channel.assembly = None
            assembly.give_up()

    def _fail(self, error: ProtocolError, channel: Channel | None) -> None:
        if self.state >= lifecycle.CLOSING:
            return
        self.failed(error, channel)
        values: dict[str, object] = {
            "reply_code": error.code,
            "reply_text": error.reply_text,
            "class_id": error.class_id,
            "method_id": error.method_id,
        }
        if channel is not None and not error.is_hard:
            channel.closed()
            channel.state = lifecycle.CLOSE_SENT
            self._give_up(channel)
            self.send(channel.number, grammar.CHANNEL_CLOSE, **values)
            return
        self.close_all_channels()
        self.state = self.after_failure(error)
        if self.state == lifecycle.CLOSING:
            self.send(0, grammar.CONNECTION_CLOSE, **values)
        self.mark()


def _is_large(data: bytes, at: i64, end: i64) -> bool:
    """Whether a sound content header frame stands at `at` whose body is too large to wait for."""
    return end - at >= 22 and data[at] == 2 and read_i64_be(data, at + 11) >= LARGE_OCTETS_MIN


def _second_open() -> ProtocolError:
    return ProtocolError(CHANNEL_ERROR, "second 'channel.open' seen", 20, 10)
