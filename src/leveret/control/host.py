"""What commands need from the process around the broker; net's server implements it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from leveret.broker.peer import Peer
from leveret.federation.status import LinkStatus
from leveret.net.alarms import Alarms, ResourceLimits
from leveret.net.connections.listener import Listener
from leveret.net.connections.listening import Listening
from leveret.net.connections.logins import Logins
from leveret.net.disk.backup import Backups
from leveret.net.disk.files import FileCounts
from leveret.net.disk.streams import StreamStorage
from leveret.net.shutdown import Shutdown


class FederationLinks(Protocol):
    """The federation links."""

    def statuses(self) -> list[LinkStatus]:
        """Return states of links, and exchanges that can't be federated, by virtual host, exchange and upstream."""

    def restart(self, id: str) -> bool:
        """Reconnect and set up all bindings again. Returns False if there is no such link."""

    def pause(self, id: str) -> bool:
        """Disconnect until `resume`, even if the broker restarts. Returns False if there is no such link."""

    def resume(self, id: str) -> bool:
        """Connect again. Returns False if there is no such link."""


class Host(Protocol):
    """The process in which the broker runs."""

    started_us: int  # when the broker began to serve
    listeners: list[Listener]
    listening: Listening  # pauses the listeners
    serving: asyncio.Event  # set when connections are accepted
    alarms: Alarms  # resource alarms
    backups: Backups
    logins: Logins  # checks passwords, on a thread if it takes long
    streams: StreamStorage  # streams and their files
    shutdown: Shutdown  # shutdown and maintenance mode
    is_draining: bool  # consumers are sent nothing new, as the broker is about to stop

    @property
    def federator(self) -> FederationLinks:
        """The federation links."""

    def now_us(self) -> int:
        """Return the broker's time, see net/clock.py; `Timeline.wall_us` converts it to wall clock time."""

    def peers(self) -> list[Peer]:
        """Return all connections, oldest first."""

    def unsent_octets(self, peer: Peer) -> int:
        """Return the octets that the network has not taken yet."""

    def waits_s(self) -> dict[str, float]:
        """Return how long publishers have had to wait, by reason: those of net/pressure.py, and alarms."""

    def paused_count(self) -> int:
        """Return how many connections are not read from at the moment."""

    def files(self) -> FileCounts:
        """Return the disk use of journal and segments."""

    def certificates(self) -> list[tuple[str, int]]:
        """Return file name and end of validity (µs) of each certificate of the listeners."""

    def close(self, peer: Peer, reason: str) -> None:
        """Close a connection: 320 CONNECTION_FORCED with this reason."""

    def limit(self, limits: ResourceLimits) -> None:
        """Apply other resource limits from now on."""

    def stop(self, keeps_process: bool = False) -> None:
        """Begin an orderly shutdown. With keeps_process, the process stays and waits for the order to serve again."""

    async def settled(self) -> None:
        """Deliver what a command made deliverable; return when everything recorded so far is on disk."""
