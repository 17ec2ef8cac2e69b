"""An airport's publisher: the flights that leave there, to the airport's own broker, whatever happens to it.

When its connection is lost it repeats what was not confirmed, with the same message id: what the broker has and could
not confirm any more is there twice then. ``app_id`` says by which connection a copy went out, so that the account can
tell its repeats from duplicates that anybody else makes. A process of its own.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque

from leveret.client import Channel, ConnectionClosed, Properties, connect
from leveret.demo.data import Flights, load_flights
from leveret.demo.plan import EXCHANGE, Plan
from leveret.demo.role import Reporter, stop_signal, write_records

PACE_S = 8.0
"""Publishing takes at least so long, that there is traffic to cut, however few flights there are."""

WINDOW = 2_000
"""Publishes that are unconfirmed at a time."""

SLICE = 200
"""Publishes between two looks at what was confirmed."""

HELD_BACK = 0.25
"""This share of the flights, the last ones, waits for the word that the airport's outage is over."""

RETRY_S = 0.1
PATIENCE_S = 60.0
"""How long a broker may be gone."""


class Publisher:
    """Publishes flights until each of them is confirmed.

    Args:
        url: of the airport's broker.
        origin: the airport.
        flights: that leave there.
        reporter: to tell how many are confirmed.
        all_clear: the last of them leave when this is set.
        pace_s: publishing takes at least so long.

    Attributes:
        sent: what was published, repeats included: message id and ``app_id`` of each copy.
        confirmed: those of them that were confirmed.
    """

    def __init__(
        self,
        url: str,
        origin: str,
        flights: Flights,
        reporter: Reporter,
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
        """Publishes all.

        Raises:
            leveret.client.ConnectionClosed: the broker stays away for ``PATIENCE_S``.
            leveret.client.Nacked: it refused a flight.
            leveret.client.Unroutable: no link has bound its queue.
        """
        connections = 0
        gone_s: float | None = None
        while self._waiting:
            try:
                async with await connect(self._url) as connection:
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
        """How many more may leave now."""
        everything, left = len(self._flights.ids), len(self._waiting)
        share = min(1.0, (time.monotonic() - self._started_s) / self._pace_s)
        if not self._all_clear.is_set():
            share = min(share, 1 - HELD_BACK)
        return max(0, int(everything * share) - (everything - left))

    def _note(self) -> None:
        """Notes what was confirmed; raises what the oldest of the others failed with."""
        while self._under_way and self._under_way[0][2].done():
            self._under_way[0][2].result()
            flight, app_id, _ = self._under_way.popleft()
            self.confirmed.append((self._flights.ids[flight], app_id))
        self._reporter.progress(len(self.confirmed))

    def _take_back(self) -> None:
        """What is not confirmed waits again, in its old order."""
        again = []
        for flight, app_id, future in self._under_way:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.confirmed.append((self._flights.ids[flight], app_id))
            else:
                again.append(flight)
        self._under_way.clear()
        self._waiting.extendleft(reversed(again))


def main(plan: Plan, origin: str, url: str) -> None:
    """Loads the flights of one airport, publishes them and leaves the ids as records."""
    all_clear = threading.Event()
    stop_signal(all_clear)
    reporter = Reporter()
    publisher = Publisher(url, origin, load_flights(plan.flights, plan.seed).leaving(origin), reporter, all_clear)
    started_s = time.monotonic()
    asyncio.run(publisher.run())
    seconds = time.monotonic() - started_s
    for kind, copies in (("published", publisher.sent), ("confirmed", publisher.confirmed)):
        ids, app_ids = [flight_id for flight_id, _ in copies], [app_id for _, app_id in copies]
        write_records(plan.records / kind / f"{origin}.parquet", id=ids, app_id=app_ids)
    reporter.state(count=len(publisher.confirmed), seconds=seconds)


if __name__ == "__main__":
    main(Plan.from_json(sys.argv[1]), *sys.argv[2:])
