"""A direct connection: a connection into the own broker without a socket (federation/environment.py, DirectConnection).

The engine treats it as any other connection: it is listed, paused by pressure, blocked by alarms, closed by operators.
In place of the socket, `DirectTransport` hands on what the broker writes, in a later call of the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.link_peer import LinkPeer
from leveret.net.connections.protocol import PeerProtocol
from leveret.session import lifecycle
from leveret.session.output import Buffer
from leveret.wire import grammar
from leveret.wire.frames import FRAME_METHOD, FRAME_OVERHEAD
from leveret.wire.method import decode_method

if TYPE_CHECKING:
    from leveret.federation.environment import DirectConnectionUser
    from leveret.net.connections.admission import Admitted
    from leveret.net.links import LinkEnvironment


class DirectProtocol(PeerProtocol):
    """The engine's end of a direct connection."""

    __slots__ = ("inside",)

    def __init__(self, links: LinkEnvironment, peer: LinkPeer, user: DirectConnectionUser) -> None:
        super().__init__(links.engine)
        self.peer = peer
        self.transport = self.inside = DirectTransport(links, self, user)
        peer.sent_us = peer.received_us = peer.connected_us = self.opened_us

    def has_hung_up(self) -> bool:
        return False


class DirectTransport:
    """Stands in place of a socket.

    Each call to the user is a turn of the broker (`LinkEnvironment.turn`). None is made from within a call of the user.
    """

    def __init__(self, links: LinkEnvironment, protocol: DirectProtocol, user: DirectConnectionUser) -> None:
        self.peername = self.sockname = ("", 0)
        self.place: Admitted | None = None
        self.taken = 0
        self._links = links
        self._protocol = protocol
        self._user: DirectConnectionUser | None = user  # None after either side has closed the connection
        self._is_held = False
        self._was_held = False  # the last state that the user was told
        self._answers: list[Buffer] = []

    def writelines(self, buffers: list[Buffer]) -> None:
        """Pass the broker's output to the user. If it is a close, the connection ends without an answer."""
        if not self._answers:
            self._links.engine.loop.call_soon(self._answer)
        self._answers += buffers

    def take(self) -> bytes:
        """Return what the broker has written since the last call."""
        data = b"".join(self._answers)
        self._answers.clear()
        return data

    def _answer(self) -> None:
        data = self.take()
        if self._user is not None and not self._links.turn(self._user.answered, data):
            self._shut("internal error")
        if self._protocol.peer.state >= lifecycle.CLOSING:
            self._shut(close_reason(data))

    def pause_reading(self) -> None:
        self._hold(True)

    def resume_reading(self) -> None:
        self._hold(False)

    def _hold(self, is_held: bool) -> None:
        self._is_held = is_held
        self._links.engine.loop.call_soon(self._tell_held)

    def _tell_held(self) -> None:
        if self._user is not None and self._is_held != self._was_held:
            self._was_held = self._is_held
            if not self._links.turn(self._user.held, self._is_held):
                self._shut("internal error")

    def close(self) -> None:
        self._links.engine.loop.call_soon(self._shut, "the broker has closed it")

    def abort(self) -> None:
        self.close()

    def reset(self) -> None:
        self.close()

    def leave(self) -> None:
        """Close the connection on the user's behalf; the user gets no more calls."""
        self._user = None
        peer = self._protocol.peer
        peer.state = max(peer.state, lifecycle.DRAINING)  # so that the engine logs no lost connection
        self._links.engine.lost(self._protocol, None)

    def _shut(self, reason: str) -> None:
        user = self._user
        self.leave()
        if user is not None:
            self._links.turn(user.shut, reason)

    def is_closing(self) -> bool:
        return self._user is None

    def get_write_buffer_size(self) -> int:
        return 0

    def fileno(self) -> int:
        return -1


class InProcessConnection:
    """The user's end of a direct connection."""

    def __init__(self, links: LinkEnvironment, peer: LinkPeer, user: DirectConnectionUser) -> None:
        self.peer = peer  # the broker's end
        self._engine = links.engine
        self._protocol = DirectProtocol(links, peer, user)
        self._transport = self._protocol.inside
        self._engine.opened(self._protocol)

    def write(self, data: bytes) -> None:
        """Send frames to the broker, which handles them in this call as far as it can; the caller ends the turn."""
        if not self._transport.is_closing():
            self._engine.handle(self._protocol, data)

    def take(self) -> bytes:
        """Return what the broker has answered; then the user is not told of it."""
        return self._transport.take()

    def close(self) -> None:
        """Close the connection. Does nothing if it is closed already, by either side."""
        if not self._transport.is_closing():
            self._transport.leave()


def close_reason(data: bytes) -> str:
    """The text of the connection.close among these frames."""
    start = 0
    while start < len(data):
        size = int.from_bytes(data[start + 3 : start + 7])
        if data[start] == FRAME_METHOD and data[start + 1 : start + 3] == b"\0\0":
            method = decode_method(data[start + 7 : start + 7 + size])
            if method.spec is grammar.CONNECTION_CLOSE:
                return method.text("reply_text")
        start += size + FRAME_OVERHEAD
    return "the broker has closed it"
