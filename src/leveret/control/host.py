"""What commands need of the process around the broker; net's server gives it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from leveret.broker.peer import Peer
from leveret.federation.status import LinkStatus
from leveret.net.alarms import Alarms, Limits
from leveret.net.backup import Backups
from leveret.net.files import Files
from leveret.net.listener import Listener
from leveret.net.listening import Listening
from leveret.net.logins import Logins
from leveret.net.shutdown import Shutdown
from leveret.net.streams import Streams


class Links(Protocol):
    """The federation links."""

    def statuses(self) -> list[LinkStatus]:
        """How each stands, and which exchanges can't be federated; by virtual host, exchange and upstream."""

    def restart(self, id: str) -> bool:
        """Connect anew, with bindings and all. False if there is no such link."""

    def pause(self, id: str) -> bool:
        """Disconnect, and stay so over restarts of the broker. False if there is no such link."""

    def resume(self, id: str) -> bool:
        """Connect again. False if there is no such link."""


class Host(Protocol):
    """started_us: when the broker began to serve; serving: is set when connections are accepted; listeners: where;
    listening: how that stops for a while; departure: how clients are sent away; alarms: of its resources; logins: has a
    thread for what takes as long as a password; backups: takes them; streams: and their files."""

    started_us: int
    listeners: list[Listener]
    listening: Listening
    serving: asyncio.Event
    alarms: Alarms
    backups: Backups
    logins: Logins
    streams: Streams
    shutdown: Shutdown

    @property
    def federator(self) -> Links:
        """The federation links."""

    def now_us(self) -> int:
        """The broker's time, see net/clock.py; `Timeline.wall_us` makes of it what people are told."""

    def peers(self) -> list[Peer]:
        """All connections, oldest first."""

    def unsent_octets(self, peer: Peer) -> int:
        """What the network has not taken yet."""

    def waits_s(self) -> dict[str, float]:
        """How long publishers have had to wait, by reason: those of net/pressure.py, and alarms."""

    def paused_count(self) -> int:
        """How many connections are not read from at the moment."""

    def files(self) -> Files:
        """What journal and segments take on the disk."""

    def certificates(self) -> list[tuple[str, int]]:
        """The certificates that the listeners show: of each its file, and until when it is valid (µs)."""

    def close(self, peer: Peer, reason: str) -> None:
        """Close a connection: 320 CONNECTION_FORCED with this reason."""

    def limit(self, limits: Limits) -> None:
        """Measure against other limits from now on."""

    def stop(self, keeps_process: bool = False) -> None:
        """Begin an orderly stop. keeps_process: then the process waits to be told to serve again."""

    async def settled(self) -> None:
        """Deliver what a command made deliverable; return when all that is recorded so far is on disk."""
