"""Faults that tests inject into the real messages, to prove that the account finds them."""

from __future__ import annotations

from leveret.client import BlockingChannel, BlockingConnection, Delivery
from leveret.demo.data import Flights
from leveret.demo.errors import DemoError
from leveret.demo.plan import EXCHANGE, FLIGHTS_QUEUE, DemoPlan

CONFIRM_TIMEOUT_S = 10.0
OFFSET_HEADER = "x-stream-offset"
"""The header that a stream adds to its deliveries."""


def disturb_flights(plan: DemoPlan) -> None:
    """Remove one flight from the queue (``lost``), or publish one twice (``duplicated``), as the plan says.

    Messages can't be removed from a stream: there, a copy of an existing flight is added.

    Raises:
        DemoError: there is no flight in the queue.
    """
    with BlockingConnection(plan.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        if "lost" in plan.faults:
            _take(channel)
        if "duplicated" in plan.faults:
            flight = _copied(connection, plan) if plan.cluster else _take(channel)
            for _ in range(1 if plan.cluster else 2):
                channel.publish(flight.body, EXCHANGE, flight.routing_key, flight.properties, mandatory=True)
            channel.wait_for_confirms(CONFIRM_TIMEOUT_S)


def _take(channel: BlockingChannel) -> Delivery:
    flight = channel.get(FLIGHTS_QUEUE, no_ack=True)
    if flight is None:
        raise DemoError("no flight in the queue to inject a fault with")
    return flight


def _copied(connection: BlockingConnection, plan: DemoPlan) -> Delivery:
    """Return a copy of the first flight of one of the streams."""
    with connection.channel() as channel:
        for stream in plan.partitions:
            channel.consume(stream, prefetch_count=1, arguments={"x-stream-offset": "first"})
        found = channel.deliveries(1, CONFIRM_TIMEOUT_S)
    if not found:
        raise DemoError("no flight in the streams to inject a fault with")
    (found[0].properties.headers or {}).pop(OFFSET_HEADER, None)
    return found[0]


def hasty_notice(plan: DemoPlan, flights: Flights) -> str | None:
    """Return the id of the flight whose notice the job shall send without its delay (``early``), or None.

    It is the longest late flight, so that the effect is largest.
    """
    if "early" not in plan.faults:
        return None
    rows = zip(flights.late, flights.air_min, flights.ids, strict=True)
    is_late, _, flight_id = max(rows, default=(False, 0, ""))
    return flight_id if is_late else None
