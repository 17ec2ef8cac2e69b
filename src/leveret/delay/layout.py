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
"""Levels of the seed's layout; names have two digits and the key must leave room for the destination."""

TTL_MS_MAX = 315_360_000_000
"""RabbitMQ refuses an ``x-message-ttl`` above ten years with 406."""

ROUTING_KEY_BYTES_MAX = 255
"""A routing key is a short string of the protocol."""

QueueType = Literal["", "classic", "quorum"]

_QUORUM: tuple[tuple[str, str], ...] = (
    ("x-queue-type", "quorum"),
    ("x-dead-letter-strategy", "at-least-once"),
    ("x-overflow", "reject-publish"),
)


@dataclass(frozen=True)
class Layout:
    """One set of delay levels in a virtual host.

    prefix: what the names begin with, so that layouts with other units can live side by side. unit_ms: the delay of
    level 0 in milliseconds. levels: how many binary digits; the longest delay is ``2**levels - 1`` units.
    queue_type: that of the level queues, "" = the broker's default; quorum ones keep what nobody takes, as
    ``x-dead-letter-strategy`` says. queue_arguments: more arguments for every level queue, as pairs.
    level_names, delivery_name: patterns of the names. starts_at_top: messages are published to the highest level
    whatever their delay, as Celery does. delay_header: where the delay is told, in whole units, "" = nowhere.

    Raises ``ValueError`` for an empty prefix, a unit or a number of levels out of range.
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
        """The exchange behind the last level, where destinations are bound."""
        return self.delivery_name.format(prefix=self.prefix)

    def level_name(self, level: int) -> str:
        """Name of the exchange and of the queue of ``level`` (0 is the shortest wait)."""
        return self.level_names.format(prefix=self.prefix, level=level)

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
                f"the destination is too long: {len(destination.encode())} bytes, but {self.levels} levels leave only "
                f"{ROUTING_KEY_BYTES_MAX - 2 * self.levels}"
            )
        return key

    def address(self, routing_key: str) -> tuple[int, str] | None:
        """Units and destination of a routing key, the reverse of :meth:`routing_key`; None for any other text."""
        digits, destination = routing_key[: 2 * self.levels], routing_key[2 * self.levels :]
        if not destination or not re.fullmatch(r"(?:[01]\.)+", digits) or len(digits) != 2 * self.levels:
            return None
        return int(digits.replace(".", ""), 2), destination

    def route(self, delay: timedelta | float, destination: str) -> tuple[str, str]:
        """Exchange and routing key to publish with, so that ``destination`` gets the message after ``delay``.

        The exchange is that of the first level whose digit is 1; with no delay, the delivery exchange.
        Raises ``ValueError`` as :meth:`units` and :meth:`routing_key` do.
        """
        units = self.units(delay)
        return self.entrance(units), self.routing_key(units, destination)

    def entrance(self, units: int) -> str:
        """The exchange that a message with this delay is published to."""
        if units == 0:
            return self.delivery_exchange
        return self.level_name(self.levels - 1 if self.starts_at_top else units.bit_length() - 1)

    def topology(self) -> list[Declaration]:
        """Everything an endpoint or sender declares when it starts, in order; declaring it again changes nothing."""
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
        """The arguments of the queue of ``level``."""
        arguments: dict[str, Value] = dict(self.queue_arguments)
        if self.queue_type == "quorum":
            arguments.update(_QUORUM)
        elif self.queue_type:
            arguments["x-queue-type"] = self.queue_type
        arguments["x-message-ttl"] = self.ttl_ms(level)
        arguments["x-dead-letter-exchange"] = self._next_exchange(level)
        return arguments

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

    def message(
        self,
        destination: str,
        delay: timedelta | float | None = None,
        properties: Properties | None = None,
        *,
        at: datetime | None = None,
    ) -> tuple[str, str, Properties]:
        """Exchange, routing key and properties of a delayed message, to be published with any client.

        delay: seconds or a ``timedelta``; at: an aware time instead, no delay where it is past. ``ValueError`` for both
        or neither, as in :meth:`route`, and for properties with an ``expiration``: it would end the message inside a
        level, before it is due. ``TypeError`` for a time without a zone.
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
        """Publish without waiting; the future is that of ``channel.publish``. Errors as in :meth:`message`."""
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
        """As :meth:`publish`, and wait for the confirm if the channel has confirms on (``Nacked``, ``Unroutable``)."""
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
        """The same on a blocking channel, with what its ``publish`` does about confirms."""
        exchange, key, sent = self.message(destination, delay, properties, at=at)
        channel.publish(body, exchange=exchange, routing_key=key, properties=sent, mandatory=True)

    def _next_exchange(self, level: int) -> str:
        return self.level_name(level - 1) if level else self.delivery_exchange

    def _binding_key(self, level: int, digit: str) -> str:
        """The pattern that looks at the digit of ``level``: the higher digits may be anything."""
        return "*." * (self.levels - 1 - level) + digit + ".#"
