"""An endpoint: a named queue, the handlers of its messages, and a way to send to other endpoints."""

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
from leveret.client.protocol.reconnect import Backoff
from leveret.delay import CONVENTIONAL, NSERVICEBUS, Layout, RoutingTopology
from leveret.endpoint import replies, types
from leveret.endpoint.handlers import Handler, Handlers, type_of
from leveret.endpoint.link import ConnectionResources
from leveret.endpoint.message import Outgoing
from leveret.endpoint.origin import Origin
from leveret.endpoint.receiver import Receiver
from leveret.endpoint.recoverability import Recoverability
from leveret.endpoint.timeouts import TimeoutManager
from leveret.endpoint.topology import QueueType, Topology

log: Final = logging.getLogger("leveret.endpoint")

H = TypeVar("H", bound=Handler)

PREFETCH_FACTOR: Final = 3
"""Default prefetch per message that is handled at a time, as in NServiceBus."""


class Endpoint:
    """An endpoint compatible with NServiceBus, on leveret or RabbitMQ::

        sales = Endpoint("sales", "amqp://guest:guest@localhost/")

        @sales.handler
        async def place(order: PlaceOrder, context: Context) -> None:
            context.publish(OrderPlaced(order.id))

        asyncio.run(sales.run())

    Args:
        name: Name of the endpoint and of its queue.
        url: amqp:// or amqps:// URL of the broker.
        routing: Routing topology, CONVENTIONAL or DIRECT; the same for all endpoints that exchange messages.
        layout: Layout of the delay levels; the same for all endpoints that exchange messages.
        queue_type: Type of the queues that the endpoint declares, "classic" or "quorum"; "" = the broker's default.
        error_queue: Queue for messages whose handling has finally failed.
        recoverability: How often a message is tried; None = NServiceBus's defaults.
        concurrency: How many messages are handled at the same time, from 1.
        prefetch: How many unacknowledged messages the broker delivers, 1 to 65535; None = three times concurrency.
        timeout_database: Database URL of the timeout manager; see :meth:`disable_timeout_manager`.
        folder: Directory of the timeout manager's SQLite file if timeout_database is None.
        patience_s: Seconds that sending waits while a lost connection is opened again.

    Raises:
        ValueError: A name is empty, or a number is out of range.
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
        self._link: ConnectionResources | None = None
        self._is_linked = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._is_stopped = False

    # handlers

    @overload
    def handler(self, of: H) -> H: ...

    @overload
    def handler(self, of: type | str) -> Callable[[H], H]: ...

    def handler(self, of: Any) -> Any:
        """Decorate an async function as the handler of a message type.

        ``@endpoint.handler`` uses the annotation of the function's first parameter; ``@endpoint.handler(TheType)``
        names the type. With the name of a type as a string, the handler gets dicts.

        Raises:
            TypeError: The type is not a message type, or the handler is not an async function.
        """
        return self._register(of, is_event=False)

    @overload
    def event_handler(self, of: H) -> H: ...

    @overload
    def event_handler(self, of: type | str) -> Callable[[H], H]: ...

    def event_handler(self, of: Any) -> Any:
        """Like :meth:`handler`; in addition the endpoint subscribes to the type each time it starts."""
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

    # start and stop

    def disable_timeout_manager(self) -> None:
        """Disable the timeout manager, which delays messages of older endpoints that do not use delay levels.

        It runs beside the delay levels unless it is disabled, and keeps its messages in a database: timeout_database (a
        URL), or a file in the endpoint's folder. New endpoints do not need it, and upgraded ones no longer need it once
        it is empty.

        Raises:
            RuntimeError: The endpoint is running.
        """
        if self._keeper is not None:
            raise RuntimeError("disable the timeout manager before the endpoint starts")
        self._has_timeouts = False

    async def start(self) -> None:
        """Connect, declare queue, exchange, delay levels and subscriptions, and begin to receive.

        A connection that is lost later is opened again, however long that takes. An endpoint cannot be started twice.

        Raises:
            ConnectionClosed, AuthenticationFailed: The connection cannot be opened now.
            ChannelClosed: Something cannot be declared, because it exists with other properties (406) or because of
                missing permissions (403).
            TimeoutsUnavailable: The timeout manager's database or SQLAlchemy is not available.
            RuntimeError: The endpoint was started before.
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
        """Stop receiving, let running handlers end, requeue all other deliveries, and close the connection.

        Args:
            timeout_s: Seconds to wait for running handlers. Those that run longer are cancelled, and their messages
                are delivered again.
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
        self._is_linked.set()  # callers that wait for a connection get an error

    async def run(self) -> None:
        """Start, and stop at SIGTERM or SIGINT (Ctrl-C). Raises the errors of :meth:`start`."""
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

    # sending

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
        """Send a message to an endpoint and wait for the broker's confirm.

        Args:
            destination: Name of the endpoint.
            message: A dataclass, a msgspec struct, or a dict.
            message_type: Name of the message type; required for a dict.
            delay: Seconds or a ``timedelta`` until the message is delivered.
            at: Time at which it is delivered, with a time zone; not together with delay.
            headers: Additional headers.

        Raises:
            DestinationMissing: The endpoint does not exist on the broker.
            Nacked: The broker refused the message.
            ConnectionClosed: The connection was lost meanwhile; the message may have been sent or not.
            ValueError, TypeError: The message, the delay or the time is not valid.
            RuntimeError: The endpoint is not running.
        """
        await self._dispatch(self._origin.send(destination, message, message_type, delay, at, headers))

    async def send_local(
        self, message: object, *, delay: timedelta | float | None = None, at: datetime | None = None
    ) -> None:
        """Send a message to this endpoint; parameters and errors are those of :meth:`send`."""
        await self.send(self.name, message, delay=delay, at=at)

    async def publish(
        self, message: object, *, message_type: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish an event to all endpoints that subscribed to its type or to a parent type, and wait for the confirm.

        An event without subscribers is no error. Raises the errors of :meth:`send` except ``DestinationMissing``.
        """
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
        """Send a message and return the reply of its handler.

        The reply is sent to a queue that belongs to this process only. Other parameters and errors are those of
        :meth:`send`.

        Args:
            reply: Class of the returned object; None = return a dict.
            timeout_s: Seconds to wait for the reply.

        Raises:
            TimeoutError: No reply arrived in time.
            UndecodableMessage: The reply is not JSON, or does not match the class.
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
        """Subscribe to a type of event, now and after each reconnect of this object.

        Args:
            kind: Class of the event, or the name of its type.

        Raises:
            TypeError: The class is not a message type.
            ChannelClosed, ConnectionClosed: The broker refused, or the connection was lost.
            RuntimeError: The endpoint is not running.
        """
        names = _names(kind)
        await (await self._current()).dispatcher.subscribe(names, self.name)
        if names not in self._events:
            self._events.append(names)

    async def unsubscribe(self, kind: type | str) -> None:
        """End the subscription to a type of event; events in the queue are still handled.

        Raises the errors of :meth:`subscribe`.
        """
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

    async def _current(self) -> ConnectionResources:
        """Return the link of the open connection; wait up to patience_s for one that is being opened again."""
        if self._keeper is None:
            raise RuntimeError(f"the endpoint {self.name!r} is not running")
        if self._link is not None and self._link.connection.is_closed:
            self._is_linked.clear()  # just lost; _keep opens it again
        try:
            async with asyncio.timeout(self._patience_s):
                await self._is_linked.wait()
        except TimeoutError:
            raise ConnectionClosed(0, f"no connection to the broker for {self._patience_s:g} s") from None
        if self._link is None:
            raise RuntimeError(f"the endpoint {self.name!r} was stopped")
        return self._link

    async def _open(self) -> ConnectionResources:
        link = await ConnectionResources.open(self._url, self._topology, self.name, self._error_queue, self._events)
        try:
            if self._timeouts is not None:
                await self._timeouts.start(link.connection)
        except BaseException:
            await link.close()
            raise
        self._link = link
        self._is_linked.set()
        return link

    async def _keep(self, link: ConnectionResources) -> None:
        """Receive, and connect again when the connection or the queue is lost, as long as the endpoint runs."""
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

    async def _let_go(self, link: ConnectionResources) -> None:
        """Close a lost connection's link. Errors are only logged: they must not prevent the next connection."""
        try:
            if self._timeouts is not None:
                await self._timeouts.stop()
            await link.close()
        except Exception:
            log.exception("endpoint %s can't close its connection", self.name)

    async def _open_again(self, backoff: Backoff) -> ConnectionResources:
        while True:
            wait_s = backoff.next_s()
            log.info("endpoint %s will reconnect in %.1f s", self.name, wait_s)
            await asyncio.sleep(wait_s)
            try:
                link = await self._open()
            except ClientError as error:
                log.warning("endpoint %s can't connect: %s", self.name, error)
                continue
            except Exception:  # the timeout manager's database, for instance: it may work again later
                log.exception("endpoint %s can't restart", self.name)
                continue
            log.info("endpoint %s has reconnected", self.name)
            return link


def _names(kind: type | str) -> tuple[str, ...]:
    return (kind,) if isinstance(kind, str) else types.names_of(kind)
