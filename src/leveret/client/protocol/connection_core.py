"""The client's end of a connection, without sockets: bytes in by receive(), bytes out by take().

Both APIs (asyncio and blocking) move the bytes and wait; the protocol is here and in channel_core. The table _NEXT is
the state machine of a connection: which method is allowed in which state, and what handles it.
"""

from __future__ import annotations

import os
import platform
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from leveret.client.protocol.channel_core import Answer, ChannelCore
from leveret.client.protocol.delivering import DeliveryReader
from leveret.client.protocol.errors import AuthenticationFailed, ClientError, ConnectionClosed, PublishError
from leveret.client.protocol.reconnect import Reconnect, is_temporary
from leveret.client.protocol.recovery import ChannelRecovery
from leveret.client.protocol.restoring import Restoring
from leveret.client.protocol.topology import RecordedTopology
from leveret.client.protocol.url import Address
from leveret.client.protocol.waiter import Waiter
from leveret.wire import grammar
from leveret.wire.errors import ACCESS_REFUSED, COMMAND_INVALID, FRAME_ERROR, NOT_ALLOWED, ProtocolError
from leveret.wire.frames import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    HEARTBEAT,
    PROTOCOL_HEADER,
    check_frame_head,
)
from leveret.wire.grammar import MethodSpec
from leveret.wire.method import Method, decode_method, method_frame
from leveret.wire.table import Value

T = TypeVar("T")

FRAME_MAX: Final = 131072
CHANNEL_MAX: Final = 2047
_HEAD: Final = struct.Struct(">BHI")
CAPABILITIES: Final = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "authentication_failure_close",
)


class BatchReader(Protocol):
    """A fast path for batches of deliveries, tried before the frames are parsed one by one."""

    def read(self, channels: Mapping[int, ChannelCore[Any]], data: bytes, start: int) -> int:
        """Handle the frames from offset start on that it knows; return the offset of the first unused byte."""
        ...


