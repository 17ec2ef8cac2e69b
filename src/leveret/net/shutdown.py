"""How a server says goodbye to its clients: before it stops, or when maintenance begins."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.net.server import Server

logger = logging.getLogger("leveret")

# how often it is checked whether consumers have acknowledged everything
LOOK_S: Final = 0.05
# RabbitMQ's text for clients that are connected when a node is drained (3.10.8)
DRAINED: Final = "Node was put into maintenance mode"


class Shutdown:
    """Drains a server's clients."""

    def __init__(self, server: Server) -> None:
        self.drain_timeout_ms = 0  # how long consumers may acknowledge what they have before a stop, 0 = no wait
        # is_hurried: the stop waits for no client any more; is_under_maintenance: no clients are served
        self.is_hurried = self.is_under_maintenance = False
        self._server = server

    def leave(self) -> None:
        """Stop when consumers have acknowledged what they have, or their time is over. A second call stops at once."""
        server = self._server
        if server.is_draining or server.stopping.is_set():
            self.is_hurried = True
            server.hurry()
        elif self.drain_timeout_ms and server.serving.is_set():
            server.is_draining = True
            server.listening.suspend()
            for peer in server.peers():
                peer.is_full = True
            logger.info("stopping: consumers have %d ms to acknowledge their messages", self.drain_timeout_ms)
            self._look(server.now_us() + self.drain_timeout_ms * 1000)
        else:
            server.stop()

    def _look(self, until_us: int) -> None:
        server = self._server
        if server.stopping.is_set():
            return
        count = sum(int(channel.unacked.count) for peer in server.peers() for channel in peer.channels.values())
        if count and server.now_us() < until_us:
            server.loop.call_later(LOOK_S, self._look, until_us)
            return
        if count:
            logger.warning("%d deliveries are unacknowledged: they will be redelivered after the next start", count)
        server.stop()

    def drain(self) -> None:
        """Begin maintenance: refuse new connections, and close all but those of federation links."""
        server = self._server
        if not self.is_under_maintenance:
            self.is_under_maintenance = True
            logger.warning("under maintenance: no clients are served until the node is revived")
        server.listening.suspend()
        for peer in server.peers():
            if not peer.is_link:
                server.close(peer, DRAINED)
        server.end_turn()

    async def revive(self) -> None:
        """End maintenance. OSError if an address is in use by another process now."""
        await self._server.listening.resume()
        if self.is_under_maintenance:
            self.is_under_maintenance = False
            logger.warning("maintenance is over: clients are served again")
