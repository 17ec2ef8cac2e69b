"""An audit of three running brokers: flights over two links, one upstream killed in the middle, deliberate faults."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leveret.client import BlockingChannel, BlockingConnection, ClientError, Properties
from leveret.delay.named import MILLISECONDS
from leveret.demo.data import Flights, load_flights
from leveret.demo.federation import Headquarters
from leveret.demo.plan import EXCHANGE
from leveret.pipelines import audit
from leveret.pipelines.audits.recording import record
from leveret.testing.processes import LeveretProcess

from ...conformance.test_firehose import traced_rabbitmq
from ...waiting import until
from ..service import Service
from .commands import commands, invoke, run_and_kill, summary

COUNT = 1500
DELAYED, ASKED, SPOILT = 20, 20, 12
TRACED = ["--trace", "/"]


@dataclass
class Expected:
    """Expected ids, by the fate of their messages."""

    flights: dict[str, set[str]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    twice: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    delayed: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    early: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class House:
    brokers: dict[str, LeveretProcess]
    expected: Expected

    def urls(self) -> dict[str, str]:
        """Return the URLs of the guide and those that replace them."""
        return {f"amqp://guest:guest@{name.lower()}/": broker.url for name, broker in self.brokers.items()}


RECORD, AUDIT = commands("guides/spark/audit.md")


def send(channel: BlockingChannel, ids: list[str], queue: str) -> set[str]:
    for message_id in ids:
        channel.publish(message_id.encode(), "", queue, Properties(message_id=message_id, delivery_mode=2))
    channel.wait_for_confirms(30)
    return set(ids)


def ids(what: str, count: int = SPOILT) -> list[str]:
    return [f"{what}-{number}" for number in range(count)]


def fly(broker: LeveretProcess, flights: Flights, is_killed: bool) -> None:
    """Publish flights, confirmed. If the broker is killed, unconfirmed flights are published again."""
    left = list(zip(flights.ids, flights.keys, flights.bodies, strict=True))
    half = len(left) // 2
    while left:
        confirmed = 0
        try:
            with BlockingConnection(broker.url, reconnect=False) as connection:
                channel = connection.channel()
                channel.confirm_select()
                for number, (message_id, key, body) in enumerate(left, 1):
                    channel.publish(body, EXCHANGE, key, Properties(message_id=message_id, delivery_mode=2))
                    if number % 50 == 0:
                        channel.wait_for_confirms(30)
                        confirmed = number
                    if is_killed and number == half + 20:  # twenty are in flight
                        channel.flush()
                        is_killed = False
                        broker.kill()
                channel.wait_for_confirms(30)
                return
        except (ClientError, OSError):
            broker.start()
            left = left[confirmed:]


def work(hq: LeveretProcess, upstreams: dict[str, LeveretProcess], expected: Expected) -> None:
    flights = load_flights(COUNT)
    with BlockingConnection(hq.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for queue in ("spoilt", "gate", "desk", "notices"):
            channel.declare_queue(queue)
        MILLISECONDS.declare_blocking(channel)
        MILLISECONDS.bind_destination_blocking(channel, "notices")
        # delayed messages and requests
        for message_id in ids("delayed", DELAYED):
            MILLISECONDS.publish_blocking(channel, b"", "notices", 0.2, Properties(message_id=message_id))
        expected.delayed = set(ids("delayed", DELAYED))
        with Service(hq.url) as service, connection.rpc() as rpc:
            for message_id in ids("asked", ASKED):
                rpc.call(b"ask", "", service.queue, Properties(message_id=message_id))
        expected.asked = set(ids("asked", ASKED))
        # lost, duplicated and waiting messages
        expected.lost = send(channel, ids("purged"), "spoilt")
        assert channel.purge_queue("spoilt") == SPOILT
        send(channel, ids("spared"), "spoilt")
        expected.twice = send(channel, ids("twice"), "gate")
        send(channel, ids("twice"), "gate")
        expected.waiting = send(channel, ids("waiting"), "desk")
        # flights
        for airport, broker in upstreams.items():
            leaving = flights.leaving(airport)
            expected.flights[airport] = set(leaving.ids)
            fly(broker, leaving, is_killed=airport == "JFK")
        wanted = sum(map(len, expected.flights.values()))
        seen = [take(channel, queue, count) for queue, count in
                (("arrivals", wanted), ("notices", DELAYED), ("spoilt", SPOILT), ("gate", 2 * SPOILT))]  # fmt: skip
        assert len(set(seen[0])) == wanted


def take(channel: BlockingChannel, queue: str, count: int) -> list[str | None]:
    """Consume until `count` messages have arrived; return their ids."""
    tag = channel.consume(queue, prefetch_count=500)
    found: list[str | None] = []
    deadline_s = time.monotonic() + 60
    while len(found) < count:
        for delivery in channel.deliveries(500, 1.0):
            channel.ack(delivery.delivery_tag)
            found.append(delivery.properties.message_id)
        assert time.monotonic() < deadline_s, f"{queue} has {len(found)} of {count}"
    channel.cancel(tag)
    return found


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """Three brokers, after publishing everything."""
    expected = Expected()
    with ExitStack() as parts:
        names = ("hq", "EWR", "JFK")
        brokers = {name: parts.enter_context(LeveretProcess(arguments=TRACED)) for name in names}
        upstreams = {name: brokers[name] for name in names[1:]}
        said = invoke(RECORD, House(brokers, expected).urls())
        assert said.count("records its firehose into stream 'audit'") == 3
        with BlockingConnection(brokers["hq"].url, reconnect=False) as connection:
            channel = connection.channel()
            channel.declare_exchange(EXCHANGE, "topic")
            channel.declare_queue("arrivals")
            channel.bind_queue("arrivals", EXCHANGE, "#")
        operator = Headquarters(brokers["hq"].data_dir)
        parts.callback(operator.close)
        operator.federate({name: broker.url for name, broker in upstreams.items()})
        until(lambda: len(operator.links()) == 2 and all(link.is_up for link in operator.links().values()))
        work(brokers["hq"], upstreams, expected)
        yield House(brokers, expected)


def drafts(table: Path) -> list[Path]:
    return list(table.parent.glob(f".{table.name}.*.draft"))


@pytest.mark.needs("minutes")
def test_it_finds_what_was_done_and_nothing_else_also_after_a_crash(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    table, expected = tmp_path / "audit", house.expected
    replaced = {**house.urls(), "/data/audit": str(table)}
    words = [next((word.replace(old, new) for old, new in replaced.items() if old in word), word) for word in AUDIT]
    quick = ["wholeStage=false", "factoryMode=NO_CODEGEN"]
    run_and_kill(
        [*words, *(f"--conf=spark.sql.codegen.{one}" for one in quick)], lambda: bool(drafts(table)), tmp_path / "log"
    )
    assert not table.exists()
    said = summary(words, exit_code=1)
    assert "purged-0" in (tmp_path / "audit.html").read_text()
    assert drafts(table) == []
    rows = spark.read.parquet(str(table)).collect()

    def having(column: str) -> set[str]:
        return {row.message_id for row in rows if row[column]}

    assert having("lost") == expected.lost
    assert having("duplicated") == expected.twice
    assert {row.message_id for row in rows if (row.lateness_ms or 0) < 0} == set()
    assert {row.message_id for row in rows if not row.recorded} == set()
    states = {row.message_id for row in rows for place in row.places if place.state == "waiting"}
    assert states == expected.waiting
    for airport, flights in expected.flights.items():
        leaving = [row for row in rows if row.broker == airport]
        assert sorted(row.message_id for row in leaving) == sorted(flights)
        # messages in a link when JFK was killed were delivered to it once more
        assert {hop.broker for row in leaving for hop in row.hops} == {"hq"}
        assert all(len(row.hops) == 1 for row in leaving) or airport == "JFK"
        # the killed broker had no time to record its last confirms
        assert {row.confirmed for row in leaving} <= ({True} if airport == "EWR" else {True, None})
        assert {delivery.queue for row in leaving for delivery in row.deliveries} == {"arrivals"}
    delayed = [row for row in rows if row.message_id in expected.delayed]
    assert {row.delay_ms for row in delayed} == {200}
    assert {row.message_id for row in rows if row.reply_ms is not None} >= expected.asked
    assert len(rows) == sum(map(len, expected.flights.values())) + DELAYED + ASKED + 4 * SPOILT
    figures = said["figures"]
    assert (figures["lost"], figures["duplicated"], figures["early"]) == (SPOILT, SPOILT, 0)


@pytest.mark.needs("rabbitmq")
def test_a_firehose_of_rabbitmq(spark: SparkSession) -> None:
    """Recorded in the same way as leveret's, but without times and confirms."""
    with traced_rabbitmq() as url, BlockingConnection(url, reconnect=False) as connection:
        record(url)
        channel = connection.channel()
        channel.confirm_select()
        for queue in ("spoilt", "gate", "desk"):
            channel.declare_queue(queue)
        lost = send(channel, ids("purged"), "spoilt")
        channel.purge_queue("spoilt")
        send(channel, ids("fine"), "gate")
        twice = send(channel, ids("twice"), "gate")
        send(channel, ids("twice"), "gate")
        send(channel, ids("waiting"), "desk")
        take(channel, "gate", 3 * SPOILT)
        until(lambda: channel.declare_queue("audit", passive=True).message_count == 8 * SPOILT)
        found = audit(spark, {"rabbit": url}, brokers={"rabbit": url})
    figures = found.figures
    assert (figures["lost"], figures["duplicated"], figures["published"]) == (SPOILT, SPOILT, 4 * SPOILT)
    findings = found.tables[1].rows
    assert {row[1] for row in findings if row[0] == "lost"} == lost
    assert {row[1] for row in findings if row[0] == "twice"} == twice
    assert any("has no times" in note for note in found.notes)