class ConnectionCore:
    """The protocol of one connection. Call tick() every tick_interval_s seconds once `opened` is done.

    With a policy the connection outlives its socket: when that is lost, `interruption` says why, and the caller makes
    another one and calls begin(). What was declared, consumed and not confirmed is restored then, and `restored` is
    done; requests and publishes wait meanwhile.

    heartbeat_s is the requested interval in seconds, 0 = no heartbeats; name is shown by the broker's tools; policy =
    None ends the connection with its socket.
    """

    def __init__(self, address: Address, heartbeat_s: int, name: str | None, policy: Reconnect | None = None) -> None:
        self.address: Address = address
        self.policy = policy
        self.topology: RecordedTopology = RecordedTopology()
        self.sockets: int = 1  # how many were begun
        self.interruption: ConnectionClosed | None = None  # why the socket was lost, until another is open
        self.on_interrupted: Callable[[ConnectionClosed], None] | None = None
        self.restored: Waiter[None] = Waiter()  # another one after each loss
        self.server_properties: dict[str, Value] = {}
        self.frame_max: int = FRAME_MAX
        self.channel_max: int = CHANNEL_MAX
        self.heartbeat_s: int = heartbeat_s  # the negotiated interval once connection.tune has arrived
        self.blocked: str | None = None  # the reason of connection.blocked; None = not blocked
        self.on_blocked: Callable[[str | None], None] | None = None
        self.error: ConnectionClosed | None = None  # why the connection ended for good; None before
        self.opened: Waiter[None] = Waiter()
        self.closed: Waiter[None] = Waiter()
        self.outbox_size: int = len(PROTOCOL_HEADER)
        self._state = "start"
        self._heartbeat_wish_s = heartbeat_s
        self._name = name or f"leveret-client {socket.gethostname()}:{os.getpid()}"
        self._outbox: list[bytes | bytearray] = [PROTOCOL_HEADER]
        self._channels: dict[int, ChannelCore[Any]] = {}
        self._rest = b""  # the beginning of an incomplete frame
        self.deliveries: BatchReader = DeliveryReader()  # may be replaced
        self._was_sent = self._was_received = True
        self._silent_ticks = 0

    def begin(self, address: Address) -> None:
        """Begin anew on another socket, after the last one was lost. `opened` and `restored` are new waiters."""
        self.address = address
        self.sockets += 1
        self.frame_max, self.channel_max, self.heartbeat_s = FRAME_MAX, CHANNEL_MAX, self._heartbeat_wish_s
        self.opened, self.restored = Waiter(), Waiter()
        self._state = "start"
        self._rest = b""
        self._outbox = [PROTOCOL_HEADER]
        self.outbox_size = len(PROTOCOL_HEADER)
        self._was_sent = self._was_received = True
        self._silent_ticks = 0

    # bytes

    def send(self, data: bytes | bytearray) -> None:
        """Put bytes into the outbox."""
        self._outbox.append(data)
        self.outbox_size += len(data)

    def ends_with(self, data: bytearray) -> bool:
        """Whether this, and not something equal, was put into the outbox last."""
        return bool(self._outbox) and self._outbox[-1] is data

    def take(self) -> bytes:
        """Empty the outbox and return its bytes, to be written to the socket."""
        data = b"".join(self._outbox)
        self._outbox.clear()
        self.outbox_size = 0
        self._was_sent = self._was_sent or bool(data)
        return data

    def receive(self, data: bytes) -> None:
        """Handle bytes from the broker, in pieces of any size. A protocol error ends the connection; none is raised."""
        self._was_received = True
        if not self.is_on_line:
            return
        if self._rest:
            data = self._rest + data
        try:
            self._rest = data[self._receive_frames(data) :]
        except ProtocolError as error:
            self._violation(error)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            self._violation(ProtocolError(502, f"malformed frame: {error}"))

    def _receive_frames(self, data: bytes) -> int:
        start = 0
        end = len(data)
        if self._state == "start" and data.startswith(b"AMQP"):
            raise ProtocolError(FRAME_ERROR, "the server does not speak AMQP 0-9-1; it offers " + repr(data[:8]))
        if self._state == "start" and data.startswith(b"\x15\x03"):  # a fatal alert
            raise ProtocolError(FRAME_ERROR, "the server speaks TLS on this port: write amqps:// for amqp://")
        while self.is_on_line:
            start = self.deliveries.read(self._channels, data, start)
            if end - start < 7:
                break
            kind, channel, size = _HEAD.unpack_from(data, start)
            check_frame_head(kind, size, self.frame_max)
            after = start + size + FRAME_OVERHEAD
            if after > end:
                break
            if data[after - 1] != FRAME_END:
                raise ProtocolError(FRAME_ERROR, f"frame end is {data[after - 1]}, not 206")
            self._receive_frame(kind, channel, data[start + 7 : after - 1])
            start = after
        return start

    def _receive_frame(self, kind: int, number: int, payload: bytes) -> None:
        if number == 0:
            if kind == FRAME_METHOD:
                self._receive_method(decode_method(payload))
            return
        channel = self._channels.get(number)
        if channel is None:
            return  # late frames of a channel that this client has closed
        if kind == FRAME_METHOD:
            channel.receive_method(payload)
            if channel.error is not None:
                self._channels.pop(number, None)
        elif kind == FRAME_HEADER:
            channel.receive_header(payload)
        elif kind == FRAME_BODY:
            channel.receive_body(payload)

    # the connection's own methods

    def _receive_method(self, method: Method) -> None:
        handler = _NEXT.get((self._state, method.spec.key)) or _NEXT.get(("any", method.spec.key))
        if handler is None:
            raise ProtocolError(COMMAND_INVALID, f"{method.name} in state {self._state}")
        handler(self, method)

    def _on_start(self, method: Method) -> None:
        self.server_properties = method.table("server_properties")
        mechanisms = method.data("mechanisms").decode().split()
        mechanism, response = "PLAIN", f"\0{self.address.user}\0{self.address.password}"
        if self.address.is_external:
            mechanism, response = "EXTERNAL", ""
        if mechanism not in mechanisms:
            raise ProtocolError(NOT_ALLOWED, f"the server offers no {mechanism} login, only {' '.join(mechanisms)}")
        self._send(
            grammar.CONNECTION_START_OK,
            client_properties=self._client_properties(),
            mechanism=mechanism,
            response=response.encode(),
            locale="en_US",
        )
        self._state = "tune"

    def _client_properties(self) -> dict[str, Value]:
        capabilities: dict[str, Value] = dict.fromkeys(CAPABILITIES, True)
        return {
            "product": "leveret client",
            "platform": f"Python {platform.python_version()}",
            "connection_name": self._name,
            "capabilities": capabilities,
        }

    def _on_tune(self, method: Method) -> None:
        """Agree on the smaller of both values, where 0 from the broker means no limit."""
        self.channel_max = min(method.number("channel_max") or CHANNEL_MAX, CHANNEL_MAX)
        self.frame_max = min(method.number("frame_max") or FRAME_MAX, FRAME_MAX)
        if self.heartbeat_s:
            self.heartbeat_s = min(method.number("heartbeat") or self.heartbeat_s, self.heartbeat_s)
        self._send(
            grammar.CONNECTION_TUNE_OK,
            channel_max=self.channel_max,
            frame_max=self.frame_max,
            heartbeat=self.heartbeat_s,
        )
        self._send(grammar.CONNECTION_OPEN, virtual_host=self.address.vhost)
        self._state = "open-sent"

    def _on_open_ok(self, _method: Method) -> None:
        self._state = "open"
        self.opened.succeed(None)
        if self.interruption is not None:
            Restoring(self, self.topology).begin()

    def _on_close(self, method: Method) -> None:
        self._send(grammar.CONNECTION_CLOSE_OK)
        code, text = method.number("reply_code"), method.text("reply_text")
        if self._state in {"tune", "open-sent"} and code == ACCESS_REFUSED:
            self._end(_login_refused(self.address, text, self._state == "tune"))
        else:
            self._end(ConnectionClosed(code, text))

    def _on_close_ok(self, _method: Method) -> None:
        self.fail(ConnectionClosed(200, "the connection was closed by this client"))

    def _on_blocked(self, method: Method) -> None:
        self._set_blocked(method.text("reason") or "the broker blocks publishers")

    def _on_unblocked(self, _method: Method) -> None:
        self._set_blocked(None)

    def _set_blocked(self, reason: str | None) -> None:
        self.blocked = reason
        if self.on_blocked is not None:
            self.on_blocked(reason)

    def _send(self, spec: MethodSpec, **values: object) -> None:
        self.send(method_frame(0, spec, **values))

    def _violation(self, error: ProtocolError) -> None:
        self._send(
            grammar.CONNECTION_CLOSE,
            reply_code=error.code,
            reply_text=error.reply_text,
            class_id=error.class_id,
            method_id=error.method_id,
        )
        self.fail(ConnectionClosed(error.code, f"the server broke the protocol: {error.reply_text}"))

    # requests of the APIs

    def open_channel(
        self,
        on_settled: Callable[[T, PublishError | None], None],
        on_failed: Callable[[ClientError], None],
        is_kept: bool = True,
    ) -> ChannelCore[T]:
        """Return a channel with the lowest free number; the caller sends channel.open.

        is_kept: The channel outlives its socket, if the connection does.

        Raises ConnectionClosed if the connection is not open, ClientError if no channel number is free.
        """
        self.check_open()
        # one number stays free for the channel that restores the others
        last = self.channel_max - (is_kept and self.policy is not None)
        number = next((n for n in range(1, last + 1) if n not in self._channels), 0)
        if not number:
            raise ClientError(f"all {last} channels of the connection are open; close some of them")
        recovery = ChannelRecovery(self.policy, self.topology) if is_kept and self.policy is not None else None
        channel: ChannelCore[T] = ChannelCore(number, self, on_settled, on_failed, recovery)
        channel.is_interrupted = recovery is not None and self.interruption is not None
        self._channels[number] = channel
        return channel

    def check_open(self) -> None:
        """Raise ConnectionClosed if the connection is not open."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self._state != "open" and self.interruption is None:
            raise ConnectionClosed(0, f"the connection is not open (state {self._state!r})")

    def close(self) -> None:
        """Send connection.close; the waiter `closed` is done when the broker has answered."""
        if self._state == "open":
            self.interruption = None
            self._send(grammar.CONNECTION_CLOSE, reply_code=200, reply_text="done")
            self._state = "closing"
        elif self._state != "closing":
            self.fail(ConnectionClosed(200, "the connection was closed by this client"))

    def lost(self, reason: str) -> None:
        """Handle the loss of the socket. reason: the system's error text; "" if the peer just hung up."""
        if self._state in {"tune", "open-sent"}:
            # servers without authentication_failure_close hang up on a wrong password, and some on a wrong vhost
            hint = f"; check user {self.address.user!r}, its password and vhost {self.address.vhost!r}"
            self._end(ConnectionClosed(0, f"the server hung up during login{hint}"))
        elif self._state == "start":
            self._end(
                ConnectionClosed(0, f"the server hung up before the handshake; is it AMQP 0-9-1? {reason}".strip())
            )
        else:
            self._end(ConnectionClosed(0, f"connection lost: {reason or 'the server hung up'}"))

    def _end(self, error: ConnectionClosed) -> None:
        """End the socket, and the connection, too, unless it can be restored on another socket."""
        if self.policy is None or not is_temporary(error) or self._state == "closing":
            self.fail(error)
        elif self._state == "open":
            self.interrupt(error)
        elif self.interruption is not None:  # an attempt has failed
            self._state = "interrupted"
            self.opened.fail(error)
        else:
            self.fail(error)

    def interrupt(self, error: ConnectionClosed) -> None:
        """Give the socket up, to restore the connection on another one."""
        self.interruption = self.interruption or error
        self._state = "interrupted"
        self._rest = b""
        if self.blocked is not None:
            self._set_blocked(None)
        if self.restored.done:  # perhaps in this moment, and nobody has looked
            self.restored = Waiter()
        self.restored.fail(error)  # before the channels, whose requests it waits for
        for number, channel in list(self._channels.items()):
            if not channel.is_kept:
                channel.fail(error)
            elif not channel.is_interrupted:  # else the connection was lost before its turn to be restored
                channel.interrupt()
            if channel.error is not None:
                del self._channels[number]
        if self.on_interrupted is not None:
            self.on_interrupted(error)

    def restore_channels(self) -> list[Waiter[Answer]]:
        """Restore all channels on the socket that is open now; return the answers to wait for."""
        self.interruption = None
        self._channels = {number: channel for number, channel in self._channels.items() if channel.error is None}
        kept = [channel for channel in list(self._channels.values()) if channel.is_kept]
        return [answer for channel in kept for answer in channel.restore()]

    def fail(self, error: ConnectionClosed) -> None:
        """End the connection: all channels and waiters get the error. No effect the second time."""
        if self.error is not None:
            return
        self.error = error
        self.interruption = None
        self._state = "closed"
        self.blocked = None
        self._rest = b""
        self.restored.fail(error)  # before the channels, whose requests it waits for
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.fail(error)
        self.opened.fail(error)
        self.closed.succeed(None)

    @property
    def is_on_line(self) -> bool:
        """Whether the present socket is to be read: neither it nor the connection has ended."""
        return self._state not in ("interrupted", "closed")

    @property
    def tick_interval_s(self) -> float:
        """Seconds between calls of tick(); 0 = heartbeats are off."""
        return self.heartbeat_s / 2

    def tick(self) -> None:
        """Handle half a heartbeat interval: send a heartbeat if nothing was sent; end the connection after two
        intervals in which nothing arrived."""
        if not self.is_on_line or not self.heartbeat_s:
            return
        self._silent_ticks = 0 if self._was_received else self._silent_ticks + 1
        if self._silent_ticks >= 4:
            self._end(ConnectionClosed(0, f"the server was silent for {2 * self.heartbeat_s} s (missed heartbeats)"))
        elif not self._was_sent:
            self.send(HEARTBEAT)
        self._was_sent = self._was_received = False


