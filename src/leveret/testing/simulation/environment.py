"""The environment of federation links: the engine's, with virtual connections to upstreams."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leveret.client.protocol.url import Address
from leveret.federation.environment import TransportUser
from leveret.net.links import LinkEnvironment

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
        self._tell(self._user.connected)

    def received(self, data: bytes) -> None:
        self._tell(self._user.received, data)

    def lost(self, reason: str) -> None:
        self._tell(self._user.lost, reason)

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        self._process.guard(self._process.environment.turn, call, *arguments)


class VirtualEnvironment(LinkEnvironment):
    """That of one process."""

    def __init__(self, process: Process) -> None:
        super().__init__(process, process.random)
        self._process = process

    def dial(self, address: Address, user: TransportUser) -> VirtualLine:
        return VirtualLine(self._process, address, user)
