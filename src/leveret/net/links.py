"""What the links of federation need of the world, on asyncio (federation/environment.py)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.link_peer import LinkPeer
from leveret.broker.vhost import VHost
from leveret.client.url import Address
from leveret.net.direct import InProcessConnection
from leveret.net.tcp_transport import TcpTransport

if TYPE_CHECKING:
    from leveret.federation.environment import DirectConnectionUser, TransportUser
    from leveret.net.server import Server

logger = logging.getLogger("leveret")

# an orderly stop waits so long for the disk, and then for the upstreams
GOODBYE_S_MAX: Final = 1.0
READ_OCTETS: Final = 256 * 1024


class Links:
    """The Surroundings of one server. All reads go through one buffer."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.loop = server.loop
        self.random = Random()
        self.buffer = memoryview(bytearray(READ_OCTETS))
        self.now_us = server.now_us
        self.is_stopping = False
        self._transports: set[TcpTransport] = set()
        self._gone = asyncio.Event()

    def turn(self, call: Callable[..., None], *arguments: Any) -> bool:
        """Call a link back: all that it does in the broker is one turn. False if that went wrong, by a defect of ours;
        the others go on."""
        try:
            call(*arguments)
        except Exception:
            logger.exception("federation link: internal error")
            return False
        finally:
            self.server.end_turn()
        return True

    def later(self, delay_us: int, call: Callable[[], None]) -> asyncio.Handle:
        """Call back after a delay, in a turn of its own; those without a delay in the order of the calls."""
        if delay_us <= 0:
            return self.loop.call_soon(self.turn, call)
        return self.loop.call_later(delay_us / 1e6, self.turn, call)

    def dial(self, address: Address, user: TransportUser) -> TcpTransport:
        """Begin to connect to an upstream."""
        transport = TcpTransport(self, address, user)
        self._transports.add(transport)
        return transport

    def enter(self, vhost: VHost, name: str, has_confirms: bool, user: DirectConnectionUser) -> InProcessConnection:
        """Come into the own broker."""
        peer = LinkPeer(self.server.broker, vhost, name, has_confirms, "")
        peer.now_us = self.now_us()
        return InProcessConnection(self, peer, user)

    async def quiesce(self) -> None:
        """Hear nothing more from upstreams; what was heard is on disk, and the links have been told, when this returns,
        unless the disk takes longer than GOODBYE_S_MAX."""
        self.is_stopping = True
        for transport in self._transports:
            transport.pause(True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.server.settled(), GOODBYE_S_MAX)
        await asyncio.sleep(0)  # the confirms are on their way to the links

    async def gone(self) -> None:
        """All transports were closed: wait until the upstreams have what was written, GOODBYE_S_MAX at most."""
        if self._transports:
            self._gone.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), GOODBYE_S_MAX)

    def forget(self, transport: TcpTransport) -> None:
        """It is gone."""
        self._transports.discard(transport)
        if not self._transports:
            self._gone.set()
