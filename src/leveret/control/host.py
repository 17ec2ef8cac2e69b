"""What commands need of the process around the broker; net's server gives it."""

from __future__ import annotations

from typing import Protocol

from leveret.broker.peer import Peer
from leveret.net.alarms import Alarms, Limits
from leveret.net.backup import Backups
from leveret.net.listener import Listener
from leveret.net.logins import Logins


class Host(Protocol):
    """started_us: when the broker began to serve; listeners: where; alarms: of its resources; logins: has a thread for
    what takes as long as a password; backups: takes them."""

    started_us: int
    listeners: list[Listener]
    alarms: Alarms
    backups: Backups
    logins: Logins

    def now_us(self) -> int:
        """Wall-clock time."""

    def peers(self) -> list[Peer]:
        """All connections, oldest first."""

    def unsent_octets(self, peer: Peer) -> int:
        """What the network has not taken yet."""

    def certificates(self) -> list[tuple[str, int]]:
        """The certificates that the listeners show: of each its file, and until when it is valid (µs)."""

    def close(self, peer: Peer, reason: str) -> None:
        """Close a connection: 320 CONNECTION_FORCED with this reason."""

    def limit(self, limits: Limits) -> None:
        """Measure against other limits from now on."""

    def suspend_listeners(self) -> None:
        """Who connects now is refused; connections that are there stay."""

    async def resume_listeners(self) -> None:
        """Accept connections again. OSError if an address has been taken by another meanwhile."""

    async def serving(self) -> None:
        """Return when the broker accepts connections."""

    def give_back(self) -> None:
        """Give freed memory back to the system."""

    def park(self) -> None:
        """Begin an orderly stop, after which the process waits to be told to serve again."""

    def stop(self) -> None:
        """Begin an orderly stop."""

    async def settled(self) -> None:
        """Deliver what a command made deliverable; return when all that is recorded so far is on disk."""