def _login_refused(address: Address, text: str, is_login: bool) -> ConnectionClosed:
    if not is_login:
        return ConnectionClosed(ACCESS_REFUSED, f"{text} (may user {address.user!r} use vhost {address.vhost!r}?)")
    hint = f"check user {address.user!r} and its password in the URL"
    if address.user == "guest":
        hint += "; guest may usually log in from the broker's own machine only"
    return AuthenticationFailed(ACCESS_REFUSED, f"{text} ({hint})")


_NEXT: Final[dict[tuple[str, int], Callable[[ConnectionCore, Method], None]]] = {
    ("start", grammar.CONNECTION_START.key): ConnectionCore._on_start,
    ("tune", grammar.CONNECTION_TUNE.key): ConnectionCore._on_tune,
    ("open-sent", grammar.CONNECTION_OPEN_OK.key): ConnectionCore._on_open_ok,
    ("closing", grammar.CONNECTION_CLOSE_OK.key): ConnectionCore._on_close_ok,
    ("any", grammar.CONNECTION_CLOSE.key): ConnectionCore._on_close,
    ("any", grammar.CONNECTION_BLOCKED.key): ConnectionCore._on_blocked,
    ("any", grammar.CONNECTION_UNBLOCKED.key): ConnectionCore._on_unblocked,
}
