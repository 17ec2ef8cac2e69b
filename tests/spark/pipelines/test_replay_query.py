"""Replays by real queries: flights of a lake and of a stream, each once and in order, despite crashes."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from leveret.client import BlockingChannel, BlockingConnection, Delivery, Properties
from leveret.demo.data import Flights, load_flights
from leveret.pipelines import PipelineError
from leveret.pipelines.replays.replay import replay

from . import lakes
from .commands import commands, committed, invoke, run_and_kill, summary

pytestmark = pytest.mark.spark

COUNT = 1800


@pytest.fixture
def topic(channel: BlockingChannel) -> Iterator[str]:
    name = f"replay.{uuid.uuid4().hex[:12]}"
    channel.declare_exchange(name, "topic")
    yield name
    channel.delete_exchange(name)


def publish(channel: BlockingChannel, stream: str, count: int = COUNT) -> Flights:
    """Publish flights with headers that are not text to an exchange that is bound to the stream."""
    flights = load_flights(count, 7)
    for number, (message_id, key, body) in enumerate(zip(flights.ids, flights.keys, flights.bodies, strict=True)):
        headers = {"n": number, "plane": {"late": number % 2 == 0}, "origin": key.split(".")[1]}
        properties = Properties(message_id=message_id, timestamp=1_357_000_000 + number // 10, headers=headers)
        channel.publish(body, "amq.topic", f"{stream}.{key}", properties)
    channel.wait_for_confirms(60)
    return flights


@pytest.fixture
def flights(channel: BlockingChannel, stream: str) -> Flights:
    channel.bind_queue(stream, "amq.topic", f"{stream}.#")
    return publish(channel, stream)


def archived(spark: SparkSession, url: str, stream: str, lake: Path) -> Path:
    """Write what the archive writes of a stream, with files and rows in random order."""
    columns = "body,exchange,routing_key,headers,message_id,timestamp,offset,content_header"
    rows = spark.read.format("leveret").options(url=url, stream=stream, columns=columns).load()
    rows = rows.withColumns(
        {
            "source": F.lit(stream), "broker": F.lit("here"), "archived": F.current_timestamp(),
            "arrived": F.expr("timestamp_seconds(1357000000 + offset div 100)"), "batch": F.lit(0).cast("bigint"),
        }
    )  # fmt: skip
    rows.repartition(3).orderBy(F.rand(3)).write.parquet(str(lake))
    lakes.declare(lake)
    return lake


def taken(channel: BlockingChannel, queue: str) -> list[Delivery]:
    found = []
    while (delivery := channel.get(queue, no_ack=True)) is not None:
        found.append(delivery)
    return found


def by_key(found: list[tuple[str, str]]) -> dict[str, list[str]]:
    keys: dict[str, list[str]] = defaultdict(list)
    for key, message_id in found:
        keys[key].append(message_id)
    return keys


def check(found: list[Delivery], flights: Flights, stream: str, name: str, wanted: list[int]) -> None:
    """Check that each wanted flight occurs once, in order, and unchanged but for the marker."""
    ids = [str(each.properties.message_id) for each in found]
    assert sorted(ids) == sorted(flights.ids[number] for number in wanted)
    original = [(f"{stream}.{flights.keys[number]}", flights.ids[number]) for number in wanted]
    assert by_key([(each.routing_key, each_id) for each, each_id in zip(found, ids, strict=True)]) == by_key(original)
    numbers = {flights.ids[number]: number for number in wanted}
    for each, each_id in zip(found, ids, strict=True):
        number = numbers[each_id]
        assert each.body == flights.bodies[number]
        assert each.properties.headers == {
            "n": number, "plane": {"late": number % 2 == 0}, "origin": flights.keys[number].split(".")[1],
            "x-replayed": name,
        }  # fmt: skip
        assert each.properties.timestamp == 1_357_000_000 + number // 10
        assert each.properties.delivery_mode is None  # no default is added


class TestLeveret:
    @pytest.fixture
    def url(self, broker: str) -> str:
        return broker

    @pytest.mark.needs("minutes")
    def test_a_lake_is_replayed_once_and_in_order_though_the_driver_dies(
        self, spark: SparkSession, url: str, channel: BlockingChannel, stream: str, queue: str, topic: str,
        flights: Flights, tmp_path: Path,
    ) -> None:  # fmt: skip
        channel.bind_queue(queue, topic, "#")
        lake = archived(spark, url, stream, tmp_path / "lake")
        checkpoint = tmp_path / "checkpoint"
        where = "headers['origin'] <> 'EWR' and offset >= 100"
        wanted = [n for n in range(100, COUNT) if not flights.keys[n].startswith("flight.EWR.")]
        words = ["spark", "replay", "--lake", str(lake), "--where", where, "--exchange", topic, "--url", url,
                 "--name", "crashed", "--checkpoint", str(checkpoint)]  # fmt: skip
        told = summary([*words, "--rate", "100", "--dry-run"])
        assert (told["figures"]["messages"], told["is_dry"]) == (len(wanted), True)
        assert told["figures"]["would_take_seconds"] == len(wanted) / 100
        assert not checkpoint.exists()

        run_and_kill([*words, "--rate", "500"], lambda: committed(checkpoint / "query") >= 2, tmp_path / "log")
        before = channel.declare_queue(queue, passive=True).message_count
        assert 0 < before < len(wanted)
        told = summary(words)
        figures = told["figures"]
        assert figures["sent_in_all"] == len(wanted)
        assert figures["left"] == 0
        assert figures["messages"] <= len(wanted) - committed(checkpoint / "query")
        assert figures["delivery"] == "exactly-once"
        assert figures["span_seconds"] == (COUNT - 1) // 100 - 1
        assert sum(row[2] for row in told["tables"][0]["rows"]) <= len(wanted)
        check(taken(channel, queue), flights, stream, "crashed", wanted)

        again = summary(words)
        assert (again["figures"]["messages"], again["figures"]["sent_in_all"]) == (0, len(wanted))
        assert taken(channel, queue) == []
        with pytest.raises(PipelineError, match="belongs to another replay: its where is"):
            replay(spark, topic, name="crashed", checkpoint=checkpoint, lake=str(lake), url=url)

    def test_a_range_of_a_stream(
        self, spark: SparkSession, url: str, channel: BlockingChannel, stream: str, queue: str, topic: str,
        flights: Flights, tmp_path: Path,
    ) -> None:  # fmt: skip
        channel.bind_queue(queue, topic, "#")
        given: dict[str, Any] = {"url": url, "stream": stream, "starting": "50", "ending": "250", "name": "range"}
        done = replay(spark, topic, checkpoint=tmp_path / "a", speed=100, **given)
        assert (done.figures["messages"], done.figures["span_seconds"]) == (200, 19.0)
        check(taken(channel, queue), flights, stream, "range", list(range(50, 250)))
        # to a queue with a given key: CC is not applied, and the marker replaces the old one
        done = replay(
            spark, "", checkpoint=tmp_path / "b", routing_key=queue, marker="origin", where="offset < 52", **given
        )
        found = taken(channel, queue)
        assert [each.properties.headers["origin"] for each in found] == ["range", "range"]  # type: ignore[index]
        none = replay(spark, topic, checkpoint=tmp_path / "c", where="offset < 0", **given)
        assert (none.figures["messages"], none.figures["left"]) == (0, 0)
        with pytest.raises(PipelineError, match=r"--where 'nonsense = 1': .*nonsense"):
            replay(spark, topic, checkpoint=tmp_path / "d", where="nonsense = 1", **given)

    def test_a_lake_without_content_headers(
        self, spark: SparkSession, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
    ) -> None:
        rows = spark.createDataFrame(
            [(bytearray(b"%d" % n), queue, n, {"a": "b", "CC": '["x"]'}, "nobody", f"id-{n}") for n in range(3)],
            "body binary, routing_key string, offset bigint, headers map<string,string>, user_id string, "
            "message_id string",
        )
        rows.write.parquet(str(tmp_path / "lake"))
        lakes.declare(tmp_path / "lake", is_exact=False)
        replay(spark, "", name="plain", checkpoint=tmp_path / "checkpoint", lake=str(tmp_path / "lake"), url=url)
        found = taken(channel, queue)
        assert [(each.body, each.properties.headers) for each in found] == [
            (b"%d" % n, {"a": "b", "x-replayed": "plain"}) for n in range(3)
        ]
        assert [(each.properties.user_id, each.properties.message_id) for each in found] == [
            (None, f"id-{n}") for n in range(3)
        ]
        with pytest.raises(PipelineError, match="no message has its original time"):
            replay(
                spark, "", name="plain", checkpoint=tmp_path / "other", lake=str(tmp_path / "lake"), url=url, speed=1
            )

    def test_the_documented_commands(
        self, spark: SparkSession, url: str, channel: BlockingChannel, queue: str, stream: str, topic: str,
        flights: Flights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        archived(spark, url, stream, tmp_path / "lake")
        channel.bind_queue(queue, topic, "#")
        monkeypatch.setenv("LEVERET_URL", url)
        here = {"/data": str(tmp_path), "flights.again": topic, "flights.past": stream}
        for words in commands("guides/spark/replay.md"):
            assert "replay" in invoke(words, here)
        assert len(taken(channel, queue)) > 0


@pytest.mark.needs("rabbitmq")
def test_rabbitmq_gets_them_at_least_once(
    spark: SparkSession, rabbitmq: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    name = f"replay.{uuid.uuid4().hex[:12]}"
    with BlockingConnection(rabbitmq, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.declare_queue(name)
        rows = spark.range(40).selectExpr("cast(id as string) body", f"'{name}' routing_key", "id offset")
        rows.write.parquet(str(tmp_path / "lake"))
        lakes.declare(tmp_path / "lake", is_exact=False)
        given: dict[str, Any] = {"name": "r", "checkpoint": tmp_path / "checkpoint", "lake": str(tmp_path / "lake")}
        with pytest.raises(PipelineError, match="delivery exactly-once needs leveret as the broker"):
            replay(spark, "", url=rabbitmq, delivery="exactly-once", **given)
        done = replay(spark, "", url=rabbitmq, **given)
        assert done.figures["delivery"] == "at-least-once"
        assert "may arrive twice" in done.notes[0]
        assert [int(each.body) for each in taken(channel, name)] == list(range(40))
        channel.delete_queue(name)
