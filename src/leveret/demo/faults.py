"""Faults that tests inject into the real messages, to prove that the account finds them."""

from __future__ import annotations

from leveret.client import BlockingChannel, BlockingConnection, Delivery
from leveret.demo.data import Flights
from leveret.demo.errors import DemoError
from leveret.demo.plan import EXCHANGE, DemoPlan
from leveret.demo.topology import STREAM

TIMEOUT_S = 10.0
OFFSET_HEADER = "x-stream-offset"
"""The header that a stream adds to its deliveries, and the argument that says where a consumer begins."""


def disturb_flights(plan: DemoPlan) -> None:
    """Remove a flight from the stream (``lost``), or publish a copy of another one (``duplicated``), as the plan says.

    A stream keeps its messages, so to remove one, the others are published again into a new stream of the same name.

    Raises:
        DemoError: there is no flight in the stream.
    """
    stream, key = next(iter(plan.partitions.items()))
    with BlockingConnection(plan.url, reconnect=False) as connection:
        flights = _kept(connection, stream)
        channel = connection.channel()
        channel.confirm_select()
        if "lost" in plan.faults:
            channel.delete_queue(stream)
            channel.declare_queue(stream, arguments=STREAM)
            channel.bind_queue(stream, EXCHANGE, key)
            del flights[-1]
            _publish(channel, flights)
        if "duplicated" in plan.faults:
            _publish(channel, flights[:1])


def _kept(connection: BlockingConnection, stream: str) -> list[Delivery]:
    """Return all messages of the stream."""
    flights: list[Delivery] = []
    with connection.channel() as channel:
        count = channel.declare_queue(stream, passive=True).message_count
        channel.consume(stream, prefetch_count=max(1, count), arguments={OFFSET_HEADER: "first"})
        while len(flights) < max(1, count):
            found = channel.deliveries(count, TIMEOUT_S)
            if not found:
                raise DemoError(f"stream {stream} did not deliver its flights to inject a fault with")
            flights += found
    return flights


def _publish(channel: BlockingChannel, flights: list[Delivery]) -> None:
    for flight in flights:
        (flight.properties.headers or {}).pop(OFFSET_HEADER, None)
        channel.publish(flight.body, EXCHANGE, flight.routing_key, flight.properties, mandatory=True)
    channel.wait_for_confirms(TIMEOUT_S)


def hasty_notice(plan: DemoPlan, flights: Flights) -> str | None:
    """Return the id of the flight whose notice the job shall send without its delay (``early``), or None.

    It is the longest late flight, so that the effect is largest.
    """
    if "early" not in plan.faults:
        return None
    rows = zip(flights.late, flights.air_min, flights.ids, strict=True)
    is_late, _, flight_id = max(rows, default=(False, 0, ""))
    return flight_id if is_late else None
