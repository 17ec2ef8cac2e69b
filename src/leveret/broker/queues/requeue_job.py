"""What a channel gives back to its queues, in steps: it may have had very many messages, and others want their turn.

The oldest go first. Until the last one is back, nobody is given a message of those queues (`Queue.awaiting`), so none
overtakes those that stood before it; whoever asks for what a queue has gets the answer then. What has not come back yet
is unacknowledged: so it is counted, and so the journal knows it, which takes it for delivered after a crash.

A turn of the loop has one step (`Broker.requeue_step`), whoever waits for it and whatever becomes of the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.channel import BrokerChannel
from leveret.broker.messages.entry import Entry
from leveret.broker.queues import overflow
from leveret.broker.queues.message_list import MessageList
from leveret.broker.queues.queue import Queue
from leveret.broker.streams.read import Read

if TYPE_CHECKING:
    from leveret.broker.peer import Peer
    from leveret.broker.vhost import VHost

# messages in a step; one that is told how often it came back is as much work as several others
STEP_MAX: Final[i64] = 2048
COUNTED_COST: Final[i64] = 8


class RequeueJob:
    """Of one channel. peer: whose it is, None = it is closed; stop: up to this delivery tag, 0 = all; queues: that wait
    for it; is_over: all are back."""

    def __init__(self, vhost: VHost, channel: BrokerChannel, peer: Peer | None, stop: i64, queues: list[Queue]) -> None:
        self.vhost = vhost
        self.channel = channel
        self.peer = peer
        self.stop = stop
        self.queues = queues
        self.is_over = True


class RequeueJobs:
    """Of all channels. step_max: messages in a step; is_busy: there are steps to be taken."""

    def __init__(self) -> None:
        self.step_max = STEP_MAX
        self.is_busy = False
        self._now_us: i64 = 0
        self._ways: list[RequeueJob] = []  # who has its turn first in front

    def begin(
        self, vhost: VHost, channel: BrokerChannel, peer: Peer | None, stop: i64, queues: list[Queue], now_us: i64
    ) -> RequeueJob:
        """A channel gives back what it has up to this tag, 0 = all. It may be over at once."""
        way = RequeueJob(vhost, channel, peer, stop, queues)
        if self._goes_on(way, now_us):
            way.is_over = False
            for queue in queues:
                queue.awaiting += 1
            self._ways.append(way)
            self.is_busy = True
        return way

    def end(self, way: RequeueJob) -> None:
        """All are back; or others take care of what is not."""
        if way.is_over:
            return
        way.is_over = True
        self._ways.remove(way)
        self.is_busy = len(self._ways) > 0
        for queue in way.queues:
            queue.awaiting -= 1
            if queue.awaiting == 0 and not queue.is_deleted and not queue.is_touched:
                queue.touch()

    def step(self, now_us: i64) -> None:
        """One of them gives back some."""
        if not self._ways:
            return
        way = self._ways.pop(0)
        self._ways.append(way)
        if not self._goes_on(way, now_us):
            self.end(way)

    def finish(self) -> None:
        """The broker is about to stop: all are given back at once."""
        while self._ways:
            self.step(self._now_us)

    def of(self, vhost: VHost) -> list[RequeueJob]:
        """Those in a virtual host."""
        return [way for way in self._ways if way.vhost is vhost]

    def _goes_on(self, way: RequeueJob, now_us: i64) -> bool:
        """Give back the oldest. True if others are left."""
        self._now_us = now_us
        channel, peer = way.channel, way.peer
        room = self.step_max
        for queue in way.queues:
            if queue.counts_returns:
                room = max(1, self.step_max // COUNTED_COST)
        if peer is not None and channel.limit != 0:
            peer.touch_consumed(channel)
        entries: list[Entry] = []
        taken = channel.unacked.take_some(way.stop, room)
        for delivery in taken:
            if isinstance(delivery, Entry):
                entries.append(delivery)
                if peer is not None:
                    channel.settled(delivery.consumer, 1)
            else:
                assert isinstance(delivery, Read)
                delivery.release()
        requeue(entries)
        if peer is not None:
            channel.line_up()
        overflow.trim(way.vhost, now_us)
        first = channel.unacked.first_tag()
        return first > 0 and (way.stop == 0 or first <= way.stop)


def requeue(entries: list[Entry]) -> None:
    """Let unacknowledged entries, the oldest first, back to their places; then call overflow.trim."""
    if len(entries) == 1:
        entries[0].queue.requeue(entries[0])
        return
    found: dict[MessageList, list[Entry]] = {}
    message_list: MessageList | None = None
    those: list[Entry] = []
    for entry in entries:
        if entry.message_list is not message_list:
            message_list = entry.message_list
            those = found.setdefault(message_list, [])
        those.append(entry)
    for message_list, those in found.items():
        message_list.queue.requeue_all(message_list, those)
