"""Slow dead letters: those whose lookup passes too many bindings or exchanges for one turn (lookup.py).

Dead letters beyond the number of queues that those of one turn may reach are handled so, too. All are undeliverable
(undeliverable.py) until their lookup has ended, so they take no memory, and after a crash each is either here or in all
its queues. Those of one queue are sent in the order of their deaths, followed by all that die there meanwhile; queues
take turns. Those that reach no queue are then dropped or kept, as with a quick lookup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.dead_letters import dead_lettering
from leveret.broker.dead_letters.dead_lettering import DeadLetter
from leveret.broker.dead_letters.undeliverable import Undeliverable, UndeliverableList
from leveret.broker.exchanges.lookup import Seeker
from leveret.broker.queues.queue import Queue
from leveret.broker.timers import Timer
from leveret.session.connection import Unfinished

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

# messages that are sent in one turn, and the pause before the next ones
STEP_MAX: Final = 64
NEXT_US: Final[i64] = 1
# while more than this waits to be written to the journal, none is sent; and how soon that is checked again
LOG_OCTETS_MAX: Final[i64] = 2 << 20
LOG_PAUSE_US: Final[i64] = 1000


class SlowDeadLetters(Timer):
    """The slow dead letters of one virtual host."""

    def __init__(self, vhost: VHost) -> None:
        super().__init__(vhost.timers)
        self.vhost = vhost
        self.probe = Seeker(vhost.share)  # for lookups that are given up if they take several turns
        self._seeker = Seeker(vhost.share)
        self._sought: UndeliverableList | None = None  # the list whose first message is being looked up
        self._name: i64 = 0  # identifies that message
        self._queues: list[Queue] = []  # the next one in front

    def take(self, queue: Queue, dead_letter: DeadLetter, now_us: i64) -> None:
        """Add a dead letter that needs several turns, or that follows others of its queue which do."""
        if queue.undeliverable is None:
            queue.undeliverable = Undeliverable(queue)
        undeliverable = queue.undeliverable
        self.vhost.undeliverable_retry.put(undeliverable.mixed_for(dead_letter.reason), dead_letter)
        if not queue.is_dead_lettering_slowly:
            queue.is_dead_lettering_slowly = True
            undeliverable.sought = sum([message_list.ready.count() for message_list in undeliverable.mixed()]) - 1
            self._queues.append(queue)
        undeliverable.sought += 1
        self.wake(now_us + NEXT_US)

    def fire(self, until_us: i64, most: i64, now_us: i64) -> i64:
        """Look up some of them."""
        self.timer_us = 0
        room = STEP_MAX
        while self._queues and room > 0 and self._may_send() and self._seeker.go_on():
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
                queue.is_dead_lettering_slowly = False
        if self._queues:
            is_held_up = self.vhost.log.size() >= LOG_OCTETS_MAX
            self.wake(now_us + (LOG_PAUSE_US if is_held_up else NEXT_US))
        return 1

    def _may_send(self) -> bool:
        return self.vhost.log.size() < LOG_OCTETS_MAX and self.vhost.share.arrivals >= 0

    def _send(self, queue: Queue, now_us: i64) -> bool:
        """Send the first message of a queue; True if others are left. Raises Unfinished."""
        undeliverable = queue.undeliverable
        message_list = self._oldest(queue)
        entry = message_list.ready.peek() if message_list is not None else None
        if undeliverable is None or message_list is None or entry is None:
            return False
        name = entry.id if entry.id != 0 else -entry.position
        if self._sought is not None and (self._sought is not message_list or self._name != name):
            self._seeker.give_up()  # that message is gone
        self._sought, self._name = message_list, name
        dead_letter = DeadLetter(entry, message_list.reason, entry.expires_us, message_list.reached(entry))
        trouble = self._give(queue, dead_letter, now_us)
        message_list.drop(entry)
        if trouble:
            self.vhost.undeliverable_retry.keep(queue, undeliverable, dead_letter, trouble, now_us)
        undeliverable.sought -= 1
        return undeliverable.sought > 0 and not queue.is_deleted

    def _oldest(self, queue: Queue) -> UndeliverableList | None:
        """Return the list with the message that is being looked up, or else with the oldest death."""
        if queue.is_deleted or queue.undeliverable is None:
            return None
        message_lists = queue.undeliverable.mixed()
        if self._sought in message_lists:
            return self._sought
        oldest: UndeliverableList | None = None
        for message_list in message_lists:
            if oldest is None or message_list.ready.expires_us() < oldest.ready.expires_us():
                oldest = message_list
        return oldest

    def _give(self, queue: Queue, dead_letter: DeadLetter, now_us: i64) -> str:
        """Send a dead letter; return the reason if it must be kept, else ""."""
        if queue.keeps_undeliverable:
            return dead_lettering.send(self.vhost, queue, dead_letter, now_us, self._seeker)
        entry = dead_letter.entry
        if not dead_letter.reached:
            dead_lettering.give(self.vhost, queue, entry, dead_letter.reason, dead_letter.died_us, self._seeker)
        elif entry.id != 0:
            self.vhost.log.settle(entry.message_list, entry.id)  # a queue has it, so it is not lost
        return ""

    def _forget_lookup(self) -> None:
        self._seeker.clear()
        self._sought = None
