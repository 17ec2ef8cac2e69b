"""Shared by the tests of delays on live brokers: a ledger of sent and received messages."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from leveret.client import Channel, Connection, Delivery, Properties
from leveret.delay import Layout

ANSWER_S = 60.0


@dataclass
class Ledger:
    """Sent and received messages.

    Attributes:
        due: Message id -> earliest permitted time of arrival.
        arrived: Message ids in order of arrival.
    """

    due: dict[str, float] = field(default_factory=dict)
    arrived: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)

    async def send(self, channel: Channel, layout: Layout, destination: str, delay_s: float) -> str:
        """Send a message with a unique id, confirmed; return the id."""
        name = f"{destination}-{len(self.due)}"
        self.due[name] = time.time() + delay_s
        await layout.send(channel, name.encode(), destination, delay_s, Properties(message_id=name))
        return name

    def note(self, delivery: Delivery) -> None:
        """Note an arrived message."""
        now = time.time()
        name = str(delivery.properties.message_id)
        assert delivery.body.decode() == name
        self.arrived.append(name)
        if now < self.due[name]:
            self.early.append(name)

    async def collect(self, connection: Connection, queue: str) -> None:
        """Consume until each message has arrived at least once."""
        channel = await connection.channel()
        consumer = await channel.consume(queue)
        async with asyncio.timeout(ANSWER_S):
            while set(self.arrived) != set(self.due):
                try:
                    delivery = await asyncio.wait_for(anext(consumer), 0.1)
                except TimeoutError:
                    continue  # the others may have arrived elsewhere
                self.note(delivery)
                channel.ack(delivery.delivery_tag)
        await channel.close()


def utc(seconds: float) -> datetime:
    """Return a POSIX time as a datetime in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


async def remove(connection: Connection, *layouts: Layout) -> None:
    """Remove layouts, so that the next test starts without."""
    channel = await connection.channel()
    for layout in layouts:
        for level in range(layout.levels):
            await channel.delete_queue(layout.level_name(level))
            await channel.delete_exchange(layout.level_name(level))
        await channel.delete_exchange(layout.delivery_exchange)
    await channel.close()


async def counts(connection: Connection, layout: Layout) -> dict[int, int]:
    """Return level -> waiting messages, for levels that are not empty."""
    channel = await connection.channel()
    found = {
        level: (await channel.declare_queue(layout.level_name(level), passive=True)).message_count
        for level in range(layout.levels)
    }
    await channel.close()
    return {level: count for level, count in found.items() if count}
