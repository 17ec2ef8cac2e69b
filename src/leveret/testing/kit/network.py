"""The network in front of a broker: slow, silent, or cutting connections at a certain step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leveret.broker.access.security import Security
from leveret.net.connections.protocol import ByteTransport, PeerProtocol
from leveret.net.connections.stream import WRITE_HIGH_OCTETS
from leveret.net.event_loop import EventLoop
from leveret.session.output import Buffer
from leveret.testing.kit.steps import BROKER, CLIENT, STEPS, Step, Steps

if TYPE_CHECKING:
    from leveret.net.server import Server

# data that is due within this time is passed on without another turn of the event loop
_SOON_S: Final = 0.0002


@dataclass(eq=False, slots=True)
class Trip:
    """A planned cut of a connection at the nth occurrence of a step.

    Attributes:
        step: a name in STEPS.
        nth: the occurrence, from 1, counted over all matching connections.
        name: the client-provided name of matching connections; None for all.
        is_after: whether the step itself still gets through.
        seen: occurrences so far.
        fired: called when the connection is cut.
    """

    step: str
    nth: int
    name: str | None
    is_after: bool
    seen: int = 0
    fired: Callable[[], None] = lambda: None


class BrokerNetwork:
    """All connections of a broker, over all its runs. Used on the broker's loop."""

    def __init__(self) -> None:
        self.lines: dict[FaultyConnection, None] = {}
        self.deaf = self.mute = 0  # numbers of faults: deaf = the broker does not read; mute = its data is held back
        self.delay_ms = 0.0  # delay in each direction
        self.trips: list[Trip] = []

    def protocol(self, server: Server, security: Security | None = None) -> PeerProtocol:
        """Return the protocol of a newly accepted connection."""
        return FaultyConnection(server, security, self)

    def change(self) -> None:
        """Apply changed faults to all connections."""
        for line in list(self.lines):
            line.outlet.review()

    def drop(self, name: str | None) -> int:
        """Reset all connections, or those with this client-provided name; return their number."""
        found = [line for line in self.lines if name is None or line.name == name]
        for line in found:
            line.outlet.abort()
        return len(found)

    def shift(self, us: int) -> None:
        """Shift the connections' timestamps when the broker's clock jumps, so that no connection looks idle."""
        for line in self.lines:
            line.opened_us += us
            line.taken_us += us
            line.peer.received_us += us
            line.peer.sent_us += us

    def tripped(self, line: FaultyConnection, said_by: str, step: Step) -> Trip | None:
        """Return the trip that this step triggers, and remove it, or None."""
        for trip in self.trips:
            if (said_by, step.method) == STEPS[trip.step] and trip.name in (None, line.name):
                trip.seen += 1
                if trip.seen == trip.nth:
                    self.trips.remove(trip)
                    trip.fired()
                    return trip
        return None


class FaultyConnection(PeerProtocol):
    """One connection through the network."""

    def __init__(self, server: Server, security: Security | None, network: BrokerNetwork) -> None:
        super().__init__(server, security)
        self.network = network
        self.outlet: FaultyTransport
        self._said = Steps(CLIENT)
        self._is_cut = False

    @property
    def name(self) -> str:
        """The client-provided name of the connection, or ""."""
        return str(self.peer.client_properties.get("connection_name", ""))

    def connection_made(self, transport: ByteTransport) -> None:
        self._inlet = Pump(self.engine.loop, self._take, lambda: False)
        self.outlet = FaultyTransport(self, transport)
        super().connection_made(self.outlet)
        self.network.lines[self] = None
        self.outlet.review()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_cut = True
        self.network.lines.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_cut:
            self._inlet.put(data, self.network.delay_ms / 1000)

    def _take(self, data: bytes) -> None:
        """Receive bytes from the client, after their delay."""
        done = 0
        for step in self._said.feed(data):
            trip = self.network.tripped(self, CLIENT, step) if self.network.trips else None
            if trip is not None:
                start, stop = max(step.start, 0), step.stop if trip.is_after else 0
                if start > done:
                    self.engine.received(self, data[done:start])
                self._is_cut = True
                self.outlet.is_mute = True
                if stop > start:
                    self.engine.received(self, data[start:stop])
                self.outlet.abort()
                return
        self.engine.received(self, data)


