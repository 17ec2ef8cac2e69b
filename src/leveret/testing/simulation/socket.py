"""The broker's end of a connection from a client or link: what net/connections/stream.py is to a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.peer import Peer
from leveret.net.connections.protocol import PeerProtocol
from leveret.session.output import Buffer
from leveret.testing.simulation.stream import End

if TYPE_CHECKING:
    from leveret.net.connections.admission import Admitted
    from leveret.testing.simulation.process import Process


class SimulatedProtocol(PeerProtocol):
    """Connects a socket with its peer."""

    def __init__(self, process: Process, peer: Peer, socket: Socket) -> None:
        super().__init__(process)
        self.peer = peer
        self.transport = socket
        peer.sent_us = peer.received_us = peer.now_us = self.opened_us

    def has_hung_up(self) -> bool:
        return self.transport.is_closing()


class Socket:
    """A transport (net/connections/protocol.py). Of what the other side has not read it holds `octets_max` or little
    more; then the connection is choked until that is read."""

    def __init__(self, process: Process, end: End, octets_max: int) -> None:
        self.peername = self.sockname = (end.peer_name, 5672)
        self.place: Admitted | None = None
        self.taken = 0  # how many times the other side has read something
        self._process = process
        self._end = end
        self._octets_max = octets_max
        self._protocol = SimulatedProtocol(process, Peer(process.broker, f"{end.peer_name}:5672", True), self)
        end.on_read = self._read
        process.opened(self._protocol)

    # -- called by the network -----------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        self._process.guard(self._protocol.data_received, data)

    def lost(self, reason: str) -> None:
        self._process.guard(self._protocol.connection_lost, None)

    def _read(self) -> None:
        self.taken += 1
        if self._protocol.is_choked and not self._end.unread_octets():
            self._process.guard(self._protocol.resume_writing)

    # -- called by the engine ------------------------------------------------------------------------------------------

    def writelines(self, buffers: list[Buffer]) -> None:
        self._end.write(b"".join(buffers))
        if not self._protocol.is_choked and self._end.unread_octets() > self._octets_max:
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._end.unread_octets() if self._protocol.is_choked else 0

    def pause_reading(self) -> None:
        self._end.pause(True)

    def resume_reading(self) -> None:
        self._end.pause(False)

    def is_closing(self) -> bool:
        return self._end.is_over

    def close(self) -> None:
        if not self._end.is_over:
            self._end.close()
            self._process.loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        if not self._end.is_over:
            self._end.abort()
            self._process.loop.call_soon(self._protocol.connection_lost, None)

    def reset(self) -> None:
        self.abort()

    def fileno(self) -> int:
        return -1
