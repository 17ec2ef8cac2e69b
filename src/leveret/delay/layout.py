"""The delay levels: arithmetic, names, routing keys, topology (source: delayed delivery of NServiceBus.RabbitMQ).

A delay of ``n`` units is a binary number with one digit per level. Level L has a topic exchange and a queue of the same
name. The exchange's bindings match its own digit of the routing key: on ``1`` the message goes to the queue, waits
there for ``2**L`` units, and is dead-lettered to the exchange of level L-1; on ``0`` it goes to that exchange at once.
After level 0 comes the delivery exchange, to which each destination is bound with ``#.<destination>``.

    units 10 = 1010b, four levels:   key 1.0.1.0.dest
    level 03 exchange -1-> queue (8 units) -> level 02 exchange -0-> level 01 exchange -1-> queue (2 units)
    -> level 00 exchange -0-> delivery exchange -> dest
"""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from leveret.delay import topology
from leveret.delay.instant import remaining
from leveret.delay.message import sendable
from leveret.delay.topology import Declaration, ExchangeBinding, ExchangeDeclaration, QueueBinding, QueueDeclaration

if TYPE_CHECKING:
    from leveret.client import BlockingChannel, Channel
    from leveret.wire.properties import Properties
    from leveret.wire.table import Value

LEVELS_MAX = 28
"""Levels of NServiceBus's layout; names have two digits, and the key must leave room for the destination."""

TTL_MS_MAX = 315_360_000_000
"""Ten years: RabbitMQ refuses a greater ``x-message-ttl`` with 406."""

ROUTING_KEY_BYTES_MAX = 255
"""Maximum size of a routing key, which is a short string in AMQP."""

QueueType = Literal["", "classic", "quorum"]

_QUORUM: tuple[tuple[str, str], ...] = (
    ("x-queue-type", "quorum"),
    ("x-dead-letter-strategy", "at-least-once"),
    ("x-overflow", "reject-publish"),
)


