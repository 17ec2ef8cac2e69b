"""Fairness between the publishers and the consumers of a queue while both are as fast as they can be.

A publisher fills its socket with thousands of messages while a consumer with a prefetch limit can ask for a few hundred
at a time. With equal turns, the queue would grow although the consumer is never idle. So a publisher to a crowded queue
(Queue.serve says which ones are) is not read until its consumers have caught up, but only as long as they are quick:
they may be slow for reasons of their own, and then the queue is there to grow.

    turn of a publisher, its queue is crowded        hold it
    the queue is short again                         let it go
    it took too little for SLOW_LOOKS looks          let it go, and hold nobody for this queue for some time:
                                                     RESPITE_US_MIN, and twice as long each time until it has been short
    held for HOLD_US_MAX                             let it go; its next turn may have it held again
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leveret.broker.peer import Peer
from leveret.broker.queues.queue import Queue
from leveret.net.pressure import Pressure

if TYPE_CHECKING:
    from leveret.net.connections.protocol import PeerProtocol

# a queue with at most this many waiting messages is short
SHORT = 1024
LOOK_US = 2_000
# quick consumers take at least this many messages between two looks: 150,000 in a second
QUICK = 300
SLOW_LOOKS = 3
HOLD_US_MAX = 20_000
RESPITE_US_MIN = 5_000
RESPITE_US_MAX = 1_000_000


class HeldPublisher:
    """A publisher that waits for a queue."""

    def __init__(self, queue: Queue, now_us: int) -> None:
        self.queue = queue
        self.since_us = now_us
        self.count = int(queue.count())  # messages in the queue at the last look
        self.slow_looks = 0  # how many looks in a row have found its consumers slow


class Fairness:
    """Holds publishers to crowded queues. look_after(us) has `look` called after that time."""

    def __init__(self, pressure: Pressure, look_after: Callable[[int], None]) -> None:
        self._pressure = pressure
        self._look_after = look_after
        self._held: dict[PeerProtocol, HeldPublisher] = {}

    def turn(self, protocol: PeerProtocol, now_us: int) -> None:
        """Check a connection after its turn, and let others go whose queues are short."""
        if self._held:
            for other, held in list(self._held.items()):
                if held.queue.count() <= SHORT or held.queue.is_deleted:
                    held.queue.respite_us = 0
                    self.forget(other)
        peer = protocol.peer
        if not (peer.vhost.crowded and peer.is_publisher) or protocol in self._held:
            return
        for queue in peer.vhost.crowded:
            if queue.respite_until_us <= now_us and _publishes_to(peer, queue):
                if not self._held:
                    self._look_after(LOOK_US)
                self._held[protocol] = HeldPublisher(queue, now_us)
                self._pressure.hold(protocol, True)
                return

    def look(self, now_us: int) -> None:
        """Let publishers go whose consumers are slow, or that were held for long enough."""
        for protocol, held in list(self._held.items()):
            count = int(held.queue.count())
            held.slow_looks = held.slow_looks + 1 if held.count - count < QUICK else 0
            if held.slow_looks == SLOW_LOOKS:
                _give_up(held.queue, now_us)
                self.forget(protocol)
            elif now_us - held.since_us >= HOLD_US_MAX:
                self.forget(protocol)
            held.count = count
        if self._held:
            self._look_after(LOOK_US)

    def forget(self, protocol: PeerProtocol) -> None:
        """Do not hold this connection any more; it may be closed already."""
        if self._held.pop(protocol, None) is not None:
            self._pressure.hold(protocol, False)


def _give_up(queue: Queue, now_us: int) -> None:
    queue.respite_us = min(max(2 * queue.respite_us, RESPITE_US_MIN), RESPITE_US_MAX)
    queue.respite_until_us = now_us + queue.respite_us


def _publishes_to(peer: Peer, queue: Queue) -> bool:
    return any(queue in route.queues for route in peer.last_routes())
