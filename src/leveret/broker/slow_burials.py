"""Dead letters whose way leads past very many bindings or exchanges: each is looked up in several turns (lookup.py).

They are parked (parking.py) until their lookup has ended, so they take no memory, and a crash finds each either here or
in all its queues. Those of one queue go in the order of their deaths, behind them all that die there meanwhile; queues
take turns. What reaches no queue then is dropped or stays parked, as if it had been looked up at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker import burial
from leveret.broker.burial import Letter
from leveret.broker.lookup import Seeker
from leveret.broker.parking import Parked, Parking
from leveret.broker.queue import Queue
from leveret.session.connection import Unfinished

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

# so many go in one turn, and when the others do
STEP_MAX: Final = 64
NEXT_US: Final[i64] = 1
# while the log waits for the disk with more than this, none goes, and how soon that is looked at again
LOG_OCTETS_MAX: Final[i64] = 2 << 20
LOG_PAUSE_US: Final[i64] = 1000


class SlowBurials:
    """Of one virtual host. alarm: stands in the timers for it. probe: for lookups that are given up where they take
    several turns."""

    def __init__(self, vhost: VHost) -> None:
        self.vhost = vhost
        self.alarm = Queue(vhost, "", False, False, {})
        self.probe = Seeker(vhost.share)
        self._seeker = Seeker(vhost.share)
        self._sought: Parked | None = None  # the first one of this message list is being looked up
        self._name: i64 = 0  # of that one
        self._queues: list[Queue] = []  # who has its turn first in front

    def take(self, queue: Queue, letter: Letter, now_us: i64) -> None:
        """This one needs several turns, or others of this queue are in front of it."""
        if queue.parking is None:
            queue.parking = Parking(queue)
        parking = queue.parking
        self.vhost.release.put(parking.mixed_for(letter.reason), letter)
        if not queue.is_burying_slowly:
            queue.is_burying_slowly = True
            parking.sought = sum([message_list.ready.count() for message_list in parking.mixed()]) - 1
            self._queues.append(queue)
        parking.sought += 1
        self.alarm.wake(now_us + NEXT_US)

    def ring(self, now_us: i64) -> None:
        """Look up some of them."""
        self.alarm.alarm_us = 0
        room = STEP_MAX
        while self._queues and room > 0 and self.vhost.log.size() < LOG_OCTETS_MAX and self._seeker.go_on():
            room -= 1
            queue = self._queues[0]
            try:
                is_left = self._send(queue, now_us)
            except Unfinished:
                break
            self._forget_lookup()
            self._queues.pop(0)
            if is_left:
                self._queues.append(queue)
            else:
                queue.is_burying_slowly = False
        if self._queues:
            is_held_up = self.vhost.log.size() >= LOG_OCTETS_MAX
            self.alarm.wake(now_us + (LOG_PAUSE_US if is_held_up else NEXT_US))

    def _send(self, queue: Queue, now_us: i64) -> bool:
        """Send the first one of a queue. True if there are others. Unfinished."""
        parking = queue.parking
        message_list = self._oldest(queue)
        entry = message_list.ready.peek() if message_list is not None else None
        if parking is None or message_list is None or entry is None:
            return False
        name = entry.id if entry.id != 0 else -entry.position
        if self._sought is not None and (self._sought is not message_list or self._name != name):
            self._seeker.clear()  # that one is gone
        self._sought, self._name = message_list, name
        letter = Letter(entry, message_list.reason, entry.expires_us, message_list.reached(entry))
        trouble = self._give(queue, letter, now_us)
        message_list.drop(entry)
        if trouble:
            self.vhost.release.park(queue, parking, letter, trouble, now_us)
        parking.sought -= 1
        return parking.sought > 0 and not queue.is_deleted

    def _oldest(self, queue: Queue) -> Parked | None:
        """The message list of what died first, or of what is being looked up."""
        if queue.is_deleted or queue.parking is None:
            return None
        message_lists = queue.parking.mixed()
        if self._sought in message_lists:
            return self._sought
        oldest: Parked | None = None
        for message_list in message_lists:
            if oldest is None or message_list.ready.expires_us() < oldest.ready.expires_us():
                oldest = message_list
        return oldest

    def _give(self, queue: Queue, letter: Letter, now_us: i64) -> str:
        """Returns why it must be kept, "" if that is not so."""
        if queue.is_parking:
            return burial.send(self.vhost, queue, letter, now_us, self._seeker)
        entry = letter.entry
        if not letter.reached:
            burial.give(self.vhost, queue, entry, letter.reason, letter.died_us, self._seeker)
        elif entry.id != 0:
            self.vhost.log.settle(entry.message_list, entry.id)  # some queue has it, so it is not lost
        return ""

    def _forget_lookup(self) -> None:
        self._seeker.clear()
        self._sought = None
