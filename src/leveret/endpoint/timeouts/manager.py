"""The timeout manager: takes deferred messages in, keeps them, and sends them when they are due."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from leveret.client import Channel, Connection, Delivery
from leveret.delay.routing import CONVENTIONAL, RoutingTopology
from leveret.endpoint.timeouts.batches import batches
from leveret.endpoint.timeouts.clock import Clock
from leveret.endpoint.timeouts.errors import TimeoutsUnavailable
from leveret.endpoint.timeouts.order import Order, order_of
from leveret.endpoint.timeouts.order import order as order_to_send
from leveret.endpoint.timeouts.outbox import Outbox, Outgoing
from leveret.endpoint.timeouts.queues import TimeoutQueues
from leveret.endpoint.timeouts.timeout import Timeout, sorted_out

if TYPE_CHECKING:
    from leveret.endpoint.timeouts.store import TimeoutStore

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger("leveret.timeouts")

BATCH: Final = 256
"""Messages in one transaction of the database."""
BACKLOG: Final = 1024
"""No more is claimed while so many orders lie in the dispatcher's queue: they must be sent before claims lapse."""
BACKLOG_LOOK_S: Final = 1.0
"""How often the queue is looked at meanwhile, unless this process sent something."""
PASS_ON_S: Final = 0.2
"""Before an order of another database goes back to the queue: its own process may be away, and then nobody takes it."""
LOOK_AGAIN_S: Final = 60.0
"""The store is looked at this often in any case: other processes, and people, put something there."""
PAUSE_S_MAX: Final = 30.0
"""After an error the pause before the next attempt doubles, up to this."""
RETRY_S_MAX: Final = 300
"""A message that can not be sent is tried again after 1, 2, 4 … seconds, up to this."""
ATTEMPTS_MAX: Final = 12
"""After so many attempts (about 23 minutes) a message goes to the error queue."""


