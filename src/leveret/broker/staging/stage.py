"""A stage: the messages that one attempt has published for a batch of a query, in no queue until its release.

It is a queue for the journal, the pager and recovery only. Messages are routed when they are staged, and kept in one
message list for each set of queues that they reach; the journal records such a set once, and then only its number.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchanges.route import Route
from leveret.broker.messages.message_batch import BatchBuffer
from leveret.broker.queues.limits import body_octets
from leveret.broker.queues.message_list import MessageList
from leveret.broker.queues.queue import Queue
from leveret.broker.storage.log import meta_record
from leveret.broker.storage.page import Page
from leveret.wire.errors import quoted
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

OPEN: Final = "stage.declare"
STAGED_LIST: Final = "stage.shelf"
DROP: Final = "stage.delete"


class StagedMessages(MessageList):
    """Messages for the same queues. Instead of an expiry they have the time when they were staged."""

    def __init__(self, stage: Stage, index: i64, names: list[str], delaying: list[str]) -> None:
        super().__init__(stage, index)
        self.stage = stage
        self.names = names  # of the queues
        self.delaying = delaying  # names of delayed exchanges that will hold them first

    def enqueue(
        self, content: bytes, key: bytes, id: i64, expires_us: i64, redelivered: bool = False, returns: i64 = 0
    ) -> None:
        self.stage.octets += body_octets(content)
        self.stage.published(expires_us)
        super().enqueue(content, key, id, expires_us)

    def enqueue_batch(self, buffer: BatchBuffer, id: i64, expires_us: i64, redelivered: bool = False) -> None:
        self.stage.octets += buffer.count * body_octets(buffer.data)
        self.stage.published(expires_us)
        super().enqueue_batch(buffer, id, expires_us)

    def enqueue_page(self, page: Page) -> None:
        self.stage.octets += page.size
        self.stage.published(page.expires_us)
        super().enqueue_page(page)

    def record(self) -> dict[str, Value]:
        """Return the journal's record of where its messages go."""
        stage = self.stage
        names: list[Value] = [*self.names]
        delaying: list[Value] = [*self.delaying]
        fields: dict[str, Value] = {"op": STAGED_LIST, "vhost": stage.vhost.name, "number": int(stage.number)}
        return fields | {"index": int(self.index), "queues": names, "exchanges": delaying}


