"""What federation links need of the world, here: virtual connections, virtual time, a direct connection into their own
broker."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from leveret.broker.link_peer import LinkPeer
from leveret.broker.vhost import VHost
from leveret.client.url import Address
from leveret.federation.environment import DirectConnectionUser, TransportUser
from leveret.session import lifecycle
from leveret.testing.simulation.clock import ScheduledEvent

if TYPE_CHECKING:
    from leveret.testing.simulation.process import Process


class VirtualLine:
    """A connection to an upstream."""

    def __init__(self, process: Process, address: Address, user: TransportUser) -> None:
        self._process = process
        self._user = user
        machine = process.machine
        self._end = machine.network.dial(machine.host, address.host, self, self._connected)

    def write(self, data: bytes) -> None:
        self._end.write(data)

    def pause(self, is_paused: bool) -> None:
        self._end.pause(is_paused)

    def close(self) -> None:
        self._end.close()

    def _connected(self) -> None:
        self._process.run(self._user.connected)

    def received(self, data: bytes) -> None:
        self._process.run(lambda: self._user.received(data))

    def lost(self, reason: str) -> None:
        self._process.run(lambda: self._user.lost(reason))


class VirtualDirectConnection:
    """A connection into the own broker. What the broker says is heard in a turn of its own."""

    def __init__(self, process: Process, peer: LinkPeer, user: DirectConnectionUser) -> None:
        self.peer = peer
        self.user = user
        self._process = process
        self._answers = b""
        process.enter(peer, self)

    def write(self, data: bytes) -> None:
        self._process.turn(self.peer, data)

    def close(self) -> None:
        self._process.forget(self.peer)
        self._process.environment.directs.pop(self, None)

    def send(self, data: bytes) -> None:
        if data and not self._answers:
            self._process.later(0, self._answer)
        self._answers += data

    def end(self, reason: str) -> None:
        if self.is_open:
            self.close()
            self._process.later(0, lambda: self.user.shut(reason or "closed by the broker"))

    @property
    def is_open(self) -> bool:
        """It was closed by neither side."""
        return self in self._process.environment.directs

    def _answer(self) -> None:
        data, self._answers = self._answers, b""
        if not self.is_open:
            return
        if self.peer.state >= lifecycle.CLOSING:
            self.end("")
        else:
            self.user.answered(data)


class VirtualEnvironment:
    """Those of one life of a broker."""

    def __init__(self, process: Process) -> None:
        self.random: Random = process.random
        self.directs: dict[VirtualDirectConnection, None] = {}
        self._process = process

    def now_us(self) -> int:
        return self._process.clock.now_us

    def later(self, delay_us: int, call: Callable[[], None]) -> ScheduledEvent:
        return self._process.later(delay_us, call)

    def dial(self, address: Address, user: TransportUser) -> VirtualLine:
        return VirtualLine(self._process, address, user)

    def enter(self, vhost: VHost, name: str, has_confirms: bool, user: DirectConnectionUser) -> VirtualDirectConnection:
        peer = LinkPeer(self._process.broker, vhost, name, has_confirms, "")
        direct = VirtualDirectConnection(self._process, peer, user)
        self.directs[direct] = None
        return direct

    def hold(self, is_held: bool) -> None:
        """Tell those who publish through direct connections to wait, or to go on."""
        for direct in self.directs:
            self._process.later(0, lambda direct=direct: direct.is_open and direct.user.held(is_held))  # type: ignore[misc]
