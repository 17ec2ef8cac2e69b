"""One connection: hands its input to its peer, and reports its socket's state to the engine."""

from __future__ import annotations

import select
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Protocol

from leveret.broker.access.security import Security
from leveret.broker.peer import Peer
from leveret.session import lifecycle
from leveret.session.connection import FLOOD_OCTETS
from leveret.session.output import Buffer

if TYPE_CHECKING:
    from leveret.net.connections.admission import Admitted
    from leveret.net.engine import Engine

# on Linux poll reports half-closed connections, too
HUNG_UP = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
# only direct replies can reach this: their requester has no queue that could keep them
UNREAD_OCTETS_MAX = 128 << 20
# addresses for which it is cached whether they are this machine's
ADDRESSES_MAX = 1024


class ByteTransport(Protocol):
    """What is below: a `Stream`, TLS, or a direct connection into the own broker. place: of its socket
    (net/connections/admission.py)."""

    place: Admitted | None  # the socket's admission (net/connections/admission.py)
    peername: tuple[Any, ...]
    sockname: tuple[Any, ...]

    @property
    def taken(self) -> int: ...
    def writelines(self, buffers: list[Buffer], /) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def is_closing(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def reset(self) -> None: ...
    def fileno(self) -> int: ...


class PeerProtocol:
    """Connects a transport with its peer."""

    __slots__ = (
        "_security", "_taken", "_unread_octets", "engine", "is_choked", "is_going_on", "is_paused", "is_stuck",
        "opened_us", "peer", "taken_us", "transport",
    )  # fmt: skip

    def __init__(self, engine: Engine, security: Security | None = None) -> None:
        self.engine = engine
        self._security = security  # the TLS session's properties, None without TLS
        self.is_paused = False  # it is not read from (net/pressure.py)
        self.is_choked = False  # its socket accepts no more output
        self.is_stuck = False  # it has been choked for a while
        self.is_going_on = False  # another turn of it is scheduled
        # taken_us: the last check at which the socket had accepted output, or none was waiting
        self.opened_us = self.taken_us = engine.now_us()
        self._taken = 0
        self._unread_octets = 0  # written since it became choked

    def connection_made(self, transport: ByteTransport) -> None:
        self.transport = transport
        host, port = transport.peername[:2]
        self.peer = Peer(self.engine.broker, f"{host}:{port}", _is_loopback(host))
        self.peer.security = self._security
        own_host, own_port = transport.sockname[:2]
        self.peer.name = f"{host}:{port} -> {own_host}:{own_port}"
        self.peer.sent_us = self.peer.received_us = self.opened_us
        self.engine.opened(self)

    def pause(self, is_paused: bool) -> None:
        """Stop reading from the socket, or go on."""
        self.is_paused = is_paused
        if self.transport.is_closing():
            return
        if is_paused:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def write_choked(self, buffers: list[Buffer]) -> None:
        """Send although the socket is full. Consumers get nothing then, so it is answers that pile up."""
        self._unread_octets += sum(len(buffer) for buffer in buffers)
        if self._unread_octets > FLOOD_OCTETS:
            self.peer.is_flooded = True
        if self._unread_octets > UNREAD_OCTETS_MAX:
            self.engine.overrun(self)
            return
        self.transport.writelines(buffers)

    def has_stopped_reading(self, now_us: int, most_us: int) -> bool:
        """Whether the socket has accepted no output for more than most_us though some waits. Called once a second."""
        transport = self.transport
        if not transport.get_write_buffer_size() or transport.taken != self._taken:
            self._taken = transport.taken
            self.taken_us = now_us
        return now_us - self.taken_us > most_us

    def data_received(self, data: bytes) -> None:
        if self.peer.state < lifecycle.RUNNING:
            self.engine.handshake_budget.received(self, data)
        else:
            self.engine.received(self, data)

    def pause_writing(self) -> None:
        self.is_choked = True
        self.peer.is_full = True
        self.engine.crowded(self)

    def resume_writing(self) -> None:
        self.is_choked = False
        self.is_stuck = False
        self._unread_octets = 0
        self.engine.drained(self)

    def has_hung_up(self) -> bool:
        """Whether the client has closed its end, even if there is input left to read."""
        number = self.transport.fileno()
        if number < 0:
            return True
        poll = select.poll()
        poll.register(number, HUNG_UP)
        return bool(poll.poll(0))

    def eof_received(self) -> None:
        """End the connection: a client that has closed its side is gone, as in RabbitMQ; it may never read its output.
        """
        self.engine.lost(self, None)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.engine.lost(self, exc)


@lru_cache(ADDRESSES_MAX)
def _is_loopback(host: str) -> bool:
    return ip_address(host.partition("%")[0]).is_loopback