class FaultyTransport:
    """A connection's transport as its broker sees it."""

    def __init__(self, line: FaultyConnection, transport: ByteTransport) -> None:
        self.peername, self.sockname, self.place = transport.peername, transport.sockname, transport.place
        self.is_mute = False
        self._line = line
        self._network = line.network
        self._transport = transport
        self._told = Steps(BROKER)
        self._pump = Pump(line.engine.loop, self._send, lambda: self._network.mute > 0)
        self._is_paused = self._is_closing = self._is_choked = False

    def review(self) -> None:
        """Pause or resume reading, and pass on waiting data, according to the network's faults."""
        if not self._transport.is_closing():
            if self._is_paused or self._network.deaf:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
        self._pump.look()

    def pause_reading(self) -> None:
        self._is_paused = True
        self.review()

    def resume_reading(self) -> None:
        self._is_paused = False
        self.review()

    def writelines(self, buffers: list[Buffer]) -> None:
        if self.is_mute:
            return
        self._pump.put(b"".join(buffers), self._network.delay_ms / 1000)
        if self._pump.octets > WRITE_HIGH_OCTETS and not self._is_choked:
            self._is_choked = True
            self._line.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + self._pump.octets

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def close(self) -> None:
        self._is_closing = True
        if not self._pump.octets:
            self._transport.close()

    def abort(self) -> None:
        self.is_mute = self._is_closing = True
        self._pump.clear()
        self._transport.abort()

    def reset(self) -> None:
        self.abort()

    @property
    def taken(self) -> int:
        return self._transport.taken

    def _send(self, data: bytes) -> None:
        for step in self._told.feed(data):
            trip = self._network.tripped(self._line, BROKER, step) if self._network.trips else None
            if trip is not None:
                self._write(data[: max(step.stop if trip.is_after else step.start, 0)])
                self.is_mute = self._is_closing = True
                self._pump.clear()
                self._transport.close()
                return
        self._write(data)
        if self._pump.octets:
            return
        if self._is_closing:
            self._transport.close()
        elif self._is_choked:
            self._is_choked = False
            self._line.resume_writing()

    def _write(self, data: bytes) -> None:
        if data:
            self._transport.writelines([data])

    def fileno(self) -> int:
        return self._transport.fileno()


class Pump:
    """A pipe that passes bytes on in order, after their delays, and none while `is_held()`."""

    def __init__(self, loop: EventLoop, pass_on: Callable[[bytes], None], is_held: Callable[[], bool]) -> None:
        self.octets = 0
        self._loop = loop
        self._pass_on = pass_on
        self._is_held = is_held
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._is_set = False

    def put(self, data: bytes, delay_s: float) -> None:
        """Add bytes to be passed on after a delay."""
        self.octets += len(data)
        self._waiting.append((self._loop.time() + delay_s if delay_s else 0.0, data))
        if len(self._waiting) == 1:
            self.look()

    def look(self) -> None:
        """Pass on everything that is due."""
        while self._waiting and not self._is_held():
            due_s = self._waiting[0][0]
            wait_s = due_s - self._loop.time()
            if wait_s > _SOON_S:
                if not self._is_set:
                    self._is_set = True
                    self._loop.call_later(wait_s, self._ring)
                return
            data = self._waiting.popleft()[1]
            self.octets -= len(data)
            self._pass_on(data)

    def clear(self) -> None:
        """Discard the waiting bytes."""
        self._waiting.clear()
        self.octets = 0

    def _ring(self) -> None:
        self._is_set = False
        self.look()
