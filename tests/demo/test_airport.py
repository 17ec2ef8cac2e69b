"""An airport's publisher continues after its broker is killed, and repeats only what was not confirmed."""

import asyncio
import threading
from collections import Counter

import pytest

from leveret.client import BlockingConnection, Unroutable
from leveret.demo.account.crossing import Copies, crossing
from leveret.demo.data import Flights
from leveret.demo.plan import EXCHANGE
from leveret.demo.roles.airport import HELD_BACK, FlightPublisher
from leveret.demo.roles.role import ProgressReporter
from leveret.testing.processes import LeveretProcess

COUNT = 4_000
QUEUE = "upstream"


def flights(count: int = COUNT) -> Flights:
    ids = [f"20130101-UA-{number}-LGA" for number in range(count)]
    return Flights(ids, ["flight.LGA.UA.IAH"] * count, [b"{}"] * count, [False] * count, [0] * count)


class Watched(ProgressReporter):
    """Reports to the test instead of a parent process."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.at: dict[int, asyncio.Event] = {}

    def progress(self, count: int) -> None:
        self.count = count
        for share, event in self.at.items():
            if count >= share:
                event.set()

    async def reaches(self, count: int) -> None:
        if self.count < count:
            await self.at.setdefault(count, asyncio.Event()).wait()


def declare(url: str) -> None:
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_exchange(EXCHANGE)
        channel.declare_queue(QUEUE)
        channel.bind_queue(QUEUE, EXCHANGE, "flight.#")


def taken(url: str) -> list[tuple[str, str]]:
    """Consume everything in the queue; return (message id, app_id)."""
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        count = channel.declare_queue(QUEUE, passive=True).message_count
        channel.consume(QUEUE, no_ack=True)
        found = []
        while len(found) < count:
            found += [(d.properties.message_id or "", d.properties.app_id or "") for d in channel.deliveries(1000)]
        return found


def publisher(url: str, reporter: ProgressReporter, all_clear: threading.Event, pace_s: float = 0.0) -> FlightPublisher:
    return FlightPublisher(url, "LGA", flights(), reporter, all_clear, pace_s or 1e-9)


async def test_each_flight_is_confirmed_once_when_the_broker_is_killed_and_comes_back() -> None:
    all_clear, reporter = threading.Event(), Watched()
    with LeveretProcess() as broker:
        declare(broker.url)
        sender = publisher(broker.url, reporter, all_clear, pace_s=3.0)
        running = asyncio.ensure_future(sender.run())
        await reporter.reaches(COUNT // 3)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        all_clear.set()
        await running
        came = taken(broker.url)
    assert sorted(flight_id for flight_id, _ in sender.confirmed) == sorted(flights().ids)
    assert {app_id for _, app_id in sender.sent} == {"LGA-1", "LGA-2"}
    found = crossing(Copies(sender.sent, sender.confirmed, came), flights().ids)
    assert (found.lost, found.duplicated, found.unexpected) == ((), (), ())
    # only messages without a confirm on the first connection are repeated
    again = [flight_id for flight_id, times in Counter(flight_id for flight_id, _ in sender.sent).items() if times > 1]
    assert not {(flight_id, "LGA-1") for flight_id in again} & set(sender.confirmed)
    assert set(found.repeated) <= set(again)


async def test_the_last_flights_wait_for_the_all_clear(broker: str) -> None:
    declare(broker)
    all_clear, reporter = threading.Event(), Watched()
    sender = publisher(broker, reporter, all_clear)
    running = asyncio.ensure_future(sender.run())
    held = int(COUNT * HELD_BACK)
    await reporter.reaches(COUNT - held)
    assert len(sender.sent) == COUNT - held
    assert not running.done()
    all_clear.set()
    await running
    assert [flight_id for flight_id, _ in taken(broker)] == flights().ids
    remove(broker)


async def test_an_exchange_that_no_link_has_bound_is_an_error(broker: str) -> None:
    with BlockingConnection(broker, reconnect=False) as connection:
        connection.channel().declare_exchange(EXCHANGE)
    all_clear = threading.Event()
    all_clear.set()
    with pytest.raises(Unroutable, match="NO_ROUTE"):
        await publisher(broker, Watched(), all_clear).run()
    remove(broker)


def remove(url: str) -> None:
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.delete_queue(QUEUE)
        channel.delete_exchange(EXCHANGE)
