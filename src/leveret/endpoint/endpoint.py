"""An endpoint: a named queue, the handlers of what arrives there, and a way to send to others."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, overload

from leveret.client import ClientError, ConnectionClosed
from leveret.delay import CONVENTIONAL, NSERVICEBUS, Layout, RoutingTopology
from leveret.endpoint import replies, types
from leveret.endpoint.backoff import Backoff
from leveret.endpoint.handlers import Handler, Handlers, type_of
from leveret.endpoint.link import Link
from leveret.endpoint.message import Outgoing
from leveret.endpoint.origin import Origin
from leveret.endpoint.receiver import Receiver
from leveret.endpoint.recoverability import Recoverability
from leveret.endpoint.timeouts import TimeoutManager
from leveret.endpoint.topology import QueueType, Topology

log: Final = logging.getLogger("leveret.endpoint")

H = TypeVar("H", bound=Handler)

PREFETCH_FACTOR: Final = 3
"""Messages handed out beforehand, for each that is handled: NServiceBus's default."""


class Endpoint:
    """An endpoint of NServiceBus's kind, on leveret or RabbitMQ::

        sales = Endpoint("sales", "amqp://guest:guest@localhost/")

        @sales.handler
        async def place(order: PlaceOrder, context: Context) -> None:
            context.publish(OrderPlaced(order.id))

        asyncio.run(sales.run())

    name: of the endpoint and of its queue. url: the broker's. routing: CONVENTIONAL or DIRECT, the same for all
    endpoints that talk to each other; layout: the delay levels, likewise. queue_type: of the queues that it declares,
    "" = the broker's default. error_queue: where messages go that fail for good. recoverability: when they do.
    concurrency: how many messages are handled at the same time; prefetch: how many the broker hands out beforehand, by
    default three times as many. timeout_database, folder: see :meth:`disable_timeout_manager`. patience_s: how long
    sending waits for a connection that is being made again.

    ``ValueError`` for an empty name and for numbers out of range.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        routing: RoutingTopology = CONVENTIONAL,
        layout: Layout = NSERVICEBUS,
        queue_type: QueueType = "",
        error_queue: str = "error",
        recoverability: Recoverability | None = None,
        concurrency: int = 10,
        prefetch: int | None = None,
        timeout_database: str | None = None,
        folder: str | os.PathLike[str] = ".",
        patience_s: float = 30.0,
    ) -> None:
        if not name or not error_queue:
            raise ValueError("an endpoint needs a name, and so does its error queue")
        if concurrency < 1 or (prefetch is not None and not 0 < prefetch <= 0xFFFF):
            raise ValueError("an endpoint handles at least one message at a time, and prefetches 1 to 65535")
        self.name = name
        self._url = url
        self._topology = Topology(routing, layout, queue_type)
        self._error_queue = error_queue
        self._origin = Origin(name, layout)
        self._handlers = Handlers()
        self._events: list[tuple[str, ...]] = []
        self._receiver = Receiver(
            self._origin,
            self._handlers,
            recoverability or Recoverability(),
            error_queue,
            concurrency,
            prefetch or min(PREFETCH_FACTOR * concurrency, 0xFFFF),
        )
        self._has_timeouts = True
        self._timeout_database = timeout_database
        self._folder = Path(folder)
        self._patience_s = patience_s
        self._timeouts: TimeoutManager | None = None
        self._link: Link | None = None
        self._is_linked = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._is_stopped = False

    # what it handles

    @overload
    def handler(self, of: H) -> H: ...

    @overload
    def handler(self, of: type | str) -> Callable[[H], H]: ...

    def handler(self, of: Any) -> Any:
        """Decorate the handler of a message type: ``@endpoint.handler`` takes the type that the function's first
        parameter is annotated with, ``@endpoint.handler(TheType)`` names it, and with the name of a type as a string
        the handler gets dicts. ``TypeError`` for what is no message type, or no async function.
        """
        return self._register(of, is_event=False)

    @overload
    def event_handler(self, of: H) -> H: ...

    @overload
    def event_handler(self, of: type | str) -> Callable[[H], H]: ...

    def event_handler(self, of: Any) -> Any:
        """As :meth:`handler`, and the endpoint subscribes to the type whenever it starts."""
        return self._register(of, is_event=True)

    def _register(self, of: Any, is_event: bool) -> Any:
        if not isinstance(of, type | str):
            self._add(type_of(of), of, is_event)
            return of

        def register(function: H) -> H:
            self._add(of, function, is_event)
            return function

        return register

    def _add(self, kind: type | str, function: Handler, is_event: bool) -> None:
        self._handlers.add(kind, function)
        if is_event:
            self._events.append(_names(kind))

    # its life

    def disable_timeout_manager(self) -> None:
        """Do without the timeout manager, which serves delayed messages of endpoints that know nothing of delay levels.

        It runs beside the delay levels unless it is disabled, and keeps its messages in a database: timeout_database (a
        URL), or a file in the endpoint's folder. New endpoints need none, and upgraded ones none any more once it is
        empty. ``RuntimeError`` when the endpoint runs.
        """
        if self._keeper is not None:
            raise RuntimeError("disable the timeout manager before the endpoint starts")
        self._has_timeouts = False

    async def start(self) -> None:
        """Connect, declare queue, exchange, delay levels and subscriptions, and begin to receive.

        Raises ``ConnectionClosed``, ``AuthenticationFailed`` or ``ChannelClosed`` if that does not work now; later on a
        lost connection is made again, however long it takes. ``RuntimeError`` for an endpoint that was started before.
        """
        if self._keeper is not None or self._is_stopped:
            raise RuntimeError(f"the endpoint {self.name!r} has already been started")
        if self._has_timeouts and self._timeouts is None:
            self._timeouts = TimeoutManager(
                self.name,
                self._timeout_database,
                folder=self._folder,
                routing=self._topology.routing,
                error_queue=self._error_queue,
            )
        try:
            link = await self._open()
        except BaseException:
            self._close_timeouts()
            raise
        self._keeper = asyncio.create_task(self._keep(link), name=f"endpoint {self.name}")

    async def stop(self, timeout_s: float = 30.0) -> None:
        """Take nothing more, let running handlers end, give everything else back, close the connection.

        timeout_s: how long to wait for handlers; their messages will be delivered again after it.
        """
        self._is_stopped = True
        await self._receiver.stop(timeout_s)
        if self._timeouts is not None:
            await self._timeouts.stop()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait((self._keeper,))
            self._keeper = None
        if self._link is not None:
            await self._link.close()
            self._link = None
        self._close_timeouts()
        self._is_linked.set()  # who waits for a connection learns that there will be none

    async def run(self) -> None:
        """Start, and stop at SIGTERM or SIGINT (Ctrl-C)."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        try:
            async with self:
                log.info("endpoint %s is running", self.name)
                await ended.wait()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # what it sends

    async def send(
        self,
        destination: str,
        message: object,
        *,
        message_type: str | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send to an endpoint, at once, after a delay (seconds or a ``timedelta``) or at a time with a zone; done when
        the broker has it. message_type: the name of the type, for a dict.

        ``DestinationMissing`` if nobody has declared that endpoint, ``Nacked`` if the broker refuses the message,
        ``ConnectionClosed`` if the connection goes meanwhile (then it may have been sent, or not), ``ValueError`` and
        ``TypeError`` for what can't be sent.
        """
        await self._dispatch(self._origin.send(destination, message, message_type, delay, at, headers))

    async def send_local(
        self, message: object, *, delay: timedelta | float | None = None, at: datetime | None = None
    ) -> None:
        """Send to this very endpoint; errors as in :meth:`send`."""
        await self.send(self.name, message, delay=delay, at=at)

    async def publish(
        self, message: object, *, message_type: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Tell all endpoints that have subscribed to this type of event, or to one it descends from. None is fine."""
        await self._dispatch(self._origin.publish(message, message_type, headers))

    async def request(
        self,
        destination: str,
        message: object,
        reply: type | None = None,
        *,
        message_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> Any:
        """Send, and wait for what the other side's handler replies: an object of the class ``reply``, or a dict.

        The reply comes to an address of this process alone. ``TimeoutError`` if none comes in time,
        ``UndecodableMessage`` if it does not fit, and what :meth:`send` raises.
        """
        async with asyncio.timeout(timeout_s):
            link = await self._current()
            address = await link.replies.address()
            outgoing = self._origin.send(destination, message, message_type, given=headers, reply_to=address)
            answer = link.replies.expect(outgoing.properties.correlation_id or "")
            try:
                await link.dispatcher.dispatch([outgoing])
                return replies.content(await answer, reply)
            finally:
                answer.cancel()

    async def subscribe(self, kind: type | str) -> None:
        """Receive events of a type from now on, and whenever the endpoint starts as long as this object lives."""
        names = _names(kind)
        await (await self._current()).dispatcher.subscribe(names, self.name)
        if names not in self._events:
            self._events.append(names)

    async def unsubscribe(self, kind: type | str) -> None:
        """Receive no more events of a type; those in the queue are still handled."""
        names = _names(kind)
        if names in self._events:
            self._events.remove(names)
        await (await self._current()).dispatcher.unsubscribe(names, self.name)

    def _close_timeouts(self) -> None:
        if self._timeouts is not None:
            self._timeouts.close()
            self._timeouts = None

    async def _dispatch(self, message: Outgoing) -> None:
        await (await self._current()).dispatcher.dispatch([message])

    # connections

    async def _current(self) -> Link:
        """The connection there is, or will be soon."""
        if self._keeper is None:
            raise RuntimeError(f"the endpoint {self.name!r} is not running")
        if self._link is not None and self._link.connection.is_closed:
            self._is_linked.clear()  # it has just gone, and will be made again
        try:
            async with asyncio.timeout(self._patience_s):
                await self._is_linked.wait()
        except TimeoutError:
            raise ConnectionClosed(0, f"no connection to the broker for {self._patience_s:g} s") from None
        if self._link is None:
            raise RuntimeError(f"the endpoint {self.name!r} was stopped")
        return self._link

    async def _open(self) -> Link:
        link = await Link.open(self._url, self._topology, self.name, self._error_queue, self._events)
        try:
            if self._timeouts is not None:
                await self._timeouts.start(link.connection)
        except BaseException:
            await link.close()
            raise
        self._link = link
        self._is_linked.set()
        return link

    async def _keep(self, link: Link) -> None:
        """Receive; when the connection or the queue goes, make it again, for as long as the endpoint runs."""
        backoff = Backoff()
        while True:
            try:
                await self._receiver.serve(link.receiving, link.dispatcher)
                return
            except ClientError as error:
                log.warning("endpoint %s lost its connection: %s", self.name, error)
            except Exception:
                log.exception("endpoint %s can't receive", self.name)
            self._is_linked.clear()
            self._link = None
            await self._let_go(link)
            link = await self._open_again(backoff)

    async def _let_go(self, link: Link) -> None:
        """Whatever goes wrong here is no reason to stay without a connection."""
        try:
            if self._timeouts is not None:
                await self._timeouts.stop()
            await link.close()
        except Exception:
            log.exception("endpoint %s can't close its connection", self.name)

    async def _open_again(self, backoff: Backoff) -> Link:
        while True:
            wait_s = backoff.next_s()
            log.info("endpoint %s will reconnect in %.1f s", self.name, wait_s)
            await asyncio.sleep(wait_s)
            try:
                link = await self._open()
            except ClientError as error:
                log.warning("endpoint %s can't connect: %s", self.name, error)
                continue
            except Exception:  # of the timeout manager's database, say: it may come back
                log.exception("endpoint %s can't restart", self.name)
                continue
            log.info("endpoint %s has reconnected", self.name)
            return link


def _names(kind: type | str) -> tuple[str, ...]:
    return (kind,) if isinstance(kind, str) else types.names_of(kind)
