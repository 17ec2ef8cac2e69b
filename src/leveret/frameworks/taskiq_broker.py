"""Taskiq's broker on leveret's client.

Exchanges, queues, bindings, headers and labels are those of taskiq-aio-pika 0.6, so that both can share a broker. Only
delays differ: they use delay levels, which neither need a plugin nor keep a short delay waiting behind a long one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self, TypeVar

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from leveret.client import Channel, ClientError, Connection, Consumer, Delivery, Properties, connect
from leveret.delay import MILLISECONDS, Layout
from leveret.wire.table import Value

__all__ = ["LeveretBroker", "TaskExchange", "TaskQueue"]

Number = TypeVar("Number", int, float)

DELAY_LABEL: Final = "delay"
WAKE_UP_S: Final = 1.0
CANCEL_S: Final = 5.0
"""How long the end of listen() waits for the broker's answer."""


@dataclass(frozen=True)
class TaskExchange:
    """The exchange to which tasks are published.

    Attributes:
        name: Its name.
        type: "topic", "direct", "fanout" or another exchange type.
        declare: Declare the exchange; False only checks that it exists.
        durable: It survives a restart of the broker.
        auto_delete: The broker deletes it when its last binding is removed.
        arguments: Optional arguments of the declaration.
    """

    name: str = "taskiq"
    type: str = "topic"
    declare: bool = True
    durable: bool = True
    auto_delete: bool = False
    arguments: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskQueue:
    """A queue with tasks.

    Attributes:
        name: Its name.
        type: "quorum", "classic" or "stream".
        routing_key: Key of its binding to the exchange; None = its name.
        declare: Declare and bind the queue; False only checks that it exists.
        durable: It survives a restart of the broker.
        exclusive: Only one connection can use it.
        auto_delete: The broker deletes it when its last consumer is gone.
        max_priority: The highest priority of its messages; None = it has no priorities.
        arguments: More arguments of the declaration. They take precedence over those that the broker class sets.
        bind_arguments: Arguments of its binding.
        consumer_arguments: Arguments of its consumers.
    """

    name: str = "taskiq"
    type: str = "quorum"
    routing_key: str | None = None
    declare: bool = True
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    max_priority: int | None = None
    arguments: Mapping[str, Value] = field(default_factory=dict)
    bind_arguments: Mapping[str, Value] = field(default_factory=dict)
    consumer_arguments: Mapping[str, Value] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The routing key of its binding."""
        return self.routing_key or self.name


class LeveretBroker(AsyncBroker):
    """A Taskiq broker on leveret or RabbitMQ::

        broker = LeveretBroker("amqp://guest:guest@localhost:5672/")

        @broker.task(delay=3)
        async def remind(name: str) -> None: ...

    A task is published with confirms, persistent and mandatory, so `kiq()` raises an error if no queue took it. Workers
    acknowledge it when Taskiq says so; tasks of a worker that dies are delivered to another one. Rejected and expired
    messages go to the dead-letter queue.

    Labels with a meaning: ``delay`` in seconds, which may be fractional; the label named by label_for_routing, the
    routing key if there are several queues; the label named by label_for_priority.

    Args:
        url: URL or URLs of the broker, as :func:`leveret.client.connect` takes them.
        qos: Limit of the unacknowledged messages of a worker, for each queue; 0 = no limit.
        exchange: Exchange to which tasks are published.
        task_queues: Queues that receive tasks, and from which workers take them; None = one named "taskiq".
        dead_letter_queue: Queue for messages that task queues reject or that expire in them.
        delay_layout: Delay levels for the label ``delay``; None = no delays. It limits how long a delay can be:
            3.1 days with the default.
        label_for_routing: Name of the label with the routing key.
        label_for_priority: Name of the label with the priority, a whole number.
        connection_options: Options of :func:`leveret.client.connect`, such as heartbeat_s.
    """

    def __init__(
        self,
        url: str = "amqp://guest:guest@localhost:5672/",
        *,
        qos: int = 10,
        exchange: TaskExchange | None = None,
        task_queues: list[TaskQueue] | None = None,
        dead_letter_queue: TaskQueue | None = None,
        delay_layout: Layout | None = MILLISECONDS,
        label_for_routing: str = "queue_name",
        label_for_priority: str = "priority",
        **connection_options: Any,
    ) -> None:
        super().__init__()
        self._url = url
        self._connection_options = connection_options
        self._qos = qos
        self._exchange = exchange or TaskExchange()
        self._task_queues = list(task_queues or ())
        self._dead_letter_queue = dead_letter_queue or TaskQueue("taskiq.dead_letter")
        self._layout = delay_layout
        self._label_for_routing = label_for_routing
        self._label_for_priority = label_for_priority
        self._connections = AsyncExitStack()
        self._publishing: Connection | None = None
        self._reading: Connection | None = None
        self._channel: Channel | None = None
        self._is_opening = asyncio.Lock()
        self._has_levels = False

    def with_queue(self, queue: TaskQueue) -> Self:
        """Add a queue; call it before startup()."""
        self._task_queues.append(queue)
        return self

    def with_queues(self, *queues: TaskQueue) -> Self:
        """Replace all queues by these; call it before startup()."""
        self._task_queues = list(queues)
        return self

    async def startup(self) -> None:
        """Connect, and declare the exchange and the queues.

        Raises:
            ConnectionClosed: The broker cannot be reached, or refuses the connection.
            ChannelClosed: An exchange or a queue exists with other properties (406), or it does not exist and may not
                be declared (404).
        """
        await super().startup()
        if not self._task_queues:
            self._task_queues.append(TaskQueue())
        self._publishing, self._channel = await self._connect(), None
        try:
            await self._publisher()
        except BaseException:
            await self._close()
            raise

    async def shutdown(self) -> None:
        """Close the connections. The broker delivers tasks that are not acknowledged to other workers."""
        await super().shutdown()
        await self._close()

    async def kick(self, message: BrokerMessage) -> None:
        """Publish a task and wait for its confirm.

        Raises:
            RuntimeError: startup() was not called.
            ValueError: A label is not the number that it must be, or the delay is negative or too long.
            Unroutable: No queue takes the task.
            Nacked: The broker refused it.
            ChannelClosed, ConnectionClosed: The channel or the connection was closed before the confirm. If the
                connection was lost, the task waits until it is restored.
        """
        delay = _number(message, DELAY_LABEL, float)
        properties = Properties(
            headers={"task_id": message.task_id, "task_name": message.task_name, **message.labels},
            delivery_mode=2,
            priority=_number(message, self._label_for_priority, int),
        )
        channel = await self._publisher()
        await channel.drain()
        key = self._routing_key(message)
        if delay is None:
            await channel.publish(message.message, self._exchange.name, key, properties, mandatory=True)
        else:
            layout = await self._delay_levels(channel)
            await layout.send(channel, message.message, f"{self._exchange.name}.{key}", delay, properties)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield the tasks of all queues. When the iteration ends, tasks that were not yielded are requeued.

        Raises:
            RuntimeError: startup() was not called.
            ConsumerCancelled, ChannelClosed, ConnectionClosed: A queue was deleted, or the channel or the connection
                was closed. A connection that was lost is restored.
        """
        await self._publisher()
        if self._reading is None or self._reading.is_closed:
            # of its own, because acknowledgements must arrive while the broker blocks publishers
            self._reading = await self._connect()
        connection = self._reading
        channel = await connection.channel()
        await channel.qos(self._qos)
        consumers = [
            await channel.consume(queue.name, arguments=dict(queue.consumer_arguments)) for queue in self._task_queues
        ]
        # A consumer drops what comes again after a reconnect; of what is kept here, there should be little.
        received: asyncio.Queue[Delivery | ClientError] = asyncio.Queue(1)
        pumps = [asyncio.create_task(_pump(consumer, received)) for consumer in consumers]
        waking = asyncio.create_task(_wake_up())
        ended = 0

        async def stop() -> None:
            nonlocal ended
            for consumer in consumers:
                await consumer.cancel()
            while ended < len(pumps):
                one = await received.get()
                if isinstance(one, ClientError):
                    ended += 1
                elif not channel.is_closed:
                    channel.nack(one.delivery_tag)

        try:
            while True:
                one = await received.get()
                if isinstance(one, ClientError):
                    ended += 1
                    raise one
                yield AckableMessage(data=one.body, ack=partial(_acknowledge, channel, one))
        finally:
            waking.cancel()
            try:
                # before Python 3.11.3 asyncio.timeout() raises no TimeoutError in a task that was cancelled
                await asyncio.wait_for(stop(), CANCEL_S if connection.is_connected else 0)
            except TimeoutError:  # the connection is lost, and the broker has requeued everything
                for pump in pumps:
                    pump.cancel()

    async def _connect(self) -> Connection:
        return await self._connections.enter_async_context(await connect(self._url, **self._connection_options))

    async def _close(self) -> None:
        self._publishing = self._reading = self._channel = None
        await self._connections.aclose()

    async def _publisher(self) -> Channel:
        """Return the channel with confirms; open it if the broker closed it, which an exchange's deletion causes."""
        if self._publishing is None:
            raise RuntimeError("this broker is not connected: call `await broker.startup()` first")
        async with self._is_opening:
            if self._channel is None or self._channel.is_closed:
                channel = await self._publishing.channel(confirms=True)
                await self._declare(channel)
                self._channel = channel
                self._has_levels = False
            return self._channel

    async def _delay_levels(self, channel: Channel) -> Layout:
        """Return the layout of the delay levels, which the first delayed task declares."""
        if self._layout is None or self._destination("") is None:
            raise ValueError(
                "this broker cannot delay tasks: it needs a delay_layout, and an exchange of type topic, direct or "
                f"fanout, not {self._exchange.type}"
            )
        async with self._is_opening:
            if not self._has_levels:
                await self._layout.declare(channel)
                self._has_levels = True
        return self._layout

    async def _declare(self, channel: Channel) -> None:
        exchange, dead_letters, layout = self._exchange, self._dead_letter_queue, self._layout
        await channel.declare_exchange(
            exchange.name,
            exchange.type,
            durable=exchange.durable,
            auto_delete=exchange.auto_delete,
            passive=not exchange.declare,
            arguments=dict(exchange.arguments),
        )
        if layout is not None:
            await channel.declare_exchange(layout.delivery_exchange, "topic")
        await _declare_queue(channel, dead_letters, {})
        for queue in self._task_queues:
            await _declare_queue(
                channel, queue, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead_letters.key}
            )
            if queue.declare:
                await channel.bind_queue(queue.name, exchange.name, queue.key, dict(queue.bind_arguments))
            if layout is not None and (destination := self._destination(queue.key)) is not None:
                # exactly as many words as there are levels, so that a pattern matches what it matches in the exchange
                await channel.bind_queue(queue.name, layout.delivery_exchange, "*." * layout.levels + destination)

    def _destination(self, key: str) -> str | None:
        """Return the key that binds a queue for delayed tasks, given its key in the exchange.

        None if the type of the exchange does not support delays.
        """
        name = self._exchange.name
        return {"topic": f"{name}.{key}", "direct": f"{name}.{key}", "fanout": f"{name}.#"}.get(self._exchange.type)

    def _routing_key(self, message: BrokerMessage) -> str:
        if len(self._task_queues) == 1:
            return self._task_queues[0].key
        return str(message.labels.get(self._label_for_routing) or "")


