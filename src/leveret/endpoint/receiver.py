"""Consumes the endpoint's queue, calls the handlers, and retries or moves the messages whose handler failed."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import replace
from typing import Final

from leveret.client import Channel, ClientError, Consumer, Delivery, Properties
from leveret.client.protocol.reconnect import Backoff
from leveret.delay import DestinationMissing
from leveret.delay.instant import as_header, now
from leveret.endpoint import headers
from leveret.endpoint.context import Context
from leveret.endpoint.dispatcher import Dispatcher
from leveret.endpoint.failure_headers import failure_headers
from leveret.endpoint.handlers import Handlers
from leveret.endpoint.message import Incoming, PoisonMessage, Send, transferable, with_headers, without_failure
from leveret.endpoint.origin import Origin
from leveret.endpoint.recoverability import Discard, Failure, MoveToError, Recoverability, RetryLater, RetryNow
from leveret.wire.properties import encode_header

log: Final = logging.getLogger("leveret.endpoint")


class Receiver:
    """The receiving half of an endpoint, across all of its connections.

    concurrency is how many messages are handled at the same time, prefetch the limit of unacknowledged deliveries.
    """

    def __init__(
        self,
        origin: Origin,
        handlers: Handlers,
        recoverability: Recoverability,
        error_queue: str,
        concurrency: int,
        prefetch: int,
    ) -> None:
        self._origin = origin
        self._handlers = handlers
        self._recoverability = recoverability
        self._error_queue = error_queue
        self._prefetch = prefetch
        self._slots = asyncio.Semaphore(concurrency)
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._consumer: Consumer | None = None
        self._backoff = Backoff()

    async def serve(self, channel: Channel, dispatcher: Dispatcher) -> None:
        """Receive until :meth:`stop`. Raises ``ClientError`` if the channel, the connection or the queue is lost."""
        await channel.qos(self._prefetch)
        self._consumer = await channel.consume(self._origin.endpoint)
        if self._stopping.is_set():
            return
        async for delivery in self._consumer:
            await self._slots.acquire()
            if self._stopping.is_set() or channel.is_closed:
                self._slots.release()  # the delivery was not started, and will be delivered again
                continue
            task = asyncio.create_task(self._receive(channel, dispatcher, delivery))
            self._running.add(task)
            task.add_done_callback(self._ended)

    async def stop(self, timeout_s: float) -> None:
        """Stop consuming and wait for running handlers. After timeout_s seconds they are cancelled.

        Messages of cancelled handlers and deliveries that were not started are delivered again.
        """
        self._stopping.set()
        if self._consumer is not None:
            try:
                await self._consumer.cancel()
            except ClientError:
                pass  # the connection is lost, and with it the consumer
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                log.warning("%d handlers did not end within %g s and were cancelled", len(late), timeout_s)
                await asyncio.wait(late)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._slots.release()

    async def _receive(self, channel: Channel, dispatcher: Dispatcher, delivery: Delivery) -> None:
        """Handle one delivery, then acknowledge it; or requeue it after a pause if even the error queue failed."""
        try:
            await self._settle(channel, dispatcher, delivery)
            channel.ack(delivery.delivery_tag)
            self._backoff.reset()
        except Exception as error:
            if channel.is_closed:
                log.warning(
                    "the connection was lost while a message was handled; the message will be redelivered (%s)", error
                )
                return
            wait_s = self._backoff.next_s()
            log.error(
                "a message can be neither handled nor moved to another queue; retrying in %.1f s: %r", wait_s, error
            )
            await self._pause(wait_s)
            if not channel.is_closed:
                channel.nack(delivery.delivery_tag)

    async def _settle(self, channel: Channel, dispatcher: Dispatcher, delivery: Delivery) -> None:
        """Handle a message, or act on its failure as recoverability decides; then it can be acknowledged."""
        try:
            message = Incoming.of(delivery, self._origin.layout.delay_header)
        except PoisonMessage as poison:
            log.error("an unreadable message is moved to the queue %r: %s", self._error_queue, poison)
            await self._put_away(dispatcher, self._error_queue, delivery.body, _poisoned(delivery), poison, 0, 0)
            return
        immediate_retries = 0
        while True:
            error = await self._attempt(dispatcher, message, immediate_retries)
            if error is None:
                return
            if channel.is_closed:
                raise error
            failure = Failure(message, error, immediate_retries, message.delayed_retries)
            action = self._recoverability.decide(failure)
            if isinstance(action, RetryNow):
                log.info("message %r failed, retrying now: %r", message.message_id, error)
                immediate_retries += 1
                continue
            await self._act(dispatcher, action, failure)
            return

    async def _attempt(self, dispatcher: Dispatcher, message: Incoming, immediate_retries: int) -> Exception | None:
        """Call the handlers and send their outgoing messages; return the error, or None."""
        context = Context(self._origin, message, immediate_retries)
        try:
            await self._handlers.handle(message, context)
            await dispatcher.dispatch(context.outgoing)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # not this task: something that the handler awaited was cancelled
            cancelled = RuntimeError("something that the handler waited for was cancelled")
            cancelled.__cause__ = error
            return cancelled
        except Exception as error:
            return error
        return None

    async def _act(self, dispatcher: Dispatcher, action: RetryLater | MoveToError | Discard, failure: Failure) -> None:
        message = failure.message
        queue = self._error_queue
        if isinstance(action, Discard):
            log.warning("message %r is dropped: %s", message.message_id, action.reason)
            return
        if isinstance(action, RetryLater):
            try:
                await self._retry_later(dispatcher, action, failure)
                return
            except ValueError as error:  # the delay is longer than the levels allow
                log.error("message %r can't be delayed: %s", message.message_id, error)
        elif action.queue is not None:
            queue = action.queue
        log.error(
            "message %r failed and is moved to the queue %r: %r",
            message.message_id,
            queue,
            failure.exception,
            exc_info=failure.exception,
        )
        await self._put_away(
            dispatcher,
            queue,
            message.body,
            replace(without_failure(message.properties), message_id=message.message_id),
            failure.exception,
            failure.immediate_retries,
            failure.delayed_retries,
        )

    async def _retry_later(self, dispatcher: Dispatcher, action: RetryLater, failure: Failure) -> None:
        message = failure.message
        log.warning("message %r failed, retrying in %s: %r", message.message_id, action.delay, failure.exception)
        counted = {
            headers.DELAYED_RETRIES: str(failure.delayed_retries + 1),
            headers.DELAYED_RETRIES_AT: as_header(now()),
        }
        properties = replace(with_headers(message.properties, counted), message_id=message.message_id)
        await dispatcher.dispatch([Send(self._origin.endpoint, message.body, properties, action.delay)])

    async def _put_away(
        self,
        dispatcher: Dispatcher,
        queue: str,
        body: bytes,
        properties: Properties,
        error: Exception,
        immediate_retries: int,
        delayed_retries: int,
    ) -> None:
        """Send a failed message to an error queue; create the queue if it has been deleted."""
        room = dispatcher.header_max - len(encode_header(properties, 0))
        told = failure_headers(error, self._origin.endpoint, immediate_retries, delayed_retries, room)
        failed = with_headers(properties, told)
        if len(encode_header(failed, 0)) > dispatcher.header_max:
            failed = properties  # its own headers leave no room for the reason, which the log tells
        parcel = Send(queue, body, failed)
        try:
            await dispatcher.dispatch([parcel])
        except (DestinationMissing, ClientError):
            await dispatcher.declare_shared(queue)
            await dispatcher.dispatch([parcel])

    async def _pause(self, wait_s: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), wait_s)
        except TimeoutError:
            pass


def _poisoned(delivery: Delivery) -> Properties:
    """Return the usable properties of a message that cannot be read, with a new message id if it has none."""
    message_id = str(uuid.uuid4())
    named = {headers.MESSAGE_ID: message_id}
    try:
        properties = without_failure(transferable(delivery.properties))
    except Exception:
        return Properties(message_id=message_id, headers={**named}, delivery_mode=2)
    if (properties.message_id or "").strip():
        return properties
    return replace(with_headers(properties, named), message_id=message_id)
