"""A message that waits nowhere shows whether the levels are connected, and goes no further than to its sender."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from leveret.client import Channel, ChannelClosed, Connection, Unroutable
from leveret.delay.layout import Layout

ANSWER_TIMEOUT_S: Final = 10.0


async def disconnected(connection: Connection, layout: Layout) -> list[int]:
    """The levels whose exchange does not pass a 0 on to the next one; -1 where that is the delivery exchange's part.

    A delay of 0 is published to one level exchange after the other, from the lowest up, for a queue of our own: it
    must arrive at once. Above a level where it does not, nothing can be told, so the list ends with it.
    """
    async with await connection.channel() as channel:
        await channel.confirm_select()
        name = f"leveret-delay-probe-{secrets.token_hex(8)}"
        await channel.declare_queue(name, durable=False, exclusive=True, auto_delete=True)
        try:
            await channel.bind_queue(name, layout.delivery_exchange, f"#.{name}")
            key = layout.routing_key(0, name)
            if not await _arrives(channel, layout.delivery_exchange, key, name):
                return [-1]
            for level in range(layout.levels):
                if not await _arrives(channel, layout.level_name(level), key, name):
                    return [level]
            return []
        except ChannelClosed:
            return [-1]  # without its exchanges there is nothing to be connected


async def _arrives(channel: Channel, exchange: str, key: str, queue: str) -> bool:
    try:
        await asyncio.wait_for(channel.publish(b"", exchange, key, mandatory=True), ANSWER_TIMEOUT_S)
    except Unroutable:
        return False
    found = await channel.get(queue, no_ack=True)
    return found is not None and await channel.get(queue, no_ack=True) is None
