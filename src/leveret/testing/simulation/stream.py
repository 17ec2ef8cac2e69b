"""A connection between two hosts: bytes arrive in order, delayed, and split differently than they were sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from leveret.testing.simulation.clock import ScheduledEvent
    from leveret.testing.simulation.network import Accept, Network, SimulatedHost

HUNG_UP: Final = "the other side has closed the connection"
RESET: Final = "connection reset by peer"


class EndUser(Protocol):
    """The user of one end of a connection."""

    def received(self, data: bytes) -> None:
        """Called with arrived bytes."""

    def lost(self, reason: str) -> None:
        """Called when the connection is gone; the last call."""


class End:
    """One end of a connection."""

    def __init__(self, network: Network, host: SimulatedHost, user: EndUser | None, peer_name: str) -> None:
        self.host = host
        self.peer_name = peer_name  # the other end's host
        self.is_over = False  # the end is closed or lost; nothing happens here any more
        self.on_read: Callable[[], None] = lambda: None  # called when the other end has read something
        self._network = network
        self._user = user
        self._other: End | None = None
        self._coming: deque[tuple[int, bytes]] = deque()  # what is on its way here: time of arrival, bytes
        self._end: tuple[int, str] | None = None  # the close by the other end: time of arrival, kind
        self._is_paused = False
        self._event: ScheduledEvent | None = None

    def meet(self, target: SimulatedHost, accept: Accept) -> None:
        """Establish the connection."""
        other = self._other = End(self._network, target, None, self.host.name)
        other._other = self
        target.ends.append(other)
        other._user = accept(other)

    @property
    def is_connected(self) -> bool:
        """Whether the connection was ever established."""
        return self._other is not None

    def comes_from(self, name: str) -> bool:
        """Whether the other end is at this host."""
        return self.peer_name == name

    def unread_octets(self) -> int:
        """Return how much of what was written here the other end has not read yet."""
        return self._other.incoming_octets() if self._other is not None else 0

    def incoming_octets(self) -> int:
        """Return how much of what the other end has written was not read here yet."""
        return sum(len(data) for _, data in self._coming)

    # -- called by its user --------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes."""
        other = self._other
        if self.is_over or other is None or not data:
            return
        self._network.trace.note(self.host.name, f"-> {self.peer_name}", data)
        if other.is_over:
            self._answered_by_nobody()
            return
        if other._end is not None:
            return  # the connection is broken: nothing arrives behind what was cut off
        other._coming.append((other._arrival_us(), data))
        other._look()

    def pause(self, is_paused: bool) -> None:
        """Stop or resume receiving."""
        self._is_paused = is_paused
        if not is_paused:
            self._look()

    def close(self) -> None:
        """Close the connection after everything written has arrived."""
        self._leave(HUNG_UP)

    def abort(self) -> None:
        """Like `close`, but the other end gets a reset."""
        self._leave(RESET)

    def _leave(self, how: str) -> None:
        if self.is_over:
            return
        self.die()
        other = self._other
        if other is not None and not other.is_over and other._end is None:
            other._end = other._arrival_us(), how
            other._look()

    # -- called by the network -----------------------------------------------------------------------------------------

    def die(self) -> None:
        """End without telling the other end."""
        self.is_over = True
        self._coming.clear()
        if self in self.host.ends:
            self.host.ends.remove(self)
        if self._event is not None:
            self._event.cancel()

    def fail(self, reason: str) -> None:
        """End, and tell the user."""
        self.die()
        self._network.trace.note(self.host.name, f"lost {self.peer_name}:", reason)
        if self._user is not None:
            self._user.lost(reason)

    def break_off(self) -> None:
        """Reset both ends: a random part of the bytes on their way still arrives."""
        for end in (self, self._other):
            if end is not None and not end.is_over:
                left = end._network.random.randrange(end.incoming_octets() + 1)
                end._cut(left)
                end._end = end._arrival_us(), RESET
                end._look()

    def wake(self, delay_us: int) -> None:
        """Resume after the network was blocked."""
        when_us = self._network.clock.now_us + delay_us
        self._coming = deque((max(when_us, arrival_us), data) for arrival_us, data in self._coming)
        self._look()

    def _cut(self, left: int) -> None:
        """Drop all but the first `left` bytes on their way here."""
        kept: deque[tuple[int, bytes]] = deque()
        for when_us, data in self._coming:
            if left > 0:
                kept.append((when_us, data[:left]))
            left -= len(data)
        self._coming = kept

    def _answered_by_nobody(self) -> None:
        """Answer with a reset, once the other machine, which does not know this connection, is reachable."""
        network = self._network

        def answer() -> None:
            if self.is_over:
                return
            there, here = self.peer_name, self.host.name
            target = network.hosts.get(there)
            if target is None or not target.is_on or network.is_blocked(here, there) or network.is_blocked(there, here):
                network.clock.later(network.random.randrange(1_000_000, 2_000_000), answer)
            else:
                self.fail(RESET)

        network.clock.later(2 * network.delay_us(self.host.name, self.peer_name), answer)

    def _arrival_us(self) -> int:
        """Return the arrival time of data sent here now: after everything sent before."""
        now_us = self._network.clock.now_us + self._network.delay_us(self.peer_name, self.host.name)
        return max(now_us, self._coming[-1][0]) if self._coming else now_us

    def _look(self) -> None:
        """Schedule the next arrival."""
        if self.is_over or self._is_paused or (self._event is not None and self._event.is_due):
            return
        if self._coming:
            when_us = self._coming[0][0]
        elif self._end is not None:
            when_us = self._end[0]
        else:
            return
        clock = self._network.clock
        self._event = clock.later(when_us - clock.now_us, self._arrive)

    def _arrive(self) -> None:
        """Pass what has arrived, or a first part of it, to the user."""
        network, user = self._network, self._user
        assert user is not None
        if self._is_paused or network.is_blocked(self.peer_name, self.host.name):
            return  # until pause() or wake()
        if not self._coming:
            if self._end is not None:
                self.fail(self._end[1])
            return
        now_us, pieces = network.clock.now_us, []
        while self._coming and self._coming[0][0] <= now_us:
            pieces.append(self._coming.popleft()[1])
        data = b"".join(pieces)
        if len(data) > 1 and network.random.random() < 0.2:
            size = network.random.randrange(1, len(data))
            self._coming.appendleft((now_us + network.random.randrange(1, 300), data[size:]))
            data = data[:size]
        network.trace.note(self.host.name, f"<- {self.peer_name}", len(data))
        self._look()
        if data:
            user.received(data)
            if self._other is not None and not self._other.is_over:
                self._other.on_read()
