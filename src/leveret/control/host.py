"""What commands need of the process around the broker; net's server gives it."""

from __future__ import annotations

from typing import Protocol

from leveret.broker.peer import Peer
from leveret.net.alarms import Alarms
from leveret.net.listener import Listener


class Host(Protocol):
    """started_us: when the broker began to serve; listeners: where; alarms: of its resources."""

    started_us: int
    listeners: list[Listener]
    alarms: Alarms

    def now_us(self) -> int:
        """Wall-clock time."""

    def peers(self) -> list[Peer]:
        """All connections, oldest first."""

    def unsent_octets(self, peer: Peer) -> int:
        """What the network has not taken yet."""

    def close(self, peer: Peer, reason: str) -> None:
        """Close a connection: 320 CONNECTION_FORCED with this reason."""

    def stop(self) -> None:
        """Begin an orderly stop."""

    async def settled(self) -> None:
        """Deliver what a command made deliverable; return when all that is recorded so far is on disk."""
