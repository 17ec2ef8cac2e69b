"""Why connections are not read from, and which: what stands between a fast publisher and a full memory.

| reason | while | who is not read |
|---|---|---|
| journal | more waits for the disk than one batch should hold | connections that have published |
| pages | messages come faster than they can be moved to disk | the same |
| slow | a client's socket takes no more, but did until just now | who publishes to the queues that it consumes from |
| fan-out | what it has said is not handled yet | that connection: `Connection.has_more` |
| flood | it does not read the answers to what it says | that connection: `Connection.is_flooded` |
| fairness | a queue that it publishes to is crowded, its consumers are quick | that connection (fairness.py) |
| alarm | `Broker.block_reason` is set | connections that have published since: `Peer.is_blocked` |

All but the last one last milliseconds and nobody is told; an alarm lasts, and the core says connection.blocked by
itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from leveret.broker.channel import BrokerChannel
from leveret.broker.peer import Peer
from leveret.broker.queue import Queue
from leveret.broker.route import Route
from leveret.net.protocol import PeerProtocol
from leveret.net.stopwatch import Stopwatch
from leveret.session import lifecycle


def _elapsed_us() -> int:
    return time.monotonic_ns() // 1000


class Pressure:
    """Decides for each of `protocols` whether it is read; the server says when a reason begins and ends.

    is_on: there is a reason that is not a connection's own. watches: how long each reason but the connections' own was
    one, by `clock_us`.
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
        reasons = self._is_behind | {"slow": bool(self._slow), "fairness": bool(self._held)}
        now_us = self._clock_us()
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
        if self._must_pause(protocol) != protocol.is_paused:
            protocol.pause(not protocol.is_paused)

    def _must_pause(self, protocol: PeerProtocol) -> bool:
        peer = protocol.peer
        if peer.state >= lifecycle.CLOSING:
            return False  # its last words are to be heard
        if peer.is_blocked or peer.is_flooded or peer.has_more or peer.is_held:
            return True
        if not peer.is_publisher:
            return False
        if protocol in self._held:
            return True
        if any(self._is_behind.values()):
            return True
        if not self._slow:
            return False
        routes = peer.last_routes()
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