class TimeoutManager:
    """Takes ``<endpoint>.Timeouts`` into a database, and sends what is due through ``<endpoint>.TimeoutsDispatcher``.

    At least once: a message is acknowledged when it is on disk, and forgotten when the broker has confirmed the
    sending. Never early, by the wall clock of this machine and by the time that has passed. What can not be sent
    stays, is tried again with growing pauses, and goes to the error queue in the end.

    database: a URL of SQLite or PostgreSQL; None = the SQLite file ``<folder>/<endpoint>.timeouts.sqlite``. Several
    processes of an endpoint may share it. Raises ``TimeoutsUnavailable`` where SQLAlchemy or a driver is missing, and
    ``ValueError`` for a wrong URL.
    """

    def __init__(
        self,
        endpoint: str,
        database: str | None = None,
        *,
        folder: Path = Path(),
        routing: RoutingTopology = CONVENTIONAL,
        error_queue: str = "error",
        clock: Clock | None = None,
    ) -> None:
        self.queues = TimeoutQueues(endpoint, routing, error_queue)
        self._store = open_store(endpoint, database, folder)
        self._clock = clock or Clock()
        self._claim = uuid.uuid4().hex
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"{endpoint}.Timeouts")
        self._stopping = asyncio.Event()
        self._earlier = asyncio.Event()
        self._sent = asyncio.Event()
        self._next_us = 0
        self._is_told = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, connection: Connection) -> None:
        """Declare the queues, create the tables, begin. After :meth:`stop` it may start again on another connection.

        Raises ``TimeoutsUnavailable`` where the database does not open, and the client's errors.
        """
        await self._in_thread(self._store.create)
        await self.queues.declare(connection)
        self._stopping.clear()
        works = (self._store_incoming, self._send_due, self._dispatch)
        self._tasks = [asyncio.create_task(self._kept_up(work, connection)) for work in works]

    async def stop(self, timeout_s: float = 10.0) -> None:
        """Finish what is under way, for timeout_s at most, and give up what was claimed. Without effect if stopped."""
        self._stopping.set()
        self._earlier.set()
        self._sent.set()
        tasks, self._tasks = self._tasks, []
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            try:
                await self._in_thread(self._store.release, self._claim)
            except Exception as error:  # the claims lapse by themselves, only later
                logger.warning("timeouts of %s: %s", self.queues.endpoint, error)

    def close(self) -> None:
        """Let go of the database, at the very end."""
        self._thread.shutdown()
        self._store.close()

    async def _kept_up(self, work: Callable[[Connection], Coroutine[Any, Any, None]], connection: Connection) -> None:
        """Do it again when the database or a channel fails; the connection's end is for its owner to see."""
        pause_s = 0.1
        while not self._is_over(connection):
            try:
                await work(connection)
            except Exception as error:
                if self._is_over(connection):
                    return
                logger.warning("timeouts of %s: %s; retrying in %g s", self.queues.endpoint, error, pause_s)
                await _elapsed_or_set(self._stopping, pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _is_over(self, connection: Connection) -> bool:
        return self._stopping.is_set() or connection.is_closed

    # taking in

    async def _store_incoming(self, connection: Connection) -> None:
        async with Outbox(connection, self.queues) as outbox, await connection.channel() as channel:
            await channel.qos(BATCH)
            consumer = await channel.consume(self.queues.timeouts)
            async for batch in batches(consumer, BATCH, self._stopping):
                await self._take_in(batch, outbox)
                channel.ack(batch[-1].delivery_tag, multiple=True)

    async def _take_in(self, batch: list[Delivery], outbox: Outbox) -> None:
        requests, poison = sorted_out(batch)
        await self._in_thread(self._store.apply, requests)
        await outbox.dead_letter(poison)
        due_us = [request.due_us for request in requests if isinstance(request, Timeout)]
        if due_us and min(due_us) < self._next_us:
            self._earlier.set()

    # sending what is due

    async def _send_due(self, connection: Connection) -> None:
        async with await connection.channel() as channel:
            await channel.confirm_select()
            while not self._stopping.is_set():
                self._sent.clear()
                if (await channel.declare_queue(self.queues.dispatcher, passive=True)).message_count >= BACKLOG:
                    await _elapsed_or_set(self._sent, BACKLOG_LOOK_S)
                    continue
                self._earlier.clear()
                self._next_us = 1 << 62  # whatever comes while the store is read is earlier
                now_us = self._clock.now_us()
                ids = await self._in_thread(self._store.claim, self._claim, now_us, BATCH)
                if ids:
                    await asyncio.gather(*(self._order(channel, id) for id in ids))
                    continue
                next_us = await self._in_thread(self._store.next_ready_us)
                if next_us is not None:
                    self._next_us = next_us
                await self._sleep_until(next_us)

    def _order(self, channel: Channel, id: str) -> asyncio.Future[None]:
        order = order_to_send(id, self._claim, self._store.identity)
        return channel.publish(b"", "", self.queues.dispatcher, order, mandatory=True)

    async def _sleep_until(self, next_us: int | None) -> None:
        wait_s = LOOK_AGAIN_S
        if next_us is not None:
            wait_s = min(max((next_us - self._clock.now_us()) / 1_000_000, 0), LOOK_AGAIN_S)
        await _elapsed_or_set(self._earlier, wait_s)

    async def _dispatch(self, connection: Connection) -> None:
        async with Outbox(connection, self.queues) as outbox, await connection.channel() as channel:
            await channel.qos(BATCH)
            consumer = await channel.consume(self.queues.dispatcher)
            async for batch in batches(consumer, BATCH, self._stopping):
                orders = [order_of(delivery) for delivery in batch]
                ours = [order for order in orders if order is not None and order.store == self._store.identity]
                await self._carry_out(ours, outbox)
                for delivery, order in zip(batch, orders, strict=True):
                    if order is None or order.store == self._store.identity:
                        channel.ack(delivery.delivery_tag)
                    else:
                        self._pass_on(channel, delivery.delivery_tag)
                self._sent.set()

    def _pass_on(self, channel: Channel, tag: int) -> None:
        """An order of a process with another database: it goes back for that one to take, after a pause."""
        if not self._is_told:
            self._is_told = True
            logger.error("other processes of %s keep timeouts in another database: all processes must use the same "
                         "one; this process uses %s",
                         self.queues.endpoint, self._store.place)  # fmt: skip
        loop = asyncio.get_running_loop()
        # with the same pauses two processes can hand each other the same orders for ever
        pause_s = PASS_ON_S * random.uniform(0.5, 1.5)
        loop.call_later(pause_s, lambda: None if channel.is_closed else channel.nack(tag))

    async def _carry_out(self, orders: list[Order], outbox: Outbox) -> None:
        """Send what is ordered, if the claim still holds; forget it when it is confirmed."""
        claims = {order.id: order.claim for order in orders}
        timeouts = await self._in_thread(self._store.load, list(claims))
        timeouts = [timeout for timeout in timeouts if timeout.claim == claims[timeout.id]]
        outcomes = await outbox.send([Outgoing(one.destination, one.outgoing(), one.body) for one in timeouts])
        sent = [timeout.id for timeout, outcome in zip(timeouts, outcomes, strict=True) if outcome is None]
        await self._in_thread(self._store.delete, sent)
        for timeout, outcome in zip(timeouts, outcomes, strict=True):
            if outcome is not None:
                await self._failed(timeout, outcome, outbox)

    async def _failed(self, timeout: Timeout, error: BaseException, outbox: Outbox) -> None:
        if timeout.attempts + 1 >= ATTEMPTS_MAX:
            logger.error(
                "timeout %s for %s is moved to %s: %s", timeout.id, timeout.destination, self.queues.error_queue, error
            )
            await outbox.fail(timeout.properties, timeout.body, error)
            await self._in_thread(self._store.delete, [timeout.id])
            return
        pause_s = min(2**timeout.attempts, RETRY_S_MAX)
        logger.warning("timeout %s for %s: %s; retrying in %d s", timeout.id, timeout.destination, error, pause_s)
        ready_us = self._clock.now_us() + pause_s * 1_000_000
        await self._in_thread(self._store.postpone, timeout.id, ready_us, str(error))
        if ready_us < self._next_us:
            self._earlier.set()

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*args, **options))


async def _elapsed_or_set(event: asyncio.Event, timeout_s: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        pass


def open_store(endpoint: str, database: str | None, folder: Path = Path()) -> TimeoutStore:
    """The store of an endpoint; arguments and errors as those of :class:`TimeoutManager`."""
    try:
        from leveret.endpoint.timeouts.database import default_url
        from leveret.endpoint.timeouts.store import TimeoutStore
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "sqlalchemy":
            raise
        raise TimeoutsUnavailable(
            "the timeout manager keeps messages in a database and needs SQLAlchemy: pip install 'leveret[endpoint]'; "
            "or, for an endpoint that has no timeouts stored, call disable_timeout_manager()"
        ) from error
    return TimeoutStore(endpoint, database or default_url(endpoint, folder))
