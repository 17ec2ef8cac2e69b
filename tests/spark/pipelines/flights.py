"""Real messages: flights of 2013, as the demo sends them."""

from __future__ import annotations

from leveret.client import BlockingChannel, Properties
from leveret.demo.data import Flights, load_flights


def publish(
    channel: BlockingChannel, count: int, exchange: str = "", queue: str | None = None, seed: int = 0
) -> Flights:
    """Publish a sample, persistent and confirmed: to an exchange with the flights' own keys, or to one queue.

    The channel is in confirm mode.
    """
    flights = load_flights(count, seed)
    for message_id, key, body in zip(flights.ids, flights.keys, flights.bodies, strict=True):
        properties = Properties(
            message_id=message_id,
            delivery_mode=2,
            content_type="application/json",
            headers={"origin": key.split(".")[1]},
        )
        channel.publish(body, exchange, queue if queue is not None else key, properties=properties)
    channel.wait_for_confirms(60)
    return flights
