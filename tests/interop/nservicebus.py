"""An endpoint of NServiceBus.RabbitMQ as seen on the wire, with pika: it shares no code with leveret's delay levels.

Names, arguments, the order of declarations and headers are those of the transport's sources, versions 6 (v1) and 7 to
11 (v2), as is the way in which its command line moves delayed messages from one to the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

DELAY_HEADER: Final = "NServiceBus.Transport.RabbitMQ.DelayInSeconds"
TIME_SENT: Final = "NServiceBus.TimeSent"
TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S:%f Z"
STRIPPED: Final = (DELAY_HEADER, "x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason")
POISON_QUEUE: Final = "delays-migrate-poison-messages"
LEVELS: Final = range(27, -1, -1)
PREFIXES: Final = {1: "nsb.", 2: "nsb.v2."}


@dataclass
class Message:
    """A message that a handler gets.

    Attributes:
        headers: As the application sees them.
        raw: As received.
    """

    body: bytes
    headers: dict[str, Any]
    raw: dict[str, Any]
    exchange: str
    routing_key: str


@dataclass
class Infrastructure:
    """The delay infrastructure of a version, 1 or 2."""

    version: int
    prefix: str = field(init=False)
    delivery: str = field(init=False)

    def __post_init__(self) -> None:
        self.prefix = PREFIXES[self.version]
        self.delivery = f"{self.prefix}delay-delivery"

    def level(self, number: int) -> str:
        return f"{self.prefix}delay-level-{number:02}"

    def arguments(self, number: int) -> dict[str, Any]:
        own = (
            {"x-queue-mode": "lazy"}
            if self.version == 1
            else {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
        )
        target = self.level(number - 1) if number > 0 else self.delivery
        return own | {"x-message-ttl": 2**number * 1000, "x-dead-letter-exchange": target}

    def build(self, channel: BlockingChannel) -> None:
        key = "1.#"
        for number in LEVELS:
            name = self.level(number)
            channel.exchange_declare(name, "topic", durable=True)
            channel.queue_declare(name, durable=True, arguments=self.arguments(number))
            channel.queue_bind(name, name, key)
            key = "*." + key
        key = "0.#"
        for number in LEVELS[:-1]:
            channel.exchange_bind(self.level(number - 1), self.level(number), key)
            key = "*." + key
        channel.exchange_declare(self.delivery, "topic", durable=True)
        channel.exchange_bind(self.delivery, self.level(0), key)

    def tear_down(self, channel: BlockingChannel) -> None:
        channel.exchange_delete(self.delivery)
        for number in LEVELS:
            channel.queue_delete(self.level(number))
            channel.exchange_delete(self.level(number))

    def route(self, seconds: int, address: str) -> tuple[str, str]:
        """Return exchange and key; a delay of 0 starts at level 0."""
        key, start = "", 0
        for number in LEVELS:
            bit = seconds >> number & 1
            start = start or (number if bit else 0)
            key += f"{bit}."
        return self.level(start), key + address


class Endpoint:
    """A sender and receiver."""

    def __init__(self, channel: BlockingChannel, name: str, version: int, conventional: bool = True) -> None:
        self.channel = channel
        self.name = name
        self.delays = Infrastructure(version)
        self.conventional = conventional  # it has an exchange of its name; otherwise messages go to its queue directly
        self.arguments = {"x-queue-type": "quorum"} if version == 2 else {}

    def start(self) -> None:
        """Declare everything, as at every start of an endpoint."""
        self.channel.confirm_delivery()
        self.channel.queue_declare(self.name, durable=True, arguments=self.arguments)
        if self.conventional:
            self.channel.exchange_declare(self.name, "fanout", durable=True)
            self.channel.queue_bind(self.name, self.name, "")
        self.delays.build(self.channel)
        self.bind(self.name)

    def bind(self, address: str) -> None:
        """Let an endpoint receive delayed messages; raises ChannelClosedByBroker (404) if it does not exist."""
        if self.conventional:
            self.channel.exchange_bind(address, self.delays.delivery, f"#.{address}")
        else:
            self.channel.queue_bind(address, self.delays.delivery, f"#.{address}")

    def send(self, body: bytes, address: str, delay: float, headers: dict[str, Any] | None = None) -> None:
        """Bind the destination, publish with these additional headers, and wait for the confirm."""
        seconds = math.ceil(delay)
        assert 0 <= seconds < 2**28
        self.bind(address)
        exchange, key = self.delays.route(seconds, address)
        sent = datetime.now(UTC).strftime(TIME_FORMAT)
        given = {"NServiceBus.MessageId": "m", TIME_SENT: sent, DELAY_HEADER: seconds, **(headers or {})}
        self.publish(exchange, key, body, BasicProperties(headers=given, delivery_mode=2, message_id="m"))

    def publish(
        self, exchange: str, key: str, body: bytes, properties: BasicProperties, mandatory: bool = True
    ) -> None:
        self.channel.basic_publish(exchange, key, body, properties, mandatory=mandatory)

    def receive(self, timeout_s: float = 30.0) -> Message:
        """Return the next message, acknowledged; raise TimeoutError if none arrives."""
        for method, properties, body in self.channel.consume(self.name, inactivity_timeout=timeout_s):
            if method is None:
                break
            self.channel.basic_ack(method.delivery_tag)
            self.channel.cancel()
            raw = dict(properties.headers or {})
            kept = {name: value for name, value in raw.items() if name not in STRIPPED}
            return Message(body, kept, raw, method.exchange, method.routing_key)
        raise TimeoutError(f"{self.name}: nothing came")

    def remove(self) -> None:
        """Delete the endpoint and the infrastructure."""
        self.delays.tear_down(self.channel)
        self.channel.queue_delete(self.name)
        if self.conventional:
            self.channel.exchange_delete(self.name)


@dataclass
class Migration:
    """Does what ``delays migrate`` does: moves every level of v1, from the highest, to v2.

    Attributes:
        moved: How many messages were moved.
        poisonous: How many could not be moved.
    """

    channel: BlockingChannel
    bind: Callable[[str], None]
    moved: int = 0
    poisonous: int = 0

    def run(self) -> None:
        self.channel.confirm_delivery()
        bound: set[str] = set()
        for number in LEVELS:
            name = Infrastructure(1).level(number)
            count = self.channel.queue_declare(name, passive=True).method.message_count
            for _ in range(count):
                method, properties, body = self.channel.basic_get(name)
                if method is None:
                    break
                headers = dict(properties.headers or {})
                if {DELAY_HEADER, TIME_SENT} <= headers.keys():
                    self._move(method.routing_key, headers, properties, body, bound)
                else:
                    self.channel.queue_declare(POISON_QUEUE, durable=True)
                    self.channel.basic_publish("", POISON_QUEUE, body, properties)
                    self.poisonous += 1
                self.channel.basic_ack(method.delivery_tag)

    def _move(
        self, key: str, headers: dict[str, Any], properties: BasicProperties, body: bytes, bound: set[str]
    ) -> None:
        due = datetime.strptime(headers[TIME_SENT], TIME_FORMAT).replace(tzinfo=UTC)
        due += timedelta(seconds=headers[DELAY_HEADER])
        remaining = max(round((due - datetime.now(UTC)).total_seconds()), 0)
        address = key[56:]
        if address not in bound:
            self.bind(address)
            bound.add(address)
        properties.headers = {name: value for name, value in headers.items() if not re.match("x-(first-)?death", name)}
        exchange, key = Infrastructure(2).route(remaining, address)
        self.channel.basic_publish(exchange, key, body, properties)
        self.moved += 1


def refused(channel: BlockingChannel, call: Callable[[], object]) -> tuple[int, str]:
    """Return the code and text with which the broker closes the channel on a call."""
    try:
        call()
    except ChannelClosedByBroker as error:
        return error.reply_code, error.reply_text
    raise AssertionError("it was done")
