"""Why connections are not read from, and which: what stands between a fast publisher and a full memory.

`REASONS` names the reasons; docs/reference/back-pressure.md says of each while it lasts, whom it holds up, what
ends it and who is told. Each ends by itself within a bound, or becomes an alarm: then the core says connection.blocked,
and the log, the metrics and the health checks say so, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from leveret.broker.channel import BrokerChannel
from leveret.broker.peer import Peer
from leveret.broker.queue import Queue
from leveret.broker.route import Route
from leveret.net.protocol import PeerProtocol
from leveret.net.stopwatch import Stopwatch
from leveret.session import lifecycle

# what `Pressure.why` may answer
REASONS: Final = ("alarm", "flood", "fan-out", "login", "fairness", "journal", "pages", "slow")
# publishers that the disk has held up for so long are told, by an alarm
DISK_US_MAX: Final = 5_000_000
# slow consumers hold up their publishers for so long, and a look; then nobody waits for them until the next look
SLOW_US_MAX: Final = 1_000_000


def _elapsed_us() -> int:
    return time.monotonic_ns() // 1000


class Pressure:
    """Decides for each of `protocols` whether it is read; the server says when a reason begins and ends.

    is_on: there is a reason that is not a connection's own. watches: how long each reason but the connections' own was
    one, by `clock_us`. late: "journal" or "pages", when the disk has held up publishers for longer than DISK_US_MAX at
    the last look; "sync": nobody is held up, but a batch has been on its way to the disk for as long; else "".
    """

    def __init__(self, protocols: Mapping[Peer, PeerProtocol], clock_us: Callable[[], int] = _elapsed_us) -> None:
        self._protocols = protocols
        self._clock_us = clock_us
        self.watches = {reason: Stopwatch() for reason in ("journal", "pages", "slow", "fairness")}
        self.is_on = False
        self._is_behind = {"journal": False, "pages": False}
        # with the queues that it consumed from when it began to be slow: that lasts a moment
        self._slow: dict[PeerProtocol, set[Queue]] = {}
        self._held: set[PeerProtocol] = set()
        self._is_patient = True  # with slow consumers
        self._disk = Stopwatch()  # for either of these: publishers that wait for both in turns wait for the disk
        self._batch = 0
        self._batch_since_us = 0
        self.late = ""

    def look(self, batch: int) -> None:
        """Once in a second: has a reason lasted for too long? batch: the one that is on its way to the disk, 0 = none.
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
        """The journal has fallen behind, or has caught up."""
        self._behind("journal", is_behind)

    def pages(self, is_behind: bool) -> None:
        """So have the pages."""
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
        """How long each reason was one until now."""
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
        """A client does not take what it is sent; or takes it again, or has not for so long that it does not count."""
        if is_slow == (protocol in self._slow):
            return
        if is_slow:
            self._slow[protocol] = _consumed(protocol.peer)
        else:
            del self._slow[protocol]
        self._review_all()

    def hold(self, protocol: PeerProtocol, is_held: bool) -> None:
        """Fairness wants this publisher to wait, or lets it go."""
        if is_held:
            self._held.add(protocol)
        else:
            self._held.discard(protocol)
        self._look()
        self.review(protocol)

    def review(self, protocol: PeerProtocol) -> None:
        """Read from this connection, or stop reading from it, as the reasons are now."""
        if (self.why(protocol) != "") != protocol.is_paused:
            protocol.pause(not protocol.is_paused)

    def why(self, protocol: PeerProtocol) -> str:
        """Why this connection must not be read from, one of REASONS; "" = it is read."""
        peer = protocol.peer
        if peer.state >= lifecycle.CLOSING:
            return ""  # its last words are to be heard
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
        # A client that writes before it reads again would wait for itself.
        others = [(other.peer, queues) for other, queues in self._slow.items() if other is not protocol]
        return any(_feeds(route, slow, queues) for slow, queues in others for route in routes)


def _consumed(peer: Peer) -> set[Queue]:
    """The queues that it consumes from."""
    found: set[Queue] = set()
    for channel in peer.channels.values():
        assert isinstance(channel, BrokerChannel)
        found |= {consumer.queue for consumer in channel.consumers.values() if consumer.queue is not None}
    return found


def _feeds(route: Route, slow: Peer, queues: set[Queue]) -> bool:
    """Whether what goes this way comes to this client: who publishes to the queues of others need not wait for it."""
    return not queues.isdisjoint(route.queues) or any(requester.connection is slow for requester in route.replies)
