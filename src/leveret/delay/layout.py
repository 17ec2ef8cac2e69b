"""The delay levels: arithmetic, names, routing keys, topology (source: delayed delivery of NServiceBus.RabbitMQ).

A delay of ``n`` units is a binary number with one digit per level. Level L has a topic exchange and a queue of the same
name. The exchange looks at its own digit of the routing key: on ``1`` the message goes to the queue, waits there for
``2**L`` units, and is dead-lettered to the exchange of level L-1; on ``0`` it goes to that exchange at once. Behind
level 0 stands the delivery exchange, where each destination is bound as ``#.<destination>``.

    units 10 = 1010b, four levels:   key 1.0.1.0.dest
    level 03 exchange -1-> queue (8 units) -> level 02 exchange -0-> level 01 exchange -1-> queue (2 units)
    -> level 00 exchange -0-> delivery exchange -> dest
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from leveret.delay import topology
from leveret.delay.topology import Declaration, ExchangeBinding, ExchangeDeclaration, QueueBinding, QueueDeclaration

if TYPE_CHECKING:
    from leveret.client import BlockingChannel, Channel, Properties
    from leveret.wire.table import Value

LEVELS_MAX = 28
"""Levels of the seed's layout; names have two digits and the key must leave room for the destination."""

TTL_MS_MAX = 315_360_000_000
"""RabbitMQ refuses an ``x-message-ttl`` above ten years with 406."""

ROUTING_KEY_BYTES_MAX = 255
"""A routing key is a short string of the protocol."""

_DEATH_HEADERS = ("x-death", "x-first-death-", "x-last-death-")


