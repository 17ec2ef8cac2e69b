"""Dead letters by real queries: the report, and that none is lost or duplicated when some are sent back."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from leveret.client import BlockingChannel, BlockingConnection, Delivery, Properties
from leveret.demo.data import load_flights
from leveret.pipelines import PipelineError
from leveret.pipelines.dead.deadletters import deadletters
from leveret.pipelines.dead.letters import OF_DEATHS
from leveret.pipelines.dead.sending import PUT_BACK, home

from ...waiting import until
from ..support import unattended
from . import lakes
from .commands import commands, committed, invoke, run_and_kill, summary

pytestmark = pytest.mark.spark

REASONS = ("rejected", "expired", "maxlen")


class Graves:
    """Queues in which flights are dead-lettered, one for each reason, and the queue that all of them go to."""

    def __init__(self, channel: BlockingChannel) -> None:
        self.channel = channel
        self.dead = f"dead.{uuid.uuid4().hex[:12]}"
        self.queues = {reason: f"{reason}.{uuid.uuid4().hex[:12]}" for reason in REASONS}
        self.ids: dict[str, list[str]] = {}
        channel.declare_queue(self.dead)
        self._declare("rejected")
        self._declare("expired", **{"x-message-ttl": 1})
        self._declare("maxlen", **{"x-max-length": 0})

    def _declare(self, reason: str, **arguments: Any) -> None:
        given = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead, **arguments}
        self.channel.declare_queue(self.queues[reason], arguments=given)

    def fill(self, each: int) -> None:
        flights = load_flights(3 * each, 5)
        for number, (message_id, body) in enumerate(zip(flights.ids, flights.bodies, strict=True)):
            reason = REASONS[number % 3]
            self.ids.setdefault(reason, []).append(message_id)
            headers = {"n": number, "error": f"E{number % 2}", "small": {"deep": [number]}}
            self.channel.publish(
                body, "", self.queues[reason], Properties(message_id=message_id, headers=headers, delivery_mode=2)
            )
        self.channel.wait_for_confirms(60)
        for _ in range(each):
            delivery = self.channel.get(self.queues["rejected"])
            assert delivery is not None
            self.channel.nack(delivery.delivery_tag, requeue=False)
        until(lambda: self.count(self.dead) == 3 * each, "not all are dead")

    def count(self, queue: str) -> int:
        return self.channel.declare_queue(queue, passive=True).message_count

    def revive(self, *reasons: str) -> None:
        """Redeclare queues so that no more messages are dead-lettered."""
        for reason in reasons:
            self.channel.delete_queue(self.queues[reason])
            self.channel.declare_queue(self.queues[reason])

    def taken(self, queue: str) -> list[Delivery]:
        found = []
        while (delivery := self.channel.get(queue, no_ack=True)) is not None:
            found.append(delivery)
        return found

    def close(self) -> None:
        for queue in (self.dead, *self.queues.values()):
            self.channel.delete_queue(queue)


def ids(found: list[Delivery]) -> list[str]:
    return [str(each.properties.message_id) for each in found]


@pytest.fixture
def graves(channel: BlockingChannel) -> Iterator[Graves]:
    made = Graves(channel)
    yield made
    made.close()


class TestLeveret:
    @pytest.fixture
    def url(self, broker: str) -> str:
        return broker

    @pytest.mark.needs("minutes")
    def test_a_selection_is_sent_back_once_though_the_driver_dies(
        self, spark: SparkSession, url: str, graves: Graves, tmp_path: Path
    ) -> None:
        each = 400
        graves.fill(each)
        graves.revive("rejected", "expired")
        graves.channel.delete_queue(graves.queues["maxlen"])
        where = "reason in ('rejected', 'maxlen') and cast(body as string) like '%JFK%'"
        checkpoint = tmp_path / "checkpoint"
        words = ["spark", "deadletters", "--queue", graves.dead, "--url", url, "--where", where, "--send-back",
                 "--checkpoint", str(checkpoint), "--batch", "150"]  # fmt: skip
        run_and_kill(words, lambda: committed(home(checkpoint, graves.dead) / "query") >= 1, tmp_path / "log")
        told = summary(words, exit_code=1)
        back = graves.taken(graves.queues["rejected"])
        flights = load_flights(3 * each, 5)
        bodies = dict(zip(flights.ids, flights.bodies, strict=True))
        wanted = [each_id for each_id in graves.ids["rejected"] if b"JFK" in bodies[each_id]]
        assert ids(back) == wanted
        assert not home(checkpoint, graves.dead).exists()
        unattended(graves.channel, graves.dead)
        stayed = graves.taken(graves.dead)
        assert Counter(ids(stayed)) == Counter(each for each in flights.ids if each not in set(wanted))
        assert told["figures"]["delivery"] == "exactly-once"
        # messages whose queue was deleted cannot be sent back
        assert told["notes"] == [
            f"queue {graves.queues['maxlen']!r} does not exist: its dead letters stay where they are"
        ]
        assert not told["adds_up"]
        numbers = {each_id: number for number, each_id in enumerate(flights.ids)}
        for one in back:  # like new
            n = numbers[ids([one])[0]]
            assert one.properties.headers == {"n": n, "error": f"E{n % 2}", "small": {"deep": [n]}}
            assert one.body == bodies[ids([one])[0]]
        for one in stayed:  # unchanged
            headers = one.properties.headers or {}
            deaths: Any = headers["x-death"]
            assert deaths[0]["queue"] == graves.queues[deaths[0]["reason"]] == headers["x-first-death-queue"]
            assert deaths[0]["count"] == 1
            assert set(headers) - {PUT_BACK} == {"n", "error", "small", *OF_DEATHS}

    def test_what_is_said_of_them(self, spark: SparkSession, url: str, graves: Graves, tmp_path: Path) -> None:
        graves.fill(20)
        told = deadletters(spark, [graves.dead], url=url)
        assert told.figures["messages"] == told.figures["deaths"] == 60
        (table,) = told.tables
        assert table.columns[:5] == ("reason", "queue", "exception", "messages", "deaths")
        assert {row[:5] for row in table.rows} == {(each, graves.queues[each], None, 20, 20) for each in REASONS}
        assert all(row[5] <= row[6] and row[7] in graves.ids[str(row[0])] for row in table.rows)  # type: ignore[operator]
        told = deadletters(spark, [graves.dead], url=url, where="reason = 'expired'", group_by=["exception"],
                           exception_header="error")  # fmt: skip
        assert [row[:2] for row in told.tables[0].rows] == [("E0", 10), ("E1", 10)]
        assert graves.count(graves.dead) == 60
        with pytest.raises(PipelineError, match=r"--where 'nonsense = 1': .*nonsense"):
            deadletters(spark, [graves.dead], url=url, where="nonsense = 1")
        with pytest.raises(PipelineError, match="there is no such column; the columns are source, reason"):
            deadletters(spark, [graves.dead], url=url, group_by=["nonsense"])
        with pytest.raises(PipelineError, match=r"dead letters can't be read: .*no queue"):
            deadletters(spark, ["no.such.queue"], url=url)
        with pytest.raises(PipelineError, match="they can't be sent: 404"):
            deadletters(spark, [graves.dead], url=url, where="true", to_exchange="no.such", checkpoint=tmp_path)

    def test_the_documented_commands(
        self, spark: SparkSession, url: str, graves: Graves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        graves.fill(10)
        graves.revive(*REASONS)
        graves.channel.declare_exchange("attic", "fanout")
        graves.channel.bind_queue(graves.queues["expired"], "attic", "")
        read = spark.read.format("leveret").options(url=url, queue=graves.dead).load()
        read.selectExpr("*", "'dead' as source").write.parquet(str(tmp_path / "lake"))
        lakes.declare(tmp_path / "lake", is_exact=False)
        monkeypatch.setenv("LEVERET_URL", url)
        for words in commands("guides/spark/deadletters.md"):
            unattended(graves.channel, graves.dead)
            assert "dead letters by" in invoke(words, {"/data": str(tmp_path), "flights.dead": graves.dead})
        unattended(graves.channel, graves.dead)
        assert len(graves.taken(graves.queues["rejected"])) == 10
        moved = graves.taken(graves.queues["expired"])
        assert sorted(ids(moved)) == sorted(graves.ids["maxlen"])
        for one in moved:  # requeued by one run, sent by another
            headers = one.properties.headers or {}
            assert "x-death" in headers
            assert PUT_BACK not in headers
        assert sorted(ids(graves.taken(graves.dead))) == sorted(graves.ids["expired"])
        graves.channel.delete_exchange("attic")


@pytest.mark.needs("rabbitmq")
def test_rabbitmq_sends_them_at_least_once(spark: SparkSession, rabbitmq: str, tmp_path: Path) -> None:
    with BlockingConnection(rabbitmq, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        graves = Graves(channel)
        graves.fill(10)
        graves.revive("rejected")
        done = deadletters(
            spark, [graves.dead], url=rabbitmq, where="reason = 'rejected'", send_back=True, checkpoint=tmp_path
        )
        assert {name: done.figures[name] for name in ("messages", "sent", "put_back", "delivery")} == {
            "messages": 10, "sent": 10, "put_back": 20, "delivery": "at-least-once",
        }  # fmt: skip
        assert ids(graves.taken(graves.queues["rejected"])) == graves.ids["rejected"]
        left = deadletters(spark, [graves.dead], url=rabbitmq)
        assert {row[:5] for row in left.tables[0].rows} == {
            (each, graves.queues[each], None, 10, 10) for each in ("expired", "maxlen")
        }
        graves.close()
