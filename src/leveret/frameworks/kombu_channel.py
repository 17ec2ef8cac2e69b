"""A channel of kombu's on the sans-IO core of leveret's client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NoReturn

import amqp
from amqp import spec
from amqp.exceptions import ChannelError, RecoverableConnectionError, error_for_code
from amqp.exceptions import ConsumerCancelled as AmqpConsumerCancelled
from amqp.protocol import queue_declare_ok_t
from kombu.transport import pyamqp
from kombu.transport.base import StdChannel

from leveret.client.protocol import requests
from leveret.client.protocol.channel_core import Answer, ChannelCore
from leveret.client.protocol.errors import ChannelClosed, ClientError, ConsumerCancelled, Unroutable
from leveret.client.protocol.model import Delivery, DeliverySink
from leveret.client.protocol.requests import Arguments, Request
from leveret.client.protocol.waiter import Waiter
from leveret.frameworks.kombu_errors import not_implemented, translated
from leveret.wire import grammar
from leveret.wire.method import Method
from leveret.wire.properties import PROPERTIES, Properties

if TYPE_CHECKING:
    from leveret.frameworks.kombu_connection import KombuConnection

# kombu's names of the properties, in the order of the fields of Properties
NAMES: Final = tuple("application_headers" if name == "headers" else name for name, _ in PROPERTIES)


class KombuChannel(StdChannel):
    """A channel as kombu wants it: the methods and defaults of py-amqp's.

    As there, a channel that the broker has closed because of an error is opened again when the error is raised.
    Delivery tags keep growing then: those of messages received before are not acknowledged, since the broker has
    requeued these messages.

    Attributes:
        connection (KombuConnection | None): None once the channel or the connection is closed.
        channel_id (int): The channel's number.
        events: Callbacks by event: "basic_return" has (error, exchange, routing key, message).
        no_ack_consumers (set[str]): The tags of consumers without acknowledgements.
    """

    Message = pyamqp.Message
    prepare_message = pyamqp.Channel.prepare_message
    prepare_queue_arguments = pyamqp.Channel.prepare_queue_arguments
    message_to_python = pyamqp.Channel.message_to_python

    def __init__(self, connection: KombuConnection) -> None:
        self.connection: KombuConnection | None = connection
        self.events: dict[str, set[Callable[..., None]]] = defaultdict(set)
        self.no_ack_consumers: set[str] = set()  # type: ignore[assignment]
        # by tag: what handles a delivery, and the callback for the broker's cancellation
        self._consumers: dict[str, tuple[Callable[[Delivery], None], Callable[[str], None] | None]] = {}
        self._tags = count(1)
        self._last_tag = 0
        self._failure: ChannelClosed | None = None  # why the broker closed the channel, until that is raised
        self._open(connection)

    def _open(self, connection: KombuConnection) -> None:
        self._failure = None
        with connection.lock:
            self._core: ChannelCore[Waiter[None] | None] = connection.core.open_channel(_settled, self._failed)
            self._core.begin_tags(self._last_tag)
            self._core.on_return = self._arrived(self._returned)
            self.channel_id = self._core.number
            connection.channels[self.channel_id] = self
            opened = self._core.request(requests.open_channel())
            connection.wait(opened)
        opened.result()

    @property
    def is_open(self) -> bool:
        """Whether the channel can be used."""
        return self.connection is not None and self._core.is_open

    def close(self) -> None:
        """Close the channel, and wait for the broker's answer. The broker requeues what is unacknowledged."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        connection.forget(lambda event: event[0] is self)
        connection.channels.pop(self.channel_id, None)
        with connection.lock:
            connection.wait(self._core.close())

    # topology; the broker's refusals are raised as py-amqp's channel errors

    def exchange_declare(
        self,
        exchange: str,
        type: str,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = True,
        nowait: bool = False,
        arguments: Arguments = None,
    ) -> None:
        """Send exchange.declare."""
        self._ask(requests.declare_exchange(exchange, type, durable, auto_delete, False, passive, arguments))

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Send exchange.delete."""
        self._ask(requests.delete_exchange(exchange, if_unused))

    def exchange_bind(
        self,
        destination: str,
        source: str = "",
        routing_key: str = "",
        nowait: bool = False,
        arguments: Arguments = None,
    ) -> None:
        """Send exchange.bind."""
        self._ask(requests.bind_exchange(destination, source, routing_key or "", arguments))

    def exchange_unbind(
        self,
        destination: str,
        source: str = "",
        routing_key: str = "",
        nowait: bool = False,
        arguments: Arguments = None,
    ) -> None:
        """Send exchange.unbind."""
        self._ask(requests.unbind_exchange(destination, source, routing_key or "", arguments))

    def queue_declare(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = True,
        nowait: bool = False,
        arguments: Arguments = None,
    ) -> queue_declare_ok_t:
        """Send queue.declare; return (queue, message_count, consumer_count)."""
        request = requests.declare_queue(queue or "", durable, exclusive, auto_delete, passive, arguments)
        return queue_declare_ok_t(*requests.queue_info(self._ask(request)))

    def queue_bind(
        self, queue: str, exchange: str = "", routing_key: str = "", nowait: bool = False, arguments: Arguments = None
    ) -> None:
        """Send queue.bind."""
        self._ask(requests.bind_queue(queue, exchange, routing_key or "", arguments))

    def queue_unbind(
        self, queue: str, exchange: str, routing_key: str = "", nowait: bool = False, arguments: Arguments = None
    ) -> None:
        """Send queue.unbind."""
        self._ask(requests.unbind_queue(queue, exchange, routing_key or "", arguments))

    def queue_delete(
        self, queue: str = "", if_unused: bool = False, if_empty: bool = False, nowait: bool = False
    ) -> int:
        """Send queue.delete; return the number of messages that were deleted with the queue."""
        return self._ask(requests.delete_queue(queue, if_unused, if_empty)).number("message_count")

    def queue_purge(self, queue: str = "", nowait: bool = False) -> int:
        """Send queue.purge; return the number of messages that were deleted."""
        return self._ask(requests.purge_queue(queue)).number("message_count")

    # publishing

    def basic_publish(
        self,
        msg: amqp.Message,
        exchange: str = "",
        routing_key: str = "",
        mandatory: bool = False,
        immediate: bool = False,
        timeout: float | None = None,
        confirm_timeout: float | None = None,
    ) -> None:
        """Send a message; it is written to the socket on return. With confirm_publish, as basic_publish_confirm().

        Args:
            msg: What prepare_message() returned.
            exchange: Name of the exchange; "" is the default exchange.
            routing_key: At most 255 bytes.
            mandatory: The broker returns the message if no queue takes it: event "basic_return".
            immediate: RabbitMQ and leveret do not support it.
            timeout: Seconds to wait while the broker blocks publishers; None = the message is written all the same.
            confirm_timeout: Seconds to wait for the confirm, instead of `timeout`.
        """
        connection = self._connection()
        if connection.confirm_publish:
            self.basic_publish_confirm(msg, exchange, routing_key, mandatory, immediate, timeout, confirm_timeout)
        else:
            self._publish(connection, None, msg, exchange, routing_key, mandatory, immediate, timeout)

    def basic_publish_confirm(
        self,
        msg: amqp.Message,
        exchange: str = "",
        routing_key: str = "",
        mandatory: bool = False,
        immediate: bool = False,
        timeout: float | None = None,
        confirm_timeout: float | None = None,
    ) -> None:
        """Send a message as basic_publish() does, and wait for the broker's confirm.

        Raises:
            MessageNacked: The broker refused the message.
            ChannelError: 312: no queue takes the mandatory message, and "basic_return" has no callbacks.
            TimeoutError: There was no confirm in time.
        """
        if self._core.confirms is None:
            self.confirm_select()
        connection = self._connection()
        confirmed: Waiter[None] = Waiter()
        self._publish(connection, confirmed, msg, exchange, routing_key, mandatory, immediate, timeout)
        limit_s = confirm_timeout or timeout
        with connection.lock:
            if not connection.wait(confirmed, limit_s):
                raise TimeoutError(f"the broker did not confirm a message within {limit_s:g} s")
        if isinstance(confirmed.error, Unroutable):
            self._returned(confirmed.error)
        elif isinstance(confirmed.error, ClientError):
            self._raise(confirmed.error)

    def confirm_select(self, nowait: bool = False) -> None:
        """Turn confirms on for the channel."""
        self._ask(self._core.confirm_select)

    def _publish(
        self,
        connection: KombuConnection,
        confirmed: Waiter[None] | None,
        msg: amqp.Message,
        exchange: str,
        routing_key: str,
        mandatory: bool,
        immediate: bool,
        timeout_s: float | None,
    ) -> None:
        if immediate:
            raise not_implemented("basic.publish with immediate")
        if timeout_s is not None and connection.core.blocked is not None and not connection.unblocked(timeout_s):
            raise RecoverableConnectionError(f"the broker blocks publishers: {connection.core.blocked}")
        given = msg.properties
        body = msg.body
        if isinstance(body, str):
            body = body.encode(given.setdefault("content_encoding", "utf-8"))
        properties = Properties(*map(given.get, NAMES))
        properties.headers = properties.headers or None
        try:
            with connection.lock:
                self._core.publish(confirmed, body, exchange or "", routing_key or "", properties, bool(mandatory))
                connection.send()
        except ClientError as error:
            self._raise(error)
        connection.check()

    def _returned(self, error: Unroutable) -> None:
        """Handle a returned message: call the callbacks, or raise the error if there are none."""
        told = error_for_code(error.reply_code, error.reply_text, spec.Basic.Return, ChannelError)
        callbacks = self.events.get("basic_return")
        if not callbacks:
            raise told
        message = amqp.Message(error.body, channel=self, **_named(error.properties))
        for callback in callbacks:
            callback(told, error.exchange, error.routing_key, message)

    # transactions

    def tx_select(self) -> None:
        """Make the channel transactional."""
        self._ask(requests.tx_select())

    def tx_commit(self) -> None:
        """Commit the transaction."""
        self._ask(requests.tx_commit())

    def tx_rollback(self) -> None:
        """Roll the transaction back."""
        self._ask(requests.tx_rollback())

    # consuming

    def basic_qos(self, prefetch_size: int, prefetch_count: int, a_global: bool) -> None:
        """Limit the unacknowledged messages of each later consumer, or with a_global of the channel."""
        if prefetch_size:
            raise not_implemented("basic.qos with a prefetch size")
        self._ask(requests.qos(prefetch_count, a_global))

    def flow(self, active: bool) -> None:
        """Do nothing if active: RabbitMQ and leveret always send. They refuse to stop."""
        if not active:
            raise not_implemented("channel.flow that stops deliveries (cancel the consumer instead)")

    def basic_consume(
        self,
        queue: str = "",
        consumer_tag: str = "",
        no_local: bool = False,
        no_ack: bool = False,
        exclusive: bool = False,
        nowait: bool = False,
        callback: Callable[[amqp.Message], None] | None = None,
        arguments: Arguments = None,
        on_cancel: Callable[[str], None] | None = None,
    ) -> str:
        """Start a consumer and return its tag.

        Args:
            queue: Name of the queue.
            consumer_tag: Unique on the channel; "" generates one.
            no_local: RabbitMQ and leveret ignore it.
            no_ack: The broker does not wait for acknowledgements.
            exclusive: The queue may have no other consumer.
            callback: Gets each message, in drain_events() or in the loop of register_with_event_loop().
            arguments: Optional arguments, such as "x-priority".
            on_cancel: Gets the tag when the broker ends the consumer; without it, ConsumerCancelled is raised.
        """
        tag = consumer_tag or f"leveret-{next(self._tags)}"

        def handle(delivery: Delivery) -> None:
            if callback is not None:
                callback(self._message(delivery))

        def deliver(delivery: Delivery) -> None:
            self._last_tag = delivery.delivery_tag
            connection.add_event(self, handle, delivery)

        def ended(error: ClientError) -> None:
            if isinstance(error, ConsumerCancelled):
                connection.add_event(self, self._cancelled, tag)

        connection = self._connection()
        sink = DeliverySink(tag, deliver, ended)
        self._consumers[tag] = handle, on_cancel
        if no_ack:
            self.no_ack_consumers.add(tag)
        try:
            self._ask(lambda: self._core.consume(sink, queue, no_ack, exclusive, arguments))
        except BaseException:
            self._forget_consumer(tag)
            raise
        return tag

    def basic_cancel(self, consumer_tag: str, nowait: bool = False) -> None:
        """Stop a consumer. Its callback gets the messages that have arrived, as with py-amqp."""
        if self.connection is None or consumer_tag not in self._consumers:
            return
        self._ask(lambda: self._core.cancel(consumer_tag))
        handle, _ = self._forget_consumer(consumer_tag)
        for _, _, delivery in self._connection().forget(lambda event: event[1] is handle):
            handle(delivery)

    def _forget_consumer(self, tag: str) -> tuple[Callable[[Delivery], None], Callable[[str], None] | None]:
        self.no_ack_consumers.discard(tag)
        return self._consumers.pop(tag)

    def _cancelled(self, tag: str) -> None:
        """Handle the end of a consumer that the broker has cancelled."""
        if tag not in self._consumers:
            return
        _, on_cancel = self._forget_consumer(tag)
        if on_cancel is None:
            raise AmqpConsumerCancelled(tag, spec.Basic.Cancel)
        on_cancel(tag)

    def basic_get(self, queue: str = "", no_ack: bool = False) -> amqp.Message | None:
        """Fetch a message; None if the queue is empty."""
        delivery = self._ask_for(lambda: self._core.get(queue, no_ack))
        if delivery is None:
            return None
        self._last_tag = delivery.delivery_tag
        return self._message(delivery)

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        """Acknowledge a message, or with multiple all up to it."""
        self._settle(lambda: self._core.ack(delivery_tag, multiple))

    def basic_reject(self, delivery_tag: int, requeue: bool) -> None:
        """Refuse a message; without requeue it is dead-lettered or dropped."""
        self._settle(lambda: self._core.acknowledge(grammar.BASIC_REJECT, delivery_tag, requeue=requeue))

    def basic_recover(self, requeue: bool = False) -> None:
        """Make the broker requeue all unacknowledged messages of the channel."""
        self._ask(requests.recover(requeue))

    def _settle(self, send: Callable[[], object]) -> None:
        connection = self._connection()
        try:
            with connection.lock:
                send()
                connection.send()
        except ClientError as error:
            self._raise(error)
        connection.check()

    def _message(self, delivery: Delivery) -> amqp.Message:
        """Return the message as py-amqp gives it to callbacks: text if its encoding is known."""
        message = amqp.Message(delivery.body, channel=self)
        message.properties = properties = _named(delivery.properties)
        message.delivery_info = {
            "consumer_tag": delivery.consumer_tag,
            "delivery_tag": delivery.delivery_tag,
            "redelivered": delivery.redelivered,
            "exchange": delivery.exchange,
            "routing_key": delivery.routing_key,
        }
        if not delivery.consumer_tag:
            del message.delivery_info["consumer_tag"]
        encoding = properties.get("content_encoding")
        if encoding is not None:
            try:
                message.body = delivery.body.decode(encoding)
            except (LookupError, ValueError):
                pass  # the name of no encoding, such as "binary", or another encoding's bytes
        return message

    # the core

    def _connection(self) -> KombuConnection:
        if self.connection is None:
            raise RecoverableConnectionError("the channel or its connection is closed")
        return self.connection

    def _ask(self, request: Request | Callable[[], Waiter[Answer]]) -> Method:
        send = request if callable(request) else lambda: self._core.request(request)
        answer = self._ask_for(send)
        assert isinstance(answer, Method)
        return answer

    def _ask_for(self, send: Callable[[], Waiter[Any]]) -> Any:
        """Send a request and return its answer; raise the broker's refusal as py-amqp's error."""
        connection = self._connection()
        try:
            with connection.lock:
                waiter = send()
                connection.wait(waiter)
            return waiter.result()
        except ClientError as error:
            self._raise(error)

    def _arrived(self, handle: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a function that makes an event of its argument."""

        def add(value: Any) -> None:
            if self.connection is not None:
                self.connection.add_event(self, handle, value)

        return add

    def _failed(self, error: ClientError) -> None:
        """Note the end of the channel. Called by the core."""
        confirms = self._core.confirms
        for confirmed in list(confirms.outstanding.values()) if confirms is not None else ():
            _settled(confirmed, error)
        if isinstance(error, ChannelClosed) and self.connection is not None:
            self._failure = error
            self.connection.add_event(self, self._raise, error)

    def _raise(self, error: ClientError) -> NoReturn:
        """Raise py-amqp's error in place of this one; open the channel again if this is the reason why it was closed.

        The error is raised once: by the call that failed, or else by drain_events().
        """
        if error is self._failure and self.connection is not None:
            self.connection.forget(lambda event: event[2] is error)
            self.no_ack_consumers.clear()
            self._consumers.clear()
            self._open(self.connection)
        raise translated(error) from error


def _settled(confirmed: Waiter[None] | None, error: Exception | None) -> None:
    if confirmed is None:
        return
    if error is None:
        confirmed.succeed(None)
    else:
        confirmed.fail(error)


def _named(properties: Properties) -> dict[str, Any]:
    """Return the properties that are present, under kombu's names."""
    pairs = zip(NAMES, (getattr(properties, name) for name, _ in PROPERTIES), strict=True)
    return {name: value for name, value in pairs if value is not None}
