"""The environment of federation links in an engine, and on asyncio (federation/environment.py)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.link_peer import LinkPeer
from leveret.broker.vhost import VHost
from leveret.client.protocol.url import Address
from leveret.net.direct import InProcessConnection
from leveret.net.tcp_transport import TcpTransport

if TYPE_CHECKING:
    from leveret.federation.environment import DirectConnectionUser, ScheduledCall, Transport, TransportUser
    from leveret.net.engine import Engine
    from leveret.net.server import Server

logger = logging.getLogger("leveret")

# how long an orderly stop waits for the disk, and then for the upstreams
GOODBYE_S_MAX: Final = 1.0
READ_OCTETS: Final = 256 * 1024


class LinkEnvironment(ABC):
    """What links need of the engine that they run in; a driver adds connections to upstreams."""

    def __init__(self, engine: Engine, random: Random) -> None:
        self.engine = engine
        self.random = random
        self.now_us = engine.now_us

    def turn(self, call: Callable[..., None], *arguments: Any) -> bool:
        """Call a link back: all that it does in the broker is one turn.

        False if a defect of leveret raised an exception; other links go on.
        """
        is_sound = True
        try:
            call(*arguments)
        except Exception:
            logger.exception("federation link: internal error")
            is_sound = False
        self.engine.end_turn()
        return is_sound

    def later(self, delay_us: int, call: Callable[[], None]) -> ScheduledCall:
        """Call back after a delay, in a turn of its own; calls without a delay are made in order."""
        if delay_us <= 0:
            return self.engine.loop.call_soon(self.turn, call)
        return self.engine.loop.call_later(delay_us / 1e6, self.turn, call)

    @abstractmethod
    def dial(self, address: Address, user: TransportUser) -> Transport:
        """Begin to connect to an upstream."""

    def enter(self, vhost: VHost, name: str, has_confirms: bool, user: DirectConnectionUser) -> InProcessConnection:
        """Open a direct connection into the own broker."""
        peer = LinkPeer(self.engine.broker, vhost, name, has_confirms, "")
        peer.now_us = self.now_us()
        return InProcessConnection(self, peer, user)


class Links(LinkEnvironment):
    """The environment of one server's links. All of them read through one buffer."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, Random())
        self.server = server
        self.loop = server.loop
        self.buffer = memoryview(bytearray(READ_OCTETS))
        self.is_stopping = False
        self._transports: set[TcpTransport] = set()
        self._gone = asyncio.Event()

    def dial(self, address: Address, user: TransportUser) -> TcpTransport:
        """Begin to connect to an upstream."""
        transport = TcpTransport(self, address, user)
        self._transports.add(transport)
        return transport

    async def quiesce(self) -> None:
        """Stop reading from upstreams, and let the links finish.

        Returns when all that was read is on disk and the links have got the confirms, or after GOODBYE_S_MAX.
        """
        self.is_stopping = True
        for transport in self._transports:
            transport.pause(True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.server.settled(), GOODBYE_S_MAX)
        await asyncio.sleep(0)  # the confirms are handed to the links

    async def gone(self) -> None:
        """Wait until all transports, which were closed before, have sent their output, for GOODBYE_S_MAX at most."""
        if self._transports:
            self._gone.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), GOODBYE_S_MAX)

    def forget(self, transport: TcpTransport) -> None:
        """Note that a transport is gone."""
        self._transports.discard(transport)
        if not self._transports:
            self._gone.set()