@dataclass(frozen=True)
class Layout:
    """One set of delay levels in a virtual host.

    Attributes:
        prefix: Prefix of the names, so that layouts with different units can coexist.
        unit_ms: Delay of level 0 in milliseconds, at least 1.
        levels: Number of levels (binary digits), 1 to 28; the longest delay is ``2**levels - 1`` units.
        queue_type: Type of the level queues; "" = the broker's default. Quorum queues dead-letter at least once
            (``x-dead-letter-strategy``): they keep messages that no queue takes.
        queue_arguments: Additional arguments of every level queue, as pairs.
        level_names: Pattern of the names of levels.
        delivery_name: Pattern of the name of the delivery exchange.
        starts_at_top: Messages are published to the highest level whatever their delay, as Celery does.
        delay_header: Header for the delay in whole units; "" = none.

    Raises:
        ValueError: The prefix is empty, or the unit, the number of levels or the queue type is not valid.
    """

    prefix: str = "nsb"
    unit_ms: int = 1000
    levels: int = LEVELS_MAX
    queue_type: QueueType = ""
    queue_arguments: tuple[tuple[str, str | int | bool], ...] = ()
    level_names: str = "{prefix}.delay-level-{level:02d}"
    delivery_name: str = "{prefix}.delay-delivery"
    starts_at_top: bool = False
    delay_header: str = ""

    def __post_init__(self) -> None:
        if not self.prefix:
            raise ValueError("the prefix of a delay layout must not be empty")
        if not 1 <= self.levels <= LEVELS_MAX:
            raise ValueError(f"a delay layout has 1 to {LEVELS_MAX} levels, not {self.levels}")
        if self.unit_ms < 1:
            raise ValueError(f"the unit of a delay layout is at least 1 ms, not {self.unit_ms}")
        if self.queue_type not in ("", "classic", "quorum"):
            raise ValueError(f"the queues of a delay layout are classic or quorum, not {self.queue_type}")
        if self.ttl_ms(self.levels - 1) > TTL_MS_MAX:
            raise ValueError(
                f"level {self.levels - 1} of {self.unit_ms} ms units would wait {self.ttl_ms(self.levels - 1)} ms; "
                f"brokers take no more than {TTL_MS_MAX}"
            )

    @property
    def units_max(self) -> int:
        """The longest delay, in units."""
        return (1 << self.levels) - 1

    @property
    def delivery_exchange(self) -> str:
        """Name of the exchange after the last level, to which destinations are bound."""
        return self.delivery_name.format(prefix=self.prefix)

    def level_name(self, level: int) -> str:
        """Return the name of the exchange and the queue of ``level`` (0 is the shortest wait)."""
        return self.level_names.format(prefix=self.prefix, level=level)

    def ttl_ms(self, level: int) -> int:
        """Return how long a message waits in the queue of ``level``, in milliseconds."""
        return self.unit_ms << level

    def units(self, delay: timedelta | float) -> int:
        """Convert a delay (seconds, or a ``timedelta``) to whole units, rounded up, so that no message is early.

        A float is taken as the decimal number that it prints as, so 4.035 s is 4,035 ms, not 4,036.

        Raises:
            ValueError: The delay is negative, not finite, or longer than :attr:`units_max`.
        """
        if isinstance(delay, timedelta):
            unit_us = self.unit_ms * 1000
            units = -(-(delay // timedelta(microseconds=1)) // unit_us)
            negative = delay < timedelta(0)
        else:
            if not math.isfinite(delay):
                raise ValueError(f"a delay must be a finite number of seconds, not {delay}")
            exact = Fraction(int(delay)) if delay == int(delay) else Fraction(repr(float(delay)))
            units = math.ceil(exact * 1000 / self.unit_ms)
            negative = delay < 0
        if negative:
            raise ValueError(f"a delay must not be negative: {delay}")
        if units > self.units_max:
            raise ValueError(
                f"a delay of {delay} is too long: {units} units of {self.unit_ms} ms, at most {self.units_max}"
            )
        return units

    def routing_key(self, units: int, destination: str) -> str:
        """Return ``N.N. … .N.<destination>``: one binary digit of ``units`` per level, the highest first.

        Raises:
            ValueError: The destination is empty, or makes the key longer than 255 bytes.
        """
        if not destination:
            raise ValueError("a delayed message needs a destination")
        key = ".".join(format(units, f"0{self.levels}b")) + "." + destination
        if len(key.encode()) > ROUTING_KEY_BYTES_MAX:
            raise ValueError(
                f"the destination is too long: {len(destination.encode())} bytes, but {self.levels} levels leave only "
                f"{ROUTING_KEY_BYTES_MAX - 2 * self.levels}"
            )
        return key

    def address(self, routing_key: str) -> tuple[int, str] | None:
        """Return the units and the destination of a routing key, None for a key of another form."""
        digits, destination = routing_key[: 2 * self.levels], routing_key[2 * self.levels :]
        if not destination or not re.fullmatch(r"(?:[01]\.)+", digits) or len(digits) != 2 * self.levels:
            return None
        return int(digits.replace(".", ""), 2), destination

    def route(self, delay: timedelta | float, destination: str) -> tuple[str, str]:
        """Return exchange and routing key with which ``destination`` gets a message after ``delay``.

        The exchange is that of the highest level whose digit is 1 (of the highest level with starts_at_top), or the
        delivery exchange for a delay of 0. Raises ``ValueError`` as :meth:`units` and :meth:`routing_key` do.
        """
        units = self.units(delay)
        return self.entrance(units), self.routing_key(units, destination)

    def entrance(self, units: int) -> str:
        """Return the exchange to which a message with this delay is published."""
        if units == 0:
            return self.delivery_exchange
        return self.level_name(self.levels - 1 if self.starts_at_top else units.bit_length() - 1)

    def topology(self) -> list[Declaration]:
        """Return all declarations of the layout, in order. Declaring them again changes nothing."""
        declarations: list[Declaration] = []
        for level in reversed(range(self.levels)):
            name = self.level_name(level)
            declarations += [
                ExchangeDeclaration(name),
                QueueDeclaration(name, self.level_arguments(level)),
                QueueBinding(name, name, self._binding_key(level, "1")),
            ]
        declarations.append(ExchangeDeclaration(self.delivery_exchange))
        declarations += [
            ExchangeBinding(self._next_exchange(level), self.level_name(level), self._binding_key(level, "0"))
            for level in reversed(range(self.levels))
        ]
        return declarations

    def level_arguments(self, level: int) -> dict[str, Value]:
        """Return the arguments of the queue of ``level``."""
        arguments: dict[str, Value] = dict(self.queue_arguments)
        if self.queue_type == "quorum":
            arguments.update(_QUORUM)
        elif self.queue_type:
            arguments["x-queue-type"] = self.queue_type
        arguments["x-message-ttl"] = self.ttl_ms(level)
        arguments["x-dead-letter-exchange"] = self._next_exchange(level)
        return arguments

    def destination_binding(self, queue: str) -> QueueBinding:
        """Return the binding by which ``queue`` receives the delayed messages whose destination is its name."""
        return QueueBinding(queue, self.delivery_exchange, f"#.{queue}")

    async def declare(self, channel: Channel) -> None:
        """Declare the levels on an asyncio channel.

        Raises:
            ChannelClosed: 406 if a queue or exchange exists with other arguments.
        """
        await topology.declare(channel, self.topology())

    def declare_blocking(self, channel: BlockingChannel) -> None:
        """Declare the levels on a blocking channel. Raises the errors of :meth:`declare`."""
        topology.declare_blocking(channel, self.topology())

    async def bind_destination(self, channel: Channel, queue: str) -> None:
        """Bind ``queue`` to the delivery exchange, so that it receives delayed messages.

        Raises:
            ChannelClosed: 404 if the queue or the levels do not exist.
        """
        await topology.declare(channel, [self.destination_binding(queue)])

    def bind_destination_blocking(self, channel: BlockingChannel, queue: str) -> None:
        """Bind ``queue`` to the delivery exchange. Raises the errors of :meth:`bind_destination`."""
        topology.declare_blocking(channel, [self.destination_binding(queue)])

    def message(
        self,
        destination: str,
        delay: timedelta | float | None = None,
        properties: Properties | None = None,
        *,
        at: datetime | None = None,
    ) -> tuple[str, str, Properties]:
        """Return exchange, routing key and properties of a delayed message, to be published with any client.

        Args:
            destination: Name of the destination's queue or endpoint.
            delay: Seconds or a ``timedelta``.
            at: Time with a time zone, in place of delay; a time in the past means no delay.
            properties: Properties of the message, without ``expiration``, with which it could expire inside a level,
                before it is due.

        Raises:
            ValueError: Both or none of delay and at are given, properties have an expiration, or as in :meth:`route`.
            TypeError: The time has no time zone.
        """
        if (delay is None) == (at is None):
            raise ValueError("a delayed message has either a delay or a time (at=)")
        units = self.units(remaining(at) if at is not None else delay or 0)
        key = self.routing_key(units, destination)
        waits = timedelta(milliseconds=units * self.unit_ms)
        return self.entrance(units), key, sendable(properties, self.delay_header, units, waits)

    def publish(
        self,
        channel: Channel,
        body: bytes,
        destination: str,
        delay: timedelta | float | None = None,
        properties: Properties | None = None,
        *,
        at: datetime | None = None,
    ) -> asyncio.Future[None]:
        """Publish a delayed message without waiting. Parameters and errors are those of :meth:`message`.

        Returns:
            The future of ``channel.publish``, with ``mandatory`` set.
        """
        exchange, key, sent = self.message(destination, delay, properties, at=at)
        return channel.publish(body, exchange=exchange, routing_key=key, properties=sent, mandatory=True)

    async def send(
        self,
        channel: Channel,
        body: bytes,
        destination: str,
        delay: timedelta | float | None = None,
        properties: Properties | None = None,
        *,
        at: datetime | None = None,
    ) -> None:
        """Publish a delayed message and wait for its confirm if confirms are on.

        Raises ``Nacked``, ``Unroutable`` and the errors of :meth:`message`.
        """
        await self.publish(channel, body, destination, delay, properties, at=at)

    def publish_blocking(
        self,
        channel: BlockingChannel,
        body: bytes,
        destination: str,
        delay: timedelta | float | None = None,
        properties: Properties | None = None,
        *,
        at: datetime | None = None,
    ) -> None:
        """Publish a delayed message on a blocking channel, with the waits and errors of its ``publish``.

        Other parameters and errors are those of :meth:`message`.
        """
        exchange, key, sent = self.message(destination, delay, properties, at=at)
        channel.publish(body, exchange=exchange, routing_key=key, properties=sent, mandatory=True)

    def _next_exchange(self, level: int) -> str:
        return self.level_name(level - 1) if level else self.delivery_exchange

    def _binding_key(self, level: int, digit: str) -> str:
        """Return the pattern that matches the digit of ``level``; all other digits may have any value."""
        return "*." * (self.levels - 1 - level) + digit + ".#"