@dataclass(frozen=True)
class Layout:
    """One set of delay levels in a virtual host.

    ``prefix`` begins every name, so that layouts with other units can live side by side; ``unit_ms`` is the delay of
    level 0 in milliseconds; ``levels`` is the number of binary digits (the longest delay is ``2**levels - 1`` units).
    ``queue_arguments`` are added to those of every level queue, as pairs, for brokers or clients that expect them.

    Raises ``ValueError`` for an empty prefix, a unit or a number of levels out of range.
    """

    prefix: str = "nsb"
    unit_ms: int = 1000
    levels: int = LEVELS_MAX
    queue_arguments: tuple[tuple[str, str | int | bool], ...] = ()

    def __post_init__(self) -> None:
        if not self.prefix:
            raise ValueError("the prefix of a delay layout must not be empty")
        if not 1 <= self.levels <= LEVELS_MAX:
            raise ValueError(f"a delay layout has 1 to {LEVELS_MAX} levels, not {self.levels}")
        if self.unit_ms < 1:
            raise ValueError(f"the unit of a delay layout is at least 1 ms, not {self.unit_ms}")
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
        """The exchange behind the last level, where destinations are bound."""
        return f"{self.prefix}.delay-delivery"

    def level_name(self, level: int) -> str:
        """Name of the exchange and of the queue of ``level`` (0 is the shortest wait)."""
        return f"{self.prefix}.delay-level-{level:02d}"

    def ttl_ms(self, level: int) -> int:
        """How long a message waits in the queue of ``level``, in milliseconds."""
        return self.unit_ms << level

    def units(self, delay: timedelta | float) -> int:
        """The delay (seconds, or a ``timedelta``) in whole units, rounded up: a message is never early.

        A float counts as the decimal number that it prints as, so 4.035 s is 4,035 ms and not one more.
        Raises ``ValueError`` for a delay that is negative, not finite, or longer than :attr:`units_max`.
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
        """``N.N. … .N.<destination>``: one binary digit of ``units`` per level, the highest first.

        Raises ``ValueError`` for an empty destination and for one that makes the key longer than 255 bytes.
        """
        if not destination:
            raise ValueError("a delayed message needs a destination")
        key = ".".join(format(units, f"0{self.levels}b")) + "." + destination
        if len(key.encode()) > ROUTING_KEY_BYTES_MAX:
            raise ValueError(
                f"the destination is too long: {len(destination.encode())} bytes, "
                f"{ROUTING_KEY_BYTES_MAX - 2 * self.levels} are left beside {self.levels} levels"
            )
        return key

    def route(self, delay: timedelta | float, destination: str) -> tuple[str, str]:
        """Exchange and routing key to publish with, so that ``destination`` gets the message after ``delay``.

        The exchange is that of the first level whose digit is 1; with no delay, the delivery exchange.
        Raises ``ValueError`` as :meth:`units` and :meth:`routing_key` do.
        """
        units = self.units(delay)
        exchange = self.level_name(units.bit_length() - 1) if units else self.delivery_exchange
        return exchange, self.routing_key(units, destination)

    def topology(self) -> list[Declaration]:
        """Everything an endpoint or sender declares when it starts, in order; declaring it again changes nothing."""
        declarations: list[Declaration] = []
        for level in reversed(range(self.levels)):
            name = self.level_name(level)
            arguments: dict[str, Value] = dict(self.queue_arguments)
            arguments["x-message-ttl"] = self.ttl_ms(level)
            arguments["x-dead-letter-exchange"] = self._next_exchange(level)
            declarations += [
                ExchangeDeclaration(name),
                QueueDeclaration(name, arguments),
                QueueBinding(name, name, self._binding_key(level, "1")),
            ]
        declarations.append(ExchangeDeclaration(self.delivery_exchange))
        declarations += [
            ExchangeBinding(self._next_exchange(level), self.level_name(level), self._binding_key(level, "0"))
            for level in reversed(range(self.levels))
        ]
        return declarations

    def destination_binding(self, queue: str) -> QueueBinding:
        """The binding that lets ``queue`` receive the delayed messages whose destination is its name."""
        return QueueBinding(queue, self.delivery_exchange, f"#.{queue}")

    async def declare(self, channel: Channel) -> None:
        """Declare the levels on an asyncio channel; ``ChannelClosed`` (406) if they exist with other arguments."""
        await topology.declare(channel, self.topology())

    def declare_blocking(self, channel: BlockingChannel) -> None:
        """Declare the levels on a blocking channel; errors as in :meth:`declare`."""
        topology.declare_blocking(channel, self.topology())

    async def bind_destination(self, channel: Channel, queue: str) -> None:
        """Let ``queue`` receive delayed messages; both it and the levels must exist (404 ``ChannelClosed``)."""
        await topology.declare(channel, [self.destination_binding(queue)])

    def bind_destination_blocking(self, channel: BlockingChannel, queue: str) -> None:
        """Let ``queue`` receive delayed messages; errors as in :meth:`bind_destination`."""
        topology.declare_blocking(channel, [self.destination_binding(queue)])

    def publish(
        self,
        channel: Channel,
        body: bytes,
        destination: str,
        delay: timedelta | float,
        properties: Properties | None = None,
    ) -> asyncio.Future[None]:
        """Publish to the first applicable level without waiting; the future is that of ``channel.publish``.

        Raises ``ValueError`` for a delay or destination out of range, and for properties with an ``expiration``: it
        would end the message inside a level, before it is due.
        """
        exchange, routing_key = self.route(delay, destination)
        sent = self.sendable(properties)
        return channel.publish(body, exchange=exchange, routing_key=routing_key, properties=sent, mandatory=True)

    async def send(
        self,
        channel: Channel,
        body: bytes,
        destination: str,
        delay: timedelta | float,
        properties: Properties | None = None,
    ) -> None:
        """As :meth:`publish`, and wait for the confirm if the channel has confirms on (``Nacked``, ``Unroutable``)."""
        await self.publish(channel, body, destination, delay, properties)

    @staticmethod
    def sendable(properties: Properties | None) -> Properties | None:
        """The properties to publish a delayed message with: without the death history of an earlier delivery.

        A message that is delayed a second time must not carry the first time's ``x-death``: RabbitMQ before 4.0.1 takes
        it for a cycle and drops the message. Raises ``ValueError`` where an ``expiration`` is set.
        """
        if properties is None:
            return None
        if properties.expiration is not None:
            raise ValueError("a delayed message must not have an expiration: it would expire before it is due")
        headers = properties.headers
        if not headers or not any(name.startswith(_DEATH_HEADERS) for name in headers):
            return properties
        kept = {name: value for name, value in headers.items() if not name.startswith(_DEATH_HEADERS)}
        return replace(properties, headers=kept)

    def _next_exchange(self, level: int) -> str:
        return self.level_name(level - 1) if level else self.delivery_exchange

    def _binding_key(self, level: int, digit: str) -> str:
        """The pattern that looks at the digit of ``level``: the higher digits may be anything."""
        return "*." * (self.levels - 1 - level) + digit + ".#"


SECONDS = Layout()
"""Delays in whole seconds, up to 268,435,455 of them (about 8.5 years), under the names of the seed."""

MILLISECONDS = Layout("nsb.ms", unit_ms=1)
"""Delays in milliseconds, up to 268,435,455 of them (about 3.1 days)."""
