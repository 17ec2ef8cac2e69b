"""What links need from outside: transports to upstreams, a direct connection into their own broker, time, randomness.

The server has one implementation (net/links.py), a simulation another (testing/simulation), so the code of a link is
the same in both. No callback is called from within the call that asked for it, but from a later turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from leveret.broker.link_peer import LinkPeer
from leveret.broker.vhost import VHost
from leveret.client.protocol.url import Address

if TYPE_CHECKING:
    from random import Random


class Transport(Protocol):
    """A connection to an upstream, as bytes."""

    def write(self, data: bytes) -> None:
        """Send data; what the network does not accept at once is kept."""

    def pause(self, is_paused: bool) -> None:
        """Stop reading, or go on; data that comes meanwhile waits on the other side."""

    def close(self) -> None:
        """Send what was written, then close; the user gets no more calls. A second call does nothing."""


class TransportUser(Protocol):
    """Callbacks of a transport."""

    def connected(self) -> None:
        """The transport is connected (TLS included)."""

    def received(self, data: bytes) -> None:
        """Bytes came. All that the user does in this call, in its own broker too, is one turn: one journal batch."""

    def lost(self, reason: str) -> None:
        """The transport is lost, or could not be made. reason: for people, without credentials. No more calls follow.
        """


class DirectConnection(Protocol):
    """A connection into the own broker, in the same process; its channel 1 is open, in confirm mode if asked for.

    peer: the broker's end; it has an operator's permissions.
    """

    peer: LinkPeer

    def write(self, data: bytes) -> None:
        """Send frames to the broker, which handles them within this call as far as it can."""

    def close(self) -> None:
        """Close the connection; published messages stay, but get no more confirms. A second call does nothing."""


class DirectConnectionUser(Protocol):
    """Callbacks of a direct connection."""

    def answered(self, data: bytes) -> None:
        """Frames of the broker: confirms, or the close of channel or connection."""

    def held(self, is_held: bool) -> None:
        """The broker is behind (its disk, its memory, an alarm): publish nothing more; or it has caught up: go on."""

    def shut(self, reason: str) -> None:
        """The broker has closed the connection: an operator did, or the virtual host is deleted. No more calls follow.
        """


class ScheduledCall(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call. Does nothing if it was made already."""


class Environment(Protocol):
    """What a link is given by its surrounding program. random: for back-off and the choice among URIs."""

    random: Random

    def now_us(self) -> int:
        """The broker's time, in µs."""

    def later(self, delay_us: int, call: Callable[[], None]) -> ScheduledCall:
        """Call back after a delay, in a turn of its own."""

    def dial(self, address: Address, user: TransportUser) -> Transport:
        """Begin to connect to an upstream."""

    def enter(self, vhost: VHost, name: str, has_confirms: bool, user: DirectConnectionUser) -> DirectConnection:
        """Open a direct connection into the own broker. name: of the connection, as list_connections shows it."""
