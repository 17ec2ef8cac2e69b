"""What links need of the world around them: transports to upstreams, a direct connection into their own broker, time,
chance.

The network has one set of these (net/links.py), a simulation another (testing/simulation), so a link is the same code
in both. Nothing here is called back from within the call that asked for it, but from a later turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from leveret.broker.link_peer import LinkPeer
from leveret.broker.vhost import VHost
from leveret.client.url import Address

if TYPE_CHECKING:
    from random import Random


class Transport(Protocol):
    """A connection to an upstream, as bytes."""

    def write(self, data: bytes) -> None:
        """Send; what the network does not take at once is kept."""

    def pause(self, is_paused: bool) -> None:
        """Hear nothing more, or go on; what comes meanwhile waits on the other side."""

    def close(self) -> None:
        """Send what was written, then close; the user hears of nothing more. Without effect the second time."""


class TransportUser(Protocol):
    """Who uses a transport, and hears of it."""

    def connected(self) -> None:
        """The transport is there (TLS included)."""

    def received(self, data: bytes) -> None:
        """Bytes came. All that the user does in this call, in its own broker too, is one turn: one journal batch."""

    def lost(self, reason: str) -> None:
        """The transport is gone, or could not be made. reason: for people, without credentials. Nothing follows."""


class DirectConnection(Protocol):
    """A connection into the own broker, which is in the same process; its channel 1 is open, with confirms if wished.

    peer: the broker's end; its permissions are an operator's.
    """

    peer: LinkPeer

    def write(self, data: bytes) -> None:
        """Frames for the broker, handled within this call so far as it can."""

    def close(self) -> None:
        """Leave; what was published stays, its confirms come no more. Without effect the second time."""


class DirectConnectionUser(Protocol):
    """Who came in through a direct connection."""

    def answered(self, data: bytes) -> None:
        """Frames of the broker: confirms, or the close of channel or connection."""

    def held(self, is_held: bool) -> None:
        """The broker is behind (its disk, its memory, an alarm): publish nothing more, or go on."""

    def shut(self, reason: str) -> None:
        """The broker has closed it: an operator did, or the virtual host is gone. Nothing follows."""


class Alarm(Protocol):
    """A call that is still to come."""

    def cancel(self) -> None:
        """It shall not come. Without effect when it has."""


class Environment(Protocol):
    """random: for back-off and the choice among URIs."""

    random: Random

    def now_us(self) -> int:
        """The broker's time."""

    def later(self, delay_us: int, call: Callable[[], None]) -> Alarm:
        """Call back after a delay, in a turn of its own."""

    def dial(self, address: Address, user: TransportUser) -> Transport:
        """Begin to connect to an upstream."""

    def enter(self, vhost: VHost, name: str, has_confirms: bool, user: DirectConnectionUser) -> DirectConnection:
        """Come into the own broker. name: of the connection, as list_connections shows it."""
