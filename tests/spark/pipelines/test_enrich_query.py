"""Streams enriched by services and other streams: every message once, despite crashes."""

from __future__ import annotations

import json
import runpy
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from leveret.client import BlockingChannel, BlockingConnection, Properties
from leveret.demo.data import _read as read_table
from leveret.demo.data import load_flights, load_planes
from leveret.demo.plan import PLANES_QUEUE
from leveret.demo.roles.lookup import Planes, serve
from leveret.demo.roles.role import ProgressReporter as RoleReporter
from leveret.pipelines import PipelineError, enrich
from leveret.pipelines.enriching.events import Events, Join
from leveret.pipelines.enriching.lookups import Service
from leveret.testing.processes import LeveretProcess

from .commands import commands, committed, invoke, run_and_kill, summary

ROOT = Path(__file__).parents[3]
FLIGHT = "id STRING, carrier STRING, origin STRING, tailnum STRING, arr_delay INT, time_hour STRING"
PLANE = "id STRING, plane STRUCT<seats: INT, model: STRING>"
STREAMS = ("flights", "weather", "flights.enriched")


class Quiet(RoleReporter):
    def state(self, **values: object) -> None: ...

    def progress(self, count: int) -> None: ...


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """The URL of a separate leveret broker, because the streams' names are those of the guide."""
    with LeveretProcess() as process:
        yield process.url