class Stage(Queue):
    """The stage of one attempt."""

    def __init__(
        self, vhost: VHost, query: str, batch: int, attempt: str, expires_after_us: i64, published_us: i64
    ) -> None:
        super().__init__(vhost, f"{query}/{batch}/{attempt}", True, False, {})
        self.query = query
        self.batch = batch
        self.attempt = attempt
        self.expires_after_us = expires_after_us  # it is dropped when nothing has been published for so long
        self.published_us = published_us  # when it was attached or last published to
        self.is_open = True  # it takes messages
        self.is_damaged = False  # some of it was lost
        self.turn = 0  # its place in the order of releases, 0 = not released
        self.decided_in = 0  # the journal's batch that records its release
        self.released_us: i64 = 0  # 0 = in an earlier run of the broker, or not at all
        self.octets: i64 = 0  # of bodies, approximate for pages of earlier runs of the broker
        self.is_touched = True  # forever: nothing is ever delivered from here
        self.fill()
        self.message_lists = []
        self._staged_lists: list[StagedMessages] = []
        self._by_destination: dict[tuple[tuple[str, ...], tuple[str, ...]], StagedMessages] = {}
        self._last_route: Route | None = None
        self._last_list: StagedMessages | None = None
        self._heads: list[tuple[int, int]] = []

    def fire(self, until_us: i64, most: i64, now_us: i64) -> i64:
        """Drop the stage if it has expired."""
        self.timer_us = 0
        self.vhost.queries.expire(self, now_us)
        return 1

    # -- publishing ----------------------------------------------------------------------------------------------------

    def take(self, route: Route, content: bytes, now_us: i64) -> None:
        """Stage a message for the queues of this route, and journal it."""
        message_list = self._list_for(route)
        id = self.vhost.log.message(content, route.key, message_list, now_us, None)
        message_list.enqueue(content, route.key, id, now_us)

    def take_batch(self, route: Route, buffer: BatchBuffer, now_us: i64) -> None:
        """Stage messages that differ in their bodies only, like take()."""
        message_list = self._list_for(route)
        buffer.compact()
        id = self.vhost.log.messages(buffer, message_list, now_us)
        message_list.enqueue_batch(buffer, id, now_us)

    def _list_for(self, route: Route) -> StagedMessages:
        last = self._last_list
        if last is not None and route is self._last_route and not route.is_per_message:
            return last
        names = tuple([queue.name for queue in route.queues if not queue.is_schedule])
        delaying = tuple([queue.name for queue in route.queues if queue.is_schedule])
        message_list = self._by_destination.get((names, delaying))
        if message_list is None:
            message_list = self.add_list(list(names), list(delaying))
            self.vhost.log.meta(message_list.record())
        self._last_route = route
        self._last_list = message_list
        return message_list

    def add_list(self, names: list[str], delaying: list[str]) -> StagedMessages:
        """Add a message list for another set of queues; its index is its number in the journal."""
        message_list = StagedMessages(self, len(self.message_lists), names, delaying)
        self.message_lists.append(message_list)
        self._staged_lists.append(message_list)
        self._by_destination[(tuple(names), tuple(delaying))] = message_list
        return message_list

    def published(self, now_us: i64) -> None:
        """Restart its expiry."""
        self.published_us = max(self.published_us, now_us)

    # -- release -------------------------------------------------------------------------------------------------------

    def first_list(self) -> StagedMessages | None:
        """Return the message list with the oldest message, whose page is read; None if no message is left."""
        heads = self._heads
        while heads:
            first, index = heads[0]
            message_list = self._staged_lists[index]
            message_list.ready.peek()  # before its page is read, head_id() may be too small
            id = int(message_list.ready.head_id())
            if id == first:
                return message_list
            if message_list.ready.count() == 0:
                heappop(heads)
            else:
                heapreplace(heads, (id, index))
        return None

    def decide(self, turn: int, decided_in: int, released_us: i64) -> None:
        """Mark it as released, as number `turn`; it moves when the batch `decided_in` is on disk."""
        self.is_open = False
        self.turn = turn
        self.decided_in = decided_in
        self.released_us = released_us

    def begin_to_move(self) -> None:
        """Prepare for first_list(): no message is added any more."""
        self._heads = []
        for index, message_list in enumerate(self._staged_lists):
            if message_list.ready.count() > 0:
                self._heads.append((int(message_list.ready.head_id()), index))
        heapify(self._heads)

    def clear(self) -> None:
        """Break reference cycles when it is dropped."""
        self.is_open = False
        self._staged_lists = []
        self._by_destination.clear()
        self._heads = []
        self._last_route = None
        self._last_list = None
        self.octets = 0

    # -- as a queue ----------------------------------------------------------------------------------------------------

    def list_at(self, index: i64) -> MessageList:
        while index >= len(self.message_lists):
            # the part of the journal with its record was damaged
            self.add_list([], [])
            self.is_damaged = True
        return self.message_lists[index]

    def count(self) -> i64:
        count: i64 = 0
        for message_list in self.message_lists:
            count += message_list.ready.count()
        return count

    def expires_us(self) -> i64:
        return 0

    def dispatch(self, now_us: i64) -> None:
        self.is_touched = True

    def what(self) -> str:
        where = f"query {quoted(self.query)} in vhost {quoted(self.vhost.name)}"
        return f"stage of attempt {quoted(self.attempt)} of batch {self.batch} of {where}"

    def ends_us(self) -> i64:
        """Return when it expires if nothing is published until then."""
        return self.published_us + self.expires_after_us

    def record(self) -> dict[str, Value]:
        return {
            "op": OPEN,
            "vhost": self.vhost.name,
            "query": self.query,
            "batch": self.batch,
            "attempt": self.attempt,
            "number": int(self.number),
            "expires_after_us": int(self.expires_after_us),
            "published_us": int(self.published_us),
            "turn": self.turn,
            "is_damaged": self.is_damaged,
        }

    def encoded(self) -> bytes:
        return meta_record(self.record())  # not cached: it changes all the time

    def list_records(self) -> list[dict[str, Value]]:
        """Return the journal's records of its message lists."""
        return [message_list.record() for message_list in self._staged_lists]
