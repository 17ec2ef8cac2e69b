"""Retries undeliverable dead letters (undeliverable.py), at intervals and soon after changes of the routing.

Changes are those of bindings, exchanges, queues and policies. A round asks once for each message list of the virtual
host whether a queue would take its messages. If none would, nothing is read or moved, so a million messages without a
route cost next to nothing. The other lists are emptied in parts, the oldest death first. Pauses between rounds double
up to RabbitMQ's dead_letter_worker_publisher_confirm_timeout: a full queue may have room by then.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.dead_letters import dead_lettering
from leveret.broker.dead_letters.dead_lettering import DeadLetter
from leveret.broker.dead_letters.undeliverable import Undeliverable, UndeliverableList
from leveret.broker.exchanges import routing
from leveret.broker.messages.carbon_copies import split_key
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.returned import published_content
from leveret.broker.queues.queue import Queue
from leveret.broker.timers import Timer
from leveret.session.connection import Unfinished
from leveret.wire.table import encode_short

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

PAUSE_MIN_US: Final[i64] = 1_000_000
PAUSE_MAX_US: Final[i64] = 180_000_000
# Declarations and bindings come several at once; the more message lists are asked each time, the later they are asked.
SOON_US: Final[i64] = 100_000
LIST_US: Final[i64] = 1_000
# Lists and messages in one step, and the pause before the next, so that other queues get their turn. A failed try costs
# more, so that a list whose messages all fail does not keep the broker busy.
STEP_MAX: Final = 64
VAIN_COST: Final = 2
NEXT_US: Final[i64] = 1_000
VAIN_US: Final[i64] = 10_000
# messages of a mixed list that are tried in a round that only begins because time has passed
TRIES_MAX: Final[i64] = 256
# destinations of a queue that are logged
TOLD_MAX: Final = 100
# while more than this waits to be written to the journal, nothing is moved
LOG_OCTETS_MAX: Final[i64] = 2 << 20


class UndeliverableRetry(Timer):
    """The retries of one virtual host."""

    def __init__(self, vhost: VHost) -> None:
        super().__init__(vhost.timers)
        self.vhost = vhost
        self.queues: dict[str, Queue] = {}  # queues that may have undeliverable messages
        self.generation: i64 = 0  # of the bindings at the last round or change
        self._pause_us: i64 = PAUSE_MIN_US
        self._is_hurried = False  # something has changed, and no round has begun since
        self._is_thorough = False  # this round began because something had changed
        self._is_moving = False  # a message was delivered in this round
        self._asking: list[UndeliverableList] = []  # lists that this round still has to ask for
        self._asked: i64 = 0  # number of lists in the last round
        # lists being emptied: a heap by the time of their oldest death
        self._going: list[tuple[int, int, UndeliverableList]] = []
        self._pushed = 0

    def keep(
        self, queue: Queue, undeliverable: Undeliverable, dead_letter: DeadLetter, trouble: str, now_us: i64
    ) -> None:
        """Keep an undeliverable dead letter. trouble: the reason, "" if it only waits behind others."""
        message_list = undeliverable.list_for(dead_letter.entry, dead_letter.reason)
        self.put(message_list, dead_letter)
        if trouble and len(queue.told) < TOLD_MAX:
            destination = undeliverable.destination(dead_letter.entry.key)
            whose = f" for '{destination}'" if destination else ""
            self.vhost.tell_once(queue, f"{trouble}: the message{whose} is kept until a queue accepts it")
        if self.timer_us == 0:
            self.generation = self.vhost.generation
            self._pause(now_us)

    @property
    def is_busy(self) -> bool:
        """Whether lists are being emptied; then dead_letter() must check that no message overtakes them."""
        return len(self._going) > 0

    def is_on_its_way(self, undeliverable: Undeliverable, entry: Entry, reason: str) -> bool:
        """Whether earlier dead letters with the same destination are leaving: this one must not overtake them."""
        if not self.is_busy or not undeliverable.message_lists:
            return False
        message_list = undeliverable.list_for(entry, reason)
        return message_list.is_going and not message_list.is_tried_singly

    def put(self, message_list: UndeliverableList, dead_letter: DeadLetter) -> None:
        """Move a dead letter into this message list, with its journal record."""
        entry = dead_letter.entry
        content = published_content(entry)
        id: i64 = 0
        if entry.id != 0:
            id = self.vhost.log.message(content, entry.key, message_list, dead_letter.died_us, entry)
        message_list.keep(content, entry.key, id, dead_letter.died_us, dead_letter.reached)

    # -- rounds --------------------------------------------------------------------------------------------------------

    def hurry(self, now_us: i64) -> None:
        """Begin a round soon, after a binding, exchange, queue or policy changed."""
        self.generation = self.vhost.generation
        self._is_hurried = True
        self._pause_us = PAUSE_MIN_US
        if not self._asking and not self._going:
            self.wake(now_us + max(SOON_US, self._asked * LIST_US))

    def _pause(self, now_us: i64) -> None:
        self.wake(now_us + self._pause_us)
        self._pause_us = min(2 * self._pause_us, PAUSE_MAX_US)

    def fire(self, until_us: i64, most: i64, now_us: i64) -> i64:
        """Do a part of the work, if it is time."""
        if self.timer_us == 0 or self.timer_us > now_us:
            return 1
        self.timer_us = 0
        if not self._asking and not self._going:
            self._begin()
        room = STEP_MAX
        while self._asking and room > 0:
            room -= 1
            self._ask(self._asking.pop())
        is_vain = not self._asking and self._go(room, now_us)
        if self._asking or self._going:
            self.wake(now_us + (VAIN_US if is_vain else NEXT_US))
        else:
            self._end(now_us)
        return 1

    def _begin(self) -> None:
        self._is_thorough = self._is_hurried
        self._is_hurried = self._is_moving = False
        for name, queue in list(self.queues.items()):
            undeliverable = queue.undeliverable
            if undeliverable is not None:
                undeliverable.tidy()
                self._asking.extend(undeliverable.message_lists.values())
            if undeliverable is None or not undeliverable.message_lists:
                del self.queues[name]
        self._asked = len(self._asking)

    def _end(self, now_us: i64) -> None:
        if self._is_moving:
            self._pause_us = PAUSE_MIN_US
        if self._is_hurried:
            self.hurry(now_us)
        elif self.queues:
            self._pause(now_us)

    # -- delivery ------------------------------------------------------------------------------------------------------

    def _ask(self, message_list: UndeliverableList) -> None:
        """Begin to empty a message list if its messages may have a route."""
        count = message_list.ready.count()
        if count == 0 or message_list.queue.is_deleted or _is_slow(message_list):
            return
        message_list.is_tried_singly = message_list.is_mixed
        if message_list.queue.keeps_undeliverable and not self._has_way(message_list):
            return
        message_list.left = count
        if message_list.is_tried_singly and not self._is_thorough:
            message_list.left = min(count, TRIES_MAX)
        self._push(message_list)

    def _has_way(self, message_list: UndeliverableList) -> bool:
        """Whether its messages reach a queue, or have to be tried because that depends on more than their key."""
        sample = message_list.sample()
        if message_list.is_mixed or not sample:
            return True
        vhost, queue = self.vhost, message_list.queue
        key = queue.dead_letter_key if queue.dead_letter_key is not None else split_key(sample)[1]
        if not queue.dead_letter_exchange:
            return key in vhost.queues or key in vhost.replies
        exchange = vhost.exchanges.get(queue.dead_letter_exchange)
        if exchange is None:
            return False
        probe = vhost.slow_dead_letters.probe
        try:
            route = routing.onward(vhost, exchange, encode_short(exchange.name) + encode_short(key), [key], probe)
        except Unfinished:
            probe.clear()
            return True
        message_list.is_tried_singly = route.is_per_message or exchange.schedule is not None
        return message_list.is_tried_singly or len(route.queues) > 0

    def _push(self, message_list: UndeliverableList) -> None:
        message_list.is_going = True
        self._pushed += 1
        heappush(self._going, (int(message_list.ready.expires_us()), self._pushed, message_list))

    def _go(self, room: int, now_us: i64) -> bool:
        """Deliver messages, the oldest death first. Returns whether one of those tried singly failed."""
        is_vain = False
        vhost = self.vhost
        while self._going and room > 0 and vhost.log.size() < LOG_OCTETS_MAX and vhost.share.arrivals >= 0:
            _, _, message_list = heappop(self._going)
            message_list.is_going = False
            entry = None if message_list.queue.is_deleted or _is_slow(message_list) else message_list.ready.peek()
            if entry is None:
                continue
            room -= 1
            dead_letter = DeadLetter(entry, message_list.reason, entry.expires_us, message_list.reached(entry))
            is_slow = False
            try:
                is_gone = self._send(message_list.queue, dead_letter, now_us)
            except Unfinished:
                is_gone, is_slow = False, True
            if is_slow:
                self._slow_down(message_list, dead_letter, now_us)
            elif is_gone:
                self._is_moving = True
                message_list.drop(entry)
            elif message_list.is_tried_singly:
                room -= VAIN_COST
                is_vain = True
                message_list.drop(entry)
                self.put(message_list, dead_letter)
                message_list.left -= 1
            else:
                message_list.note(entry, dead_letter.reached)
                continue  # the messages behind it would fail, too
            if message_list.left > 0 and message_list.ready.count() > 0:
                self._push(message_list)
        return is_vain

    def _slow_down(self, message_list: UndeliverableList, dead_letter: DeadLetter, now_us: i64) -> None:
        """Hand over a message whose lookup takes several turns."""
        slow = self.vhost.slow_dead_letters
        slow.probe.give_up()
        message_list.drop(dead_letter.entry)
        slow.take(message_list.queue, dead_letter, now_us)
        if message_list.is_tried_singly:
            message_list.left -= 1

    def _send(self, queue: Queue, dead_letter: DeadLetter, now_us: i64) -> bool:
        """Deliver a message; True also if it was dropped, because a policy does not keep it any longer.

        Raises Unfinished, without effect, if its lookup takes several turns.
        """
        if queue.keeps_undeliverable:
            return dead_lettering.send(self.vhost, queue, dead_letter, now_us, self.vhost.slow_dead_letters.probe) == ""
        entry = dead_letter.entry
        if not dead_letter.reached:
            probe = self.vhost.slow_dead_letters.probe
            dead_lettering.give(self.vhost, queue, entry, dead_letter.reason, dead_letter.died_us, probe)
        elif entry.id != 0:
            self.vhost.log.settle(entry.message_list, entry.id)  # a queue has it, so it is not lost
        return True


def _is_slow(message_list: UndeliverableList) -> bool:
    """Whether slow_dead_letters.py is looking up messages of this list."""
    return message_list.is_mixed and message_list.queue.is_dead_lettering_slowly