@pytest.fixture
def channel(broker: str) -> Iterator[BlockingChannel]:
    with BlockingConnection(broker, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


@pytest.fixture
def planes(channel: BlockingChannel, broker: str) -> Iterator[None]:
    """The demo's service, and empty streams."""
    for stream in STREAMS:
        channel.declare_queue(stream, durable=True, arguments={"x-queue-type": "stream"})
    channel.declare_queue("failed")
    channel.declare_queue(PLANES_QUEUE)
    stop = threading.Event()
    service = threading.Thread(target=serve, args=(broker, Planes(load_planes()), stop, Quiet()))
    service.start()
    yield
    stop.set()
    service.join()
    for queue in (*STREAMS, "failed", PLANES_QUEUE):
        channel.delete_queue(queue)


def publish(channel: BlockingChannel, queue: str, bodies: dict[str, bytes]) -> None:
    for each, body in bodies.items():
        channel.publish(body, "", queue, Properties(message_id=each, delivery_mode=2))
    channel.wait_for_confirms(60)


def flights_and_weather(channel: BlockingChannel, count: int) -> dict[str, dict[str, Any]]:
    """Publish flights, and the weather of their hours, in order of time; return the flights that have weather."""
    sample = load_flights(count, 5)
    bodies = dict(zip(sample.ids, sample.bodies, strict=True))
    flights = {each: json.loads(body) for each, body in bodies.items()}
    hours = {(flight["origin"], flight["time_hour"]) for flight in flights.values()}
    weather = {}
    for row in read_table("weather").select(["origin", "time_hour", "temp"]).to_pylist():
        time_hour = row["time_hour"].strftime("%Y-%m-%dT%H:%M:%SZ")
        if (row["origin"], time_hour) in hours:
            weather[f"{time_hour}{row['origin']}"] = {**row, "time_hour": time_hour}
    in_order = sorted(bodies, key=lambda each: flights[each]["time_hour"])
    publish(channel, "flights", {each: bodies[each] for each in in_order})
    publish(channel, "weather", {each: json.dumps(weather[each]).encode() for each in sorted(weather)})
    return {
        each: flight | {"temp": weather[key]["temp"]}
        for each, flight in flights.items()
        if (key := f"{flight['time_hour']}{flight['origin']}") in weather
    }


def results(spark: SparkSession, url: str, stream: str = "flights.enriched") -> dict[str, dict[str, Any]]:
    """Return the messages of the stream by message id; each occurs once."""
    rows = spark.read.format("leveret").options(url=url, stream=stream).load().select("message_id", "body").collect()
    assert [each for each, count in Counter(row.message_id for row in rows).items() if count > 1] == []
    return {row.message_id: json.loads(row.body) for row in rows}


@pytest.mark.needs("minutes")
def test_a_killed_query_goes_on_and_nothing_is_lost_or_twice(
    spark: SparkSession, broker: str, channel: BlockingChannel, planes: None, tmp_path: Path
) -> None:
    expected = flights_and_weather(channel, 2000)
    checkpoint = tmp_path / "checkpoint"
    words = [
        "spark", "enrich", "--stream", "flights", "--schema", FLIGHT, "--time", "to_timestamp(flights.time_hour)",
        "--join", "weather", "--join-schema", "origin STRING, time_hour STRING, temp DOUBLE",
        "--join-time", "to_timestamp(weather.time_hour)", "--join-on", "flights.origin = weather.origin",
        "--join-within", "0 hours", "--service", PLANES_QUEUE, "--reply-schema", PLANE,
        "--select", "flights.id, flights.tailnum, weather.temp, reply.plane.seats", "--rows-max", "700",
        "--into", "flights.enriched", "--checkpoint", str(checkpoint), "--url", broker,
    ]  # fmt: skip
    run_and_kill(words, lambda: committed(checkpoint) >= 0, tmp_path / "log")
    found = summary(words)["figures"]
    assert found["rows_read"] > 0
    assert 0 < found["written"] <= len(expected)
    rows = results(spark, broker)
    assert rows.keys() == expected.keys()
    known = load_planes()
    for each, row in rows.items():
        flight = expected[each]
        seats = known.get(flight["tailnum"] or "", {}).get("seats")
        wanted = {"id": each, "tailnum": flight["tailnum"], "temp": flight["temp"], "seats": seats}
        assert row == {name: value for name, value in wanted.items() if value is not None}
    again = summary(words)["figures"]
    assert (again["rows_read"], again["written"]) == (0, 0)


def test_what_fails_goes_to_a_queue_of_its_own_and_the_others_go_on(
    spark: SparkSession, broker: str, channel: BlockingChannel, planes: None, tmp_path: Path
) -> None:
    good = {
        f"g{n}": b'{"id":"g%d","tailnum":"N14228","origin":"EWR","time_hour":"2013-01-01T0%d:00:00Z"}' % (n, n)
        for n in range(5)
    }
    publish(channel, "flights", {**good, "bad": b"no json"})
    publish(channel, "weather", {"w": b'{"origin":"EWR","time_hour":"2013-01-01T03:00:00Z"}'})
    flights = Events("flights", FLIGHT, "to_timestamp(flights.time_hour)", "1 hour")
    weather = Events("weather", "origin STRING, time_hour STRING", "to_timestamp(weather.time_hour)", "1 hour")
    with pytest.raises(PipelineError, match="message bad: the body is not JSON of this schema"):
        enrich(spark, flights, "flights.enriched", url=broker, checkpoint=tmp_path / "strict")
    assert results(spark, broker) == {}
    found = enrich(
        spark, flights, "flights.enriched", url=broker, checkpoint=tmp_path / "tolerant", on_error="column",
        dead_letters="failed", joins=[Join(weather, "flights.origin = weather.origin", "1 hour")],
        service=Service(PLANES_QUEUE, "plane STRUCT<seats: INT>"),
    )  # fmt: skip
    assert not found.adds_up
    assert (found.figures["written"], found.figures["dead_letters"]) == (3, 1)
    rows = results(spark, broker)
    assert rows.keys() == {"g2", "g3", "g4"}
    assert rows["g3"]["reply"] == {"plane": {"seats": 149}}
    assert rows["g3"]["weather"] == {"origin": "EWR", "time_hour": "2013-01-01T03:00:00Z"}
    failed = channel.get("failed", no_ack=True)
    assert failed is not None
    assert (failed.properties.message_id, failed.body) == ("bad", b"no json")
    assert failed.properties.headers == {"x-error": "the body is not JSON of this schema"}
    found = enrich(
        spark, flights, "flights.enriched", url=broker, checkpoint=tmp_path / "unanswered", on_error="column",
        dead_letters="failed", service=Service("nobody", PLANE),
    )  # fmt: skip
    assert (found.figures["written"], found.figures["dead_letters"]) == (0, 6)


def test_the_guide_and_the_example_run_as_they_stand(
    spark: SparkSession, broker: str, channel: BlockingChannel, planes: None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    expected = flights_and_weather(channel, 300)
    example = ROOT / "examples" / "punctuality.py"
    assert len(example.read_text().splitlines()) <= 40
    monkeypatch.setattr(sys, "argv", [str(example), broker, str(tmp_path), PLANES_QUEUE])
    runpy.run_path(str(example))
    rows = spark.read.json(str(tmp_path / "punctuality")).collect()
    flights = [json.loads(body) for body in load_flights(300, 5).bodies]
    count = Counter((flight["carrier"], flight["origin"]) for flight in flights)
    fine = Counter(
        (flight["carrier"], flight["origin"])
        for flight in flights
        if flight["arr_delay"] is not None and flight["arr_delay"] < 15
    )
    assert {(row.carrier, row.origin): row.flights for row in rows} == count
    for row in rows:
        key = (row.carrier, row.origin)
        assert row.punctuality == pytest.approx(fine[key] / count[key], abs=1e-4)
    channel.delete_queue("flights.enriched")
    channel.declare_queue("flights.enriched", durable=True, arguments={"x-queue-type": "stream"})
    lines = commands("guides/spark/enrich.md")
    assert len(lines) >= 2
    for words in lines:
        invoke(words, {"/data": str(tmp_path / "guide"), "amqp://broker": broker.rstrip("/")})
    assert results(spark, broker).keys() == expected.keys()


def test_what_is_wrong_is_told_before_anything_runs(spark: SparkSession, broker: str, tmp_path: Path) -> None:
    flights = Events("flights", FLIGHT)

    def told(events: Events = flights, **options: Any) -> str:
        with pytest.raises(PipelineError) as error:
            enrich(spark, events, "into", url=broker, checkpoint=tmp_path, dry_run=True, **options)
        return str(error.value)

    assert "nothing" in told(select="flights.nothing")
    assert "time of an event" in told(joins=[Join(flights, "true", "1 hour")])
    assert "on_error" in told(on_error="column")
    assert "stream flights" in told(Events("flights", "no such type"))
    assert "wrong" in told(service=Service("planes", PLANE, request="wrong"))
