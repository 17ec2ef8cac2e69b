"""Moves released messages from their stages to their queues, a part in each turn, in the order of the releases.

Nothing moves before the release is on disk, so a consumer only ever sees messages of completed releases. Then the first
part moves at once, before the broker reads from any client that has heard of the release. Messages that move in one
turn are in one batch of the journal, so each is in its stage or in all its queues. Queues take them even if they are
full, as they take dead letters.

Delays start with the release, however long the moves take. Times to live of queues that are consumed from, or that drop
what expires, start with the move, since nobody could take a message before.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.broker.delayed.schedule import Schedule
from leveret.broker.exchanges.route import QUEUES_MAX, Route
from leveret.broker.messages.contents import HEADER_AT
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import BatchBuffer, MessageBatch
from leveret.broker.queues.limits import body_octets
from leveret.broker.queues.overflow import duplicated, expire_untaken, trim
from leveret.broker.staging.stage import Stage, StagedMessages
from leveret.broker.timers import Timer
from leveret.session.confirms import JOURNALLED
from leveret.wire.scan import HeaderScan

if TYPE_CHECKING:
    from leveret.broker.staging.queries import Producers
    from leveret.broker.vhost import VHost

# per turn: pieces (messages, or runs of them), and octets
TURN_PIECES: Final = 1000
TURN_OCTETS: Final[i64] = 1 << 20
# the pause before the next turn; while more than LOG_OCTETS_MAX waits to be written to the journal, nothing is moved
NEXT_US: Final[i64] = 1000
LOG_OCTETS_MAX: Final[i64] = 2 << 20


class ReleaseRoutes:
    """The routes of a message list's messages, valid for one generation of the bindings."""

    def __init__(self, vhost: VHost, message_list: StagedMessages) -> None:
        queues = [vhost.queues[name] for name in message_list.names if name in vhost.queues]
        self.generation = vhost.generation
        self.message_list = message_list
        self.queues = queues
        self.routes: list[Route] = []  # to its queues, each to no more than one journal record can name
        for at in range(0, len(queues), QUEUES_MAX):
            route = Route(vhost.generation, b"", None, []).unlimited(queues[at : at + QUEUES_MAX])
            self.routes.append(route)
        self.is_brief = any(route.is_brief for route in self.routes)
        self.are_delays = all(queue.dead_letter_exchange is not None and queue.consumers.count == 0 for queue in queues)
        # queues that may exceed their limits afterwards
        self.limited = [queue for queue in queues if queue.limits is not None]
        self.schedules: list[Schedule] = []  # of delayed exchanges, which hold the messages first
        for name in message_list.delaying:
            if name in vhost.schedules:
                self.schedules.append(vhost.schedules[name])


