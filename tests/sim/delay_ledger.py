"""Checks the promise of delayed messages end to end: never early, never lost, never twice, and in order of due time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .model import Delivery, Model
from .state import State

if TYPE_CHECKING:
    from .delay_world import DelayWorld


# the destination whose messages wait in a delayed exchange
HELD: Final = "held"


@dataclass(eq=False)
class Promise:
    """A delayed message.

    Attributes:
        sent_us: True time of sending.
        broker_us: Time of sending by the broker's clock.
        lives: In how many runs of the broker it was delivered.
        life: The last of these runs.
        came_in: The batch with which it reached its destination in this run.
        acked_in: The batch of its acknowledgement, 0 = none.
        is_over: Whether the acknowledgement is on disk.
        is_silent: It was delivered after a hop that was not on disk at the crash: it is back where it was before the
            hop, and not marked as redelivered.
    """

    destination: str
    sent_us: int
    broker_us: int
    delay_us: int
    lives: int = 0
    life: int = 0
    came_in: int = 0
    acked_in: int = 0
    is_over: bool = False
    is_silent: bool = False

    @property
    def due_us(self) -> int:
        """When it is due by the broker's clock."""
        return self.broker_us + self.delay_us


class DelayLedger(Model):
    """Replaces the model: it knows no level queues, only which messages were sent and which arrived.

    Hops are counted for each batch by comparing where messages are with where they were at the batch before.
    """

    def __init__(self, world: DelayWorld) -> None:
        super().__init__()
        self.promises: dict[int, Promise] = {}
        self.late_us = 0  # the longest delay of a message that fell due while its destination had a consumer
        self.overdue = 0  # how many messages fell due while the broker was down
        self.life = 1
        self.watched_us: dict[str, int] = {}  # destination -> since when it has a consumer
        self._began_us = 0
        self._world = world
        self._held: dict[tuple[str, int], int] = {}
        self._newest: dict[str, int] = {}  # destination -> latest due time of the messages that arrived in this run
        self._places: dict[int, str] = {}

    # -- what clients do and see

    def sent(self, id: int, destination: str, delay_us: int) -> None:
        world = self._world
        self.promises[id] = Promise(destination, world.now_us, world.broker_us, delay_us)

    def delivered(self, deliveries: Iterable[Delivery], now_us: int) -> None:
        for delivery in deliveries:
            promise = self.promises[delivery.id]
            what = f"message {delivery.id}, delayed by {promise.delay_us} µs"
            assert delivery.queue == promise.destination, f"{what}: in {delivery.queue}"
            assert now_us >= promise.sent_us + promise.delay_us, f"{what}: early"
            is_acked = promise.is_over or promise.acked_in > 0
            assert not is_acked, f"{what}: came again after its acknowledgement"
            is_told = delivery.redelivered or promise.is_silent or not promise.lives
            assert is_told, f"{what}: came again and did not say so"
            if promise.life < self.life:
                self._first_in_life(promise, what)
                promise.lives += 1
                promise.life, promise.is_silent = self.life, False
                if self._places.get(delivery.id) != promise.destination:
                    promise.came_in = self.batch
            assert delivery.tag is not None
            self._held[delivery.consumer[0], delivery.tag] = delivery.id

    def _first_in_life(self, promise: Promise, what: str) -> None:
        newest_us = self._newest.get(promise.destination, 0)
        assert promise.due_us >= newest_us, f"{what}: behind one that was due {newest_us - promise.due_us} µs later"
        self._newest[promise.destination] = promise.due_us
        if promise.due_us < self._began_us:
            self.overdue += promise.lives == 0
        elif promise.due_us >= self.watched_us[promise.destination]:
            self.late_us = max(self.late_us, self._world.broker_us - promise.due_us)

    def held_tags(self, client: str) -> list[int]:
        return sorted(tag for holder, tag in self._held if holder == client)

    def ack(self, client: str, tag: int, multiple: bool) -> None:
        tags = [t for t in self.held_tags(client) if t == tag or (multiple and t < tag)]
        for each in tags:
            self.promises[self._held.pop((client, each))].acked_in = self.batch

    def requeue(self, client: str, tag: int | None = None, multiple: bool = True) -> None:
        self.watched_us.pop(client, None)
        self._held = {holder: id for holder, id in self._held.items() if holder[0] != client}

    # -- runs of the broker

    def closed(self, batch: int, state: State) -> None:
        """Count hops: messages that moved since the batch before was closed."""
        places = _places(state)
        moved = [id for id, name in places.items() if self._places.get(id, name) != name]
        for id in places.keys() - self._places.keys() | set(moved):
            self.promises[id].came_in = batch
        self.hops[batch] = len(moved)
        self._places = places

    def is_quiet(self, now_us: int) -> bool:
        return True

    def check(self, state: State) -> None:
        """Check that no message is in two places."""
        counts = Counter(row.id for rows in state.queues.values() for row in rows)
        twice = [id for id, count in counts.items() if count > 1]
        assert not twice, f"in two places: {twice}"

    def check_owed(self, state: State, batch: int) -> None:
        self.check(state)
        for promise in self.promises.values():
            kept = self._world.floor if promise.destination == HELD else batch  # the state does not include it
            promise.is_over = promise.is_over or 0 < promise.acked_in <= kept
            promise.is_silent = promise.is_silent or (promise.life == self.life and promise.came_in > kept)
            promise.came_in = promise.acked_in = 0

    def restart(self, state: State, queues: object) -> None:
        self.batch = 1
        self.hops.clear()
        self.life += 1
        self._began_us = self._world.broker_us
        self._held.clear()
        self.watched_us.clear()
        self._newest.clear()
        self._places = _places(state)

    def left_us(self) -> int:
        """Return how long until all messages are due, by the broker's clock."""
        return max((p.due_us for p in self.promises.values()), default=0) - self._world.broker_us

    def check_all_came(self) -> None:
        """Check, at the very end, that all confirmed messages arrived, in this run unless settled for good before."""
        for id in self.confirmed:
            promise = self.promises[id]
            assert promise.lives, f"confirmed and lost: {id}"
            is_here = promise.is_over or promise.life == self.life or promise.destination == HELD
            assert is_here, f"delivered, not settled, and lost: {id}"


def _places(state: State) -> dict[int, str]:
    """Return in which queue each message is."""
    return {row.id: name for name, rows in state.queues.items() for row in rows}
