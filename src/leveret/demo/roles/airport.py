"""An airport's publisher: sends the flights that leave there to the airport's own broker. A process of its own.

When the connection is lost, it republishes unconfirmed messages with the same message id, so the broker may get some
twice. ``app_id`` names the connection of each copy, so that the account can tell these repeats from other duplicates.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque

from leveret.client import Channel, ConnectionClosed, Properties, connect
from leveret.demo.data import Flights, load_flights
from leveret.demo.plan import EXCHANGE, DemoPlan
from leveret.demo.roles.role import ProgressReporter, stop_signal, write_records

PACE_S = 8.0
"""Publishing takes at least this long, so that there is traffic to interrupt even with few flights."""

WINDOW = 2_000
"""The most unconfirmed publishes at a time."""

SLICE = 200
"""How many publishes between two checks for confirms."""

HELD_BACK = 0.25
"""The share of the flights, at the end, that is sent only after the airport's outage."""

RETRY_S = 0.1
PATIENCE_S = 60.0
"""How long a broker may be unreachable."""


class FlightPublisher:
    """A publisher that repeats flights until all of them are confirmed.

    Args:
        url: URL of the airport's broker.
        origin: the airport.
        flights: the flights to publish.
        reporter: reports how many are confirmed.
        all_clear: when set, the last flights may be sent.
        pace_s: the least duration of publishing.

    Attributes:
        sent: message id and ``app_id`` of each published copy, repeats included.
        confirmed: the copies that were confirmed.
    """

    def __init__(
        self,
        url: str,
        origin: str,
        flights: Flights,
        reporter: ProgressReporter,
        all_clear: threading.Event,
        pace_s: float = PACE_S,
    ) -> None:
        self.sent: list[tuple[str, str]] = []
        self.confirmed: list[tuple[str, str]] = []
        self._url = url
        self._origin = origin
        self._flights = flights
        self._reporter = reporter
        self._all_clear = all_clear
        self._pace_s = pace_s
        self._waiting = deque(range(len(flights.ids)))
        self._under_way: deque[tuple[int, str, asyncio.Future[None]]] = deque()
        self._started_s = time.monotonic()

    async def run(self) -> None:
        """Publish all flights.

        Raises:
            leveret.client.ConnectionClosed: the broker is unreachable for ``PATIENCE_S``.
            leveret.client.Nacked: the broker refused a flight.
            leveret.client.Unroutable: no link has bound its queue.
        """
        connections = 0
        gone_s: float | None = None
        while self._waiting:
            try:
                async with await connect(self._url, reconnect=False) as connection:
                    connections, gone_s = connections + 1, None
                    channel = await connection.channel()
                    await channel.confirm_select()
                    await self._publish(channel, f"{self._origin}-{connections}")
            except (ConnectionClosed, OSError):
                gone_s = gone_s or time.monotonic()
                if time.monotonic() - gone_s > PATIENCE_S:
                    raise
                await asyncio.sleep(RETRY_S)
            finally:
                self._take_back()

    async def _publish(self, channel: Channel, app_id: str) -> None:
        while self._waiting or self._under_way:
            for _ in range(min(SLICE, WINDOW - len(self._under_way), self._allowed())):
                flight = self._waiting.popleft()
                flight_id = self._flights.ids[flight]
                properties = Properties(
                    content_type="application/json", delivery_mode=2, message_id=flight_id, app_id=app_id
                )
                body, key = self._flights.bodies[flight], self._flights.keys[flight]
                try:
                    future = channel.publish(body, EXCHANGE, key, properties, mandatory=True)
                except BaseException:
                    self._waiting.appendleft(flight)
                    raise
                self._under_way.append((flight, app_id, future))
                self.sent.append((flight_id, app_id))
            await channel.drain()
            if self._under_way:
                await asyncio.wait((self._under_way[0][2],), timeout=RETRY_S)
            else:
                await asyncio.sleep(RETRY_S)
            self._note()

    def _allowed(self) -> int:
        """Return how many more flights may be published now."""
        everything, left = len(self._flights.ids), len(self._waiting)
        share = min(1.0, (time.monotonic() - self._started_s) / self._pace_s)
        if not self._all_clear.is_set():
            share = min(share, 1 - HELD_BACK)
        return max(0, int(everything * share) - (everything - left))

    def _note(self) -> None:
        """Record confirmed publishes; raise the error of the oldest pending one, if it failed."""
        while self._under_way and self._under_way[0][2].done():
            self._under_way[0][2].result()
            flight, app_id, _ = self._under_way.popleft()
            self.confirmed.append((self._flights.ids[flight], app_id))
        self._reporter.progress(len(self.confirmed))

    def _take_back(self) -> None:
        """Put unconfirmed flights back, in their old order."""
        again = []
        for flight, app_id, future in self._under_way:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.confirmed.append((self._flights.ids[flight], app_id))
            else:
                again.append(flight)
        self._under_way.clear()
        self._waiting.extendleft(reversed(again))


def main(plan: DemoPlan, origin: str, url: str) -> None:
    """Load the flights of one airport, publish them, and write the message ids as records."""
    all_clear = threading.Event()
    stop_signal(all_clear)
    reporter = ProgressReporter()
    publisher = FlightPublisher(url, origin, load_flights(plan.flights, plan.seed).leaving(origin), reporter, all_clear)
    started_s = time.monotonic()
    asyncio.run(publisher.run())
    seconds = time.monotonic() - started_s
    for kind, copies in (("published", publisher.sent), ("confirmed", publisher.confirmed)):
        ids, app_ids = [flight_id for flight_id, _ in copies], [app_id for _, app_id in copies]
        write_records(plan.records / kind / f"{origin}.parquet", id=ids, app_id=app_ids)
    reporter.state(count=len(publisher.confirmed), seconds=seconds)


if __name__ == "__main__":
    main(DemoPlan.from_json(sys.argv[1]), *sys.argv[2:])