class Releases(Timer):
    """Moves the messages of released stages into their queues, for one virtual host."""

    def __init__(self, vhost: VHost, queries: Producers) -> None:
        super().__init__(vhost.timers)
        self.vhost = vhost
        self.queries = queries
        self._moving: deque[Stage] = deque()
        self._begun: Stage | None = None
        self._destination: ReleaseRoutes | None = None
        self._scan = HeaderScan()

    @property
    def is_busy(self) -> bool:
        """Whether a released stage has not moved completely."""
        return len(self._moving) > 0

    def add(self, stage: Stage) -> None:
        """Add a released stage, after those that were added before."""
        self._moving.append(stage)

    def released(self) -> None:
        """Move the stages that were added last when the current batch is on disk."""
        self.vhost.log.wake_on_disk(self)

    def remove(self, stage: Stage) -> None:
        """Remove a dropped stage."""
        if stage in self._moving:
            self._moving.remove(stage)
        if self._begun is stage:
            self._begun = None
            self._destination = None

    def recovered(self, now_us: i64) -> None:
        """Continue the releases from before a restart, in their order."""
        self._moving = deque(sorted(self._moving, key=_turn))
        self._continue(now_us)

    def _continue(self, now_us: i64) -> None:
        if self._is_movable():
            self.wake(now_us + NEXT_US)

    def _is_movable(self) -> bool:
        """Whether a stage is released, and the release is on disk; the log sets the timer when it is."""
        return len(self._moving) > 0 and self._moving[0].decided_in <= self.vhost.log.synced

    def fire(self, until_us: i64, most: i64, now_us: i64) -> i64:
        """Move a part of the released messages."""
        self.timer_us = 0
        log = self.vhost.log
        pieces = TURN_PIECES
        octets = TURN_OCTETS
        while self._is_movable() and pieces > 0 and octets > 0 and log.size() < LOG_OCTETS_MAX:
            stage = self._moving[0]
            if self._begun is not stage:
                self._begun = stage
                stage.begin_to_move()
            message_list = stage.first_list()
            if message_list is None:
                self.queries.drop(stage)
            else:
                octets -= self._move(stage, message_list, now_us)
            pieces -= 1
        trim(self.vhost, now_us)
        self._continue(now_us)
        return 1

    def _move(self, stage: Stage, message_list: StagedMessages, now_us: i64) -> i64:
        """Move the message or run at the head of the message list; return its size."""
        destination = self._destination
        if (
            destination is None
            or destination.message_list is not message_list
            or destination.generation != self.vhost.generation
        ):
            destination = self._destination = ReleaseRoutes(self.vhost, message_list)
        ready = message_list.ready
        entry = ready.peek()
        assert entry is not None
        ttl_us = self._ttl_us(entry.content)
        since_us = stage.released_us if destination.are_delays and stage.released_us != 0 else now_us
        run = ready.run()
        if run is not None and not destination.schedules and not destination.limited:
            taken = run.taken
            ready.drop_batch(run, run.buffer.count - taken)
            octets = self._move_batch(stage, run, taken, destination, ttl_us, since_us)
        else:
            ready.drop()
            stage.octets = max(0, stage.octets - body_octets(entry.content))
            self._move_entry(entry, destination, ttl_us, now_us, since_us)
            octets = len(entry.content)
        if ttl_us == 0 or destination.is_brief:
            expire_untaken(self.vhost, destination.queues, now_us)
        return octets

    def _move_batch(
        self, stage: Stage, run: MessageBatch, taken: i64, destination: ReleaseRoutes, ttl_us: i64, since_us: i64
    ) -> i64:
        data = run.buffer.contents_from(taken)
        size, count = run.buffer.size, run.buffer.count - taken
        stage.octets = max(0, stage.octets - count * body_octets(data))
        for route in destination.routes:
            route.key = run.buffer.key
            buffer = BatchBuffer(data, size, size, count, run.buffer.key)
            self.vhost.accept_batch(route, buffer, True, ttl_us, since_us)
        if not destination.routes:
            self.vhost.discard(stage, "released message without a queue")
        self.vhost.log.settle(run.message_list, run.id + taken, count)
        return len(data)

    def _move_entry(
        self, entry: Entry, destination: ReleaseRoutes, ttl_us: i64, now_us: i64, since_us: i64
    ) -> None:
        vhost = self.vhost
        moved: Entry | None = entry
        for schedule in destination.schedules:
            if schedule.hold(entry.content, entry.key, since_us, moved):
                moved = None
        for route in destination.routes:
            route.key = entry.key
            taking = route
            if route.has_keys:
                queues = route.queues.copy()
                if duplicated(queues, entry.content, now_us):
                    taking = route.unlimited(queues)
            if vhost.accept(taking, entry.content, True, ttl_us, since_us, moved) == JOURNALLED:
                moved = None
        for queue in destination.limited:
            queue.serve(now_us)
            vhost.over.append(queue)
        if destination.limited:
            trim(vhost, now_us)
        if not destination.routes and not destination.schedules:
            vhost.discard(entry.queue, "released message without a queue")
        if moved is not None:
            vhost.log.settle(entry.message_list, entry.id)

    def _ttl_us(self, content: bytes) -> i64:
        """Return the message's own TTL, which was checked when it was published; -1 = none."""
        scan = self._scan
        scan.scan(content, HEADER_AT, HEADER_AT + i64(read_i32_be(content, 3)))
        at = scan.expiration_at
        return -1 if at == 0 else int(content[at + 1 : at + 1 + content[at]]) * 1000


def _turn(stage: Stage) -> int:
    return stage.turn