async def _declare_queue(channel: Channel, queue: TaskQueue, arguments: dict[str, Value]) -> None:
    arguments["x-queue-type"] = queue.type
    if queue.max_priority is not None:
        arguments["x-max-priority"] = queue.max_priority
    await channel.declare_queue(
        queue.name,
        durable=queue.durable,
        exclusive=queue.exclusive,
        auto_delete=queue.auto_delete,
        passive=not queue.declare,
        arguments={**arguments, **queue.arguments},
    )


async def _pump(consumer: Consumer, received: asyncio.Queue[Delivery | ClientError]) -> None:
    """Pass on all deliveries, and then the reason why the consumer ended."""
    ended = ClientError("the consumer was cancelled")
    try:
        async for delivery in consumer:
            await received.put(delivery)
    except ClientError as error:
        ended = error
    await received.put(ended)


def _acknowledge(channel: Channel, delivery: Delivery) -> None:
    """Acknowledge; if the connection was lost since the delivery, the broker delivers the task again."""
    channel.ack(delivery.delivery_tag)


async def _wake_up() -> None:
    """Wake the event loop once a second, so that `taskiq worker` stops when it gets a signal.

    Its signal handler sets an asyncio.Event (Taskiq 0.13), which a sleeping event loop does not notice.
    """
    while True:  # noqa: ASYNC110
        await asyncio.sleep(WAKE_UP_S)


def _number(message: BrokerMessage, label: str, convert: Callable[[Any], Number]) -> Number | None:
    value = message.labels.get(label)
    if value is None or value == "None":  # Taskiq sends labels as text
        return None
    try:
        return convert(value)
    except (TypeError, ValueError):
        raise ValueError(f"the label {label!r} of task {message.task_name} must be a number, not {value!r}") from None
