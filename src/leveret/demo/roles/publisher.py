"""The publisher: sends every flight as a persistent message, with asynchronous confirms. A process of its own."""

from __future__ import annotations

import sys
import time

from leveret.client import BlockingConnection, Properties
from leveret.demo.data import Flights, load_flights
from leveret.demo.plan import EXCHANGE, DemoPlan
from leveret.demo.roles.role import ProgressReporter, stop_signal, write_records

RUN = 10_000
"""Messages between two waits for all outstanding confirms."""

CONFIRM_TIMEOUT_S = 30.0


def publish(url: str, flights: Flights, reporter: ProgressReporter) -> int:
    """Publish all flights. Return how many were confirmed, which is all of them.

    Raises:
        leveret.client.Nacked: the broker refused a message.
        leveret.client.Unroutable: no queue is bound for a flight.
    """
    confirmed = 0
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.confirm_window = 2_000
        for start in range(0, len(flights.ids), RUN):
            run = slice(start, start + RUN)
            for flight_id, key, body in zip(flights.ids[run], flights.keys[run], flights.bodies[run], strict=True):
                properties = Properties(content_type="application/json", delivery_mode=2, message_id=flight_id)
                channel.publish(body, EXCHANGE, key, properties, mandatory=True)
            channel.wait_for_confirms(CONFIRM_TIMEOUT_S)
            confirmed = min(start + RUN, len(flights.ids))
            reporter.progress(confirmed)
    return confirmed


def main(plan: DemoPlan) -> None:
    """Load the flights, publish them, and write the ids as records."""
    stop_signal()
    reporter = ProgressReporter()
    flights = load_flights(plan.flights, plan.seed)
    started_s = time.monotonic()
    confirmed = publish(plan.url, flights, reporter)
    seconds = time.monotonic() - started_s
    write_records(plan.records / "published.parquet", id=flights.ids)
    write_records(plan.records / "confirmed.parquet", id=flights.ids[:confirmed])
    reporter.state(count=confirmed, seconds=seconds)


if __name__ == "__main__":
    main(DemoPlan.from_json(sys.argv[1]))
