"""Probes the bindings between levels with a message of delay 0, which only its sender receives."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from leveret.client import Channel, ChannelClosed, Connection, Unroutable
from leveret.delay.layout import Layout

ANSWER_TIMEOUT_S: Final = 10.0


async def disconnected(connection: Connection, layout: Layout) -> list[int]:
    """Return the lowest level whose exchange does not route a 0 to the next one, -1 for the delivery exchange.

    A message with delay 0 is published to each level's exchange, from the lowest up, for a temporary queue: it must
    arrive at once. Levels above one where it does not arrive cannot be checked, so the list has at most one item.
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
            return [-1]  # an exchange does not exist


async def _arrives(channel: Channel, exchange: str, key: str, queue: str) -> bool:
    try:
        await asyncio.wait_for(channel.publish(b"", exchange, key, mandatory=True), ANSWER_TIMEOUT_S)
    except Unroutable:
        return False
    found = await channel.get(queue, no_ack=True)
    return found is not None and await channel.get(queue, no_ack=True) is None
