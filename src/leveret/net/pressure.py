"""Which connections are paused, and why: the back-pressure between a fast publisher and the broker's memory.

`REASONS` names the reasons; docs/reference/back-pressure.md describes each: whom it holds up, what ends it, and where
it is reported. Each ends by itself within a bound, or becomes an alarm: then clients get connection.blocked, and the
log, the metrics and the health checks report it, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from leveret.broker.exchanges.route import Route
from leveret.broker.peer import Peer
from leveret.broker.queues.queue import Queue
from leveret.net.connections.protocol import PeerProtocol
from leveret.net.stopwatch import Stopwatch
from leveret.session import lifecycle

# the possible results of `Pressure.why`, except ""
REASONS: Final = ("alarm", "flood", "fan-out", "login", "fairness", "journal", "pages", "slow")
# after publishers have waited this long for the disk, an alarm tells them
DISK_US_MAX: Final = 5_000_000
# publishers wait for slow consumers for this long, up to the look after that; then nobody waits until the next look
SLOW_US_MAX: Final = 1_000_000


def _elapsed_us() -> int:
    return time.monotonic_ns() // 1000


class Pressure:
    """Decides for each of `protocols` whether it is read; the server reports when a reason begins and ends."""

    def __init__(self, protocols: Mapping[Peer, PeerProtocol], clock_us: Callable[[], int] = _elapsed_us) -> None:
        self._protocols = protocols
        self._clock_us = clock_us
        # how long each reason that is not a single connection's own has lasted, by `clock_us`
        self.watches = {reason: Stopwatch() for reason in ("journal", "pages", "slow", "fairness")}
        self.is_on = False  # whether there is a reason that is not a single connection's own
        self._is_behind = {"journal": False, "pages": False}
        # slow clients with the queues that they consumed from when they became slow; the state lasts only a moment
        self._slow: dict[PeerProtocol, set[Queue]] = {}
        self._held: set[PeerProtocol] = set()
        self._is_patient = True  # whether publishers wait for slow consumers
        # for both reasons: publishers that wait for journal and pages in turns wait for the disk
        self._disk = Stopwatch()
        self._batch = 0
        self._batch_since_us = 0
        # at the last look: "journal" or "pages" if the disk had held up publishers for longer than DISK_US_MAX; "sync"
        # if nobody was held up, but a batch had been on its way to the disk for that long; else ""
        self.late = ""

    def look(self, batch: int) -> None:
        """Check whether a reason has lasted too long; called once a second.

        batch: the number of the batch that is on its way to the disk, 0 = none.
        """
        now_us = self._clock_us()
        if batch != self._batch:
            self._batch, self._batch_since_us = batch, now_us
        self.late = ""
        if self._disk.lasts_us(now_us) >= DISK_US_MAX:
            self.late = "journal" if self._is_behind["journal"] else "pages"
        elif batch and now_us - self._batch_since_us >= DISK_US_MAX:
            self.late = "sync"
        is_patient = self.watches["slow"].lasts_us(now_us) < SLOW_US_MAX
        if is_patient != self._is_patient:
            self._is_patient = is_patient
            self._review_all()

    def journal(self, is_behind: bool) -> None:
        """Note whether the journal is behind."""
        self._behind("journal", is_behind)

    def pages(self, is_behind: bool) -> None:
        """Note whether paging is behind."""
        self._behind("pages", is_behind)

    def _behind(self, what: str, is_behind: bool) -> None:
        if is_behind != self._is_behind[what]:
            self._is_behind[what] = is_behind
            self._review_all()

    def _review_all(self) -> None:
        self._look()
        for protocol in self._protocols.values():
            self.review(protocol)

    def seconds(self) -> dict[str, float]:
        """How many seconds each reason has lasted so far."""
        now_us = self._clock_us()
        return {reason: watch.total_us(now_us) / 1e6 for reason, watch in self.watches.items()}

    def _look(self) -> None:
        self.is_on = any(self._is_behind.values()) or bool(self._slow) or bool(self._held)
        is_slow = bool(self._slow) and self._is_patient
        reasons = self._is_behind | {"slow": is_slow, "fairness": bool(self._held)}
        now_us = self._clock_us()
        self._disk.set(any(self._is_behind.values()), now_us)
        for reason, is_on in reasons.items():
            self.watches[reason].set(is_on, now_us)

    def slow(self, protocol: PeerProtocol, is_slow: bool) -> None:
        """Note whether a client is slow, that is, reads at all but not as fast as it is sent to."""
        if is_slow == (protocol in self._slow):
            return
        if is_slow:
            self._slow[protocol] = _consumed(protocol.peer)
        else:
            del self._slow[protocol]
        self._review_all()

    def hold(self, protocol: PeerProtocol, is_held: bool) -> None:
        """Let a publisher wait for the sake of fairness, or let it go on."""
        if is_held:
            self._held.add(protocol)
        else:
            self._held.discard(protocol)
        self._look()
        self.review(protocol)

    def review(self, protocol: PeerProtocol) -> None:
        """Pause this connection, or go on reading from it, according to the current reasons."""
        if (self.why(protocol) != "") != protocol.is_paused:
            protocol.pause(not protocol.is_paused)

    def why(self, protocol: PeerProtocol) -> str:
        """Why this connection must not be read from, one of REASONS; "" if it may be read."""
        peer = protocol.peer
        if peer.state >= lifecycle.CLOSING:
            return ""  # its close is still to be read
        if peer.is_blocked:
            return "alarm"
        if peer.is_flooded:
            return "flood"
        if peer.has_more or peer.is_held:
            return "fan-out" if peer.has_more else "login"
        if not peer.is_publisher:
            return ""
        if protocol in self._held:
            return "fairness"
        for reason, is_behind in self._is_behind.items():
            if is_behind:
                return reason
        return "slow" if self._slow and self._is_patient and self._waits_for_slow(protocol) else ""

    def _waits_for_slow(self, protocol: PeerProtocol) -> bool:
        routes = protocol.peer.last_routes()
        # not for itself: a client that writes before it reads again would wait forever
        others = [(other.peer, queues) for other, queues in self._slow.items() if other is not protocol]
        return any(_feeds(route, slow, queues) for slow, queues in others for route in routes)


def _consumed(peer: Peer) -> set[Queue]:
    """The queues that this client consumes from."""
    found: set[Queue] = set()
    for channel in peer.channels.values():
        found |= {consumer.queue for consumer in channel.consumers.values() if consumer.queue is not None}
    return found


def _feeds(route: Route, slow: Peer, queues: set[Queue]) -> bool:
    """Whether messages on this route reach this client; publishers to other queues need not wait for it."""
    return not queues.isdisjoint(route.queues) or any(requester.connection is slow for requester in route.replies)
