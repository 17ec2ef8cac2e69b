"""The timeout manager: stores deferred messages and sends them when they are due."""

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
"""Maximum number of messages in one transaction of the database."""
BACKLOG: Final = 1024
"""Number of orders in the dispatcher's queue from which no more are claimed: they must be sent before claims lapse."""
BACKLOG_LOOK_S: Final = 1.0
"""Seconds until the queue is checked again meanwhile, unless this process sent something before."""
PASS_ON_S: Final = 0.2
"""Pause before an order of another database is requeued, since its process may be down and nobody may take it."""
LOOK_AGAIN_S: Final = 60.0
"""Maximum time between two checks of the store, since other processes and administrators may add rows."""
PAUSE_S_MAX: Final = 30.0
"""After an error the pause before the next attempt doubles, up to this."""
RETRY_S_MAX: Final = 300
"""A message that cannot be sent is tried again after 1, 2, 4 … seconds, up to this."""
ATTEMPTS_MAX: Final = 12
"""Number of attempts (with pauses of 18.5 minutes in all) after which a message goes to the error queue."""


class TimeoutManager:
    """Stores messages of ``<endpoint>.Timeouts`` and sends due ones through ``<endpoint>.TimeoutsDispatcher``.

    Delivery is at least once: a message is acknowledged when it is on disk, and deleted when the broker has confirmed
    its publish. It is never early, by the wall clock of this machine and by the time that has passed. A message that
    cannot be sent is tried again with growing pauses, and finally goes to the error queue.

    Args:
        endpoint: Name of the endpoint.
        database: URL of an SQLite or PostgreSQL database, which several processes of the endpoint may share; None = the
            SQLite file ``<folder>/<endpoint>.timeouts.sqlite``.
        folder: Directory of the SQLite file.
        routing: Routing topology of the endpoint.
        error_queue: Queue for messages that cannot be read or sent.
        clock: Source of the time; for tests.

    Raises:
        TimeoutsUnavailable: SQLAlchemy or the database driver is not installed.
        ValueError: The URL is wrong.
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
        """Declare the queues, create the tables and start. After :meth:`stop` it can be started on another connection.

        Raises ``TimeoutsUnavailable`` if the database cannot be opened, and the client's errors.
        """
        await self._in_thread(self._store.create)
        await self.queues.declare(connection)
        self._stopping.clear()
        works = (self._store_incoming, self._send_due, self._dispatch)
        self._tasks = [asyncio.create_task(self._kept_up(work, connection)) for work in works]

    async def stop(self, timeout_s: float = 10.0) -> None:
        """Finish the work in progress, within timeout_s seconds, and release the claims. No effect if stopped."""
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
            except Exception as error:  # the claims lapse by themselves later
                logger.warning("timeouts of %s: %s", self.queues.endpoint, error)

    def close(self) -> None:
        """Close the database; call it after stop()."""
        self._thread.shutdown()
        self._store.close()

    async def _kept_up(self, work: Callable[[Connection], Coroutine[Any, Any, None]], connection: Connection) -> None:
        """Repeat the work after errors of the database or a channel; end when the connection is lost or at stop()."""
        pause_s = 0.1
        while not self._is_over(connection):
            try:
                await work(connection)
            except Exception as error:
                if self._is_over(connection):
                    return
                logger.warning("timeouts of %s: %s; retrying in %g s", self.queues.endpoint, error, pause_s)
                await elapsed_or_set(self._stopping, pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _is_over(self, connection: Connection) -> bool:
        return self._stopping.is_set() or connection.is_closed

    # storing

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
                    await elapsed_or_set(self._sent, BACKLOG_LOOK_S)
                    continue
                self._earlier.clear()
                self._next_us = 1 << 62  # any timeout stored while the store is read is earlier, and wakes the loop
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
        await elapsed_or_set(self._earlier, wait_s)

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
        """Requeue the order of a process with another database after a pause, so that this process can take it."""
        if not self._is_told:
            self._is_told = True
            logger.error("other processes of %s keep timeouts in another database: all processes must use the same "
                         "one; this process uses %s",
                         self.queues.endpoint, self._store.place)  # fmt: skip
        loop = asyncio.get_running_loop()
        # random, because with equal pauses two processes could pass each other the same orders forever
        pause_s = PASS_ON_S * random.uniform(0.5, 1.5)
        loop.call_later(pause_s, lambda: None if channel.is_closed else channel.nack(tag))

    async def _carry_out(self, orders: list[Order], outbox: Outbox) -> None:
        """Send the ordered timeouts whose claims are still valid, and delete those that are confirmed."""
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


async def elapsed_or_set(event: asyncio.Event, timeout_s: float) -> None:
    """Wait until the event is set, ``timeout_s`` seconds at most."""
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        pass


def open_store(endpoint: str, database: str | None, folder: Path = Path()) -> TimeoutStore:
    """Open the store of an endpoint; arguments and errors are those of :class:`TimeoutManager`."""
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
