"""Admits sockets: limits all of them, those of one address, and those that have not logged in yet.

Without limits an anonymous peer that opens sockets and says nothing could take every file descriptor, the journal's
next one included, or every place before the login. A new socket for which there is no place therefore replaces the
oldest one that has not logged in yet, of the address that has most of these. A socket counts until it is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, Protocol

from leveret.broker.access.login_throttle import network
from leveret.broker.broker import Broker
from leveret.net.connections.by_address import ByAddress
from leveret.net.descriptors import room_for_sockets

logger = logging.getLogger("leveret.net")

# refused sockets are logged at most once in this time, with their number
TELL_US: Final = 10_000_000


class Ends(Protocol):
    """The part of a `Stream` that admission needs."""

    def abort(self) -> None: ...


class Admitted:
    """One admitted socket."""

    __slots__ = ("_admission", "has_given_way", "host", "network", "socket")

    def __init__(self, admission: Admission, host: str) -> None:
        self._admission = admission
        self.host = host
        self.network = network(host)
        self.socket: Ends | None = None
        self.has_given_way = False  # it was closed to make room for another

    def logged_in(self) -> None:
        """Note that the client has opened a virtual host: the socket is not closed in favour of others any more."""
        self._admission.knocking.remove(self.network, self)

    def leave(self) -> None:
        """Note that the socket is closed."""
        self.socket = None
        self._admission.left(self)


class Admission:
    """Counts sockets, and decides which new ones are accepted.

    sockets_max: how many at the same time; None = as many as the process may have files open, minus KEPT_FILES.
    """

    def __init__(self, broker: Broker, sockets_max: int | None = None) -> None:
        self._broker = broker
        self._sockets_max = room_for_sockets() if sockets_max is None else sockets_max
        self.inside: ByAddress[Admitted] = ByAddress()  # all sockets
        self.knocking: ByAddress[Admitted] = ByAddress()  # those whose clients have not opened a virtual host yet
        self._told_us = -TELL_US
        self._untold = 0

    def admit(self, host: str, now_us: int) -> Admitted | None:
        """Admit one more socket from this address; it counts until it leaves. None if it is refused."""
        place = Admitted(self, host)
        if not (
            self._has_room_at_address(place, now_us)
            and self._has_room_to_knock(host, now_us)
            and self._has_room_for_files(host, now_us)
        ):
            return None
        self.inside.add(place.network, place)
        self.knocking.add(place.network, place)
        return place

    def left(self, place: Admitted) -> None:
        """Stop counting a socket that was admitted."""
        self.inside.remove(place.network, place)
        self.knocking.remove(place.network, place)

    def _has_room_at_address(self, place: Admitted, now_us: int) -> bool:
        most = self._broker.settings.quota("connection_max_per_address")
        if not 0 <= most <= self.inside.of(place.network):
            return True
        reason = f"this address already has {most} connections, the maximum (connection_max_per_address)"
        return self._has_made_room(place.host, self.knocking.items(place.network), reason, now_us)

    def _has_room_to_knock(self, host: str, now_us: int) -> bool:
        most, count = self._broker.settings.quota("handshake_max"), self.knocking.count
        if not 0 <= most <= count:
            return True
        reason = f"{count} connections have not logged in yet, and handshake_max allows {most}"
        return self._has_made_room(host, self.knocking.of_the_most(), reason, now_us)

    def _has_room_for_files(self, host: str, now_us: int) -> bool:
        count = self.inside.count
        if count < self._sockets_max:
            return True
        reason = (
            f"the broker has {count} connections, and it reserves the remaining file descriptors for files (see "
            "ulimit -n)"
        )
        return self._has_made_room(host, self.knocking.of_the_most(), reason, now_us)

    def _has_made_room(self, host: str, candidates: Iterable[Admitted], reason: str, now_us: int) -> bool:
        """Close the first of these sockets, none of which has logged in yet. False if there are none."""
        place = next(iter(candidates), None)
        if place is None:
            self._tell(host, f"closed at once: {reason}", now_us)
            return False
        place.has_given_way = True
        self._tell(
            place.host, f"closed to make room for a new connection, since it has not logged in yet: {reason}", now_us
        )
        socket = place.socket
        place.leave()
        if socket is not None:
            socket.abort()
        return True

    def _tell(self, host: str, what: str, now_us: int) -> None:
        self._broker.refused("limit")
        self._untold += 1
        if now_us - self._told_us >= TELL_US:
            others = f" ({self._untold} connections since the last message like this one)" if self._untold > 1 else ""
            logger.warning("%s: %s%s", host, what, others)
            self._told_us, self._untold = now_us, 0
