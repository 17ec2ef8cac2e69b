"""What an audit reports of messages: each definition by events made by hand, in the form of leveret and of RabbitMQ."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from leveret.pipelines import PipelineError, Summary, audit

from .firehose import BEGAN, Firehose

LINK = "federation: flights -> node-hq"
OVER_LINK = (("node-ewr", "flights"),)
REQUEST = {"reply_to": "amq.rabbitmq.reply-to.x", "correlation_id": "7"}


def digits(units: int, destination: str) -> str:
    return ".".join(format(units, "028b")) + "." + destination


def level_deaths(key: str, exchange: str) -> dict[str, Any]:
    return {
        "x-death": [{"queue": exchange, "exchange": exchange, "routing-keys": [key], "count": 1, "reason": "expired"}]
    }


def delayed(
    hq: Firehose, message_id: str, units: int, after_ms: float | None, exchange: str = "nsb.ms.delay-level-10"
) -> None:
    """Publish a message for the queue "notices", and its delivery `after_ms` later."""
    key = digits(units, "notices")
    hq.publish(message_id, exchange, key, (exchange,), ms=100)
    if after_ms is not None:
        hq.deliver(message_id, "notices", exchange, key, ms=100 + after_ms, headers=level_deaths(key, exchange))


def scenario() -> tuple[Firehose, Firehose]:
    """Return events of messages that are named after their fate."""
    ewr, hq = Firehose("ewr"), Firehose("hq")
    # in one queue
    hq.publish("fine")
    hq.deliver("fine")
    hq.publish("lost")
    hq.publish("refused", confirmed=False)
    hq.publish("unasked", confirmed=None)
    hq.publish("unanswered", confirmed=None, publish_seq_no="1000")
    hq.publish("expired", properties={"expiration": "50"})
    hq.publish("provisional", is_provisional="true")
    hq.publish("nowhere", "amq.topic", "k", ())
    hq.publish("half", "amq.fanout", "k", ("a", "b"))
    hq.deliver("half", "a", "amq.fanout", "k")
    hq.publish("dead")
    history = {"x-death": [{"queue": "q", "exchange": "", "routing-keys": ["q"], "count": 1, "reason": "rejected"}]}
    hq.deliver("dead", "dead-letters", "dlx", "q", headers=history)
    # more than once
    hq.publish("twice")
    hq.publish("twice")
    hq.deliver("twice")
    hq.deliver("twice")
    hq.publish("repeated", connection="before")
    hq.publish("repeated", connection="after")
    hq.deliver("repeated")
    hq.deliver("repeated")
    hq.publish("again")
    hq.deliver("again")
    hq.deliver("again", redelivered=True)
    hq.publish("retried")
    hq.deliver("retried")
    hq.deliver("retried", exchange="dlx", headers=history)
    # one id, two messages
    hq.publish("shared", "amq.topic", "k", ("a",))
    hq.deliver("shared", "a", "amq.topic", "k")
    hq.publish("shared", "", "b", ("b",))
    # streams
    hq.publish("in-stream", "", "s", ("s",), routed_streams='["s"]')
    hq.publish("read-twice", "", "s", ("s",), routed_streams='["s"]')
    for _ in range(2):
        hq.deliver("read-twice", "s", "", "s", headers={"x-stream-offset": 1})
    hq.publish("stored-twice", "", "s", ("s",), routed_streams='["s"]')
    for offset in (2, 3):
        hq.deliver("stored-twice", "s", "", "s", headers={"x-stream-offset": offset})
    hq.publish("in-lake", "", "archived", ("archived",), routed_streams='["archived"]')
    hq.publish("not-in-lake", "", "archived", ("archived",), routed_streams='["archived"]')
    # delays
    delayed(hq, "in-time", 1500, 1503)
    delayed(hq, "early", 1500, 1499.5)
    delayed(hq, "seconds", 2, 2001, "nsb.v2.delay-level-01")
    delayed(hq, "own-unit", 2, 22, "mine.delay-level-01")
    delayed(hq, "overdue", 1500, None)
    delayed(hq, "not-yet-due", 100_000_000, None)
    hq.publish("scheduled", "later", "k", (), ms=0, headers={"x-delay": 300})
    hq.deliver("scheduled", "a", "later", "k", ms=310, headers={"x-delay": -300})
    hq.publish("never-came-out", "later", "k", (), headers={"x-delay": 300})
    # requests
    hq.publish("asked", "", "rpc", ("rpc",), ms=10, properties=REQUEST)
    hq.deliver("asked", "rpc", "", "rpc", properties=REQUEST)
    hq.publish(None, "", REQUEST["reply_to"], (REQUEST["reply_to"],), ms=12.5, properties={"correlation_id": "7"})
    unnamed = {**REQUEST, "correlation_id": "8"}
    hq.publish(None, "", "rpc", ("rpc",), ms=10, properties=unnamed)
    hq.deliver(None, "rpc", "", "rpc", properties=unnamed)
    # over the link
    for name in ("crossed", "lost-behind", "crossed-twice"):
        ewr.publish(name, "flights", "k", (LINK,))
        ewr.deliver(name, LINK, "flights", "k")
        hq.publish(name, "flights", "k", ("in",), ms=5, hops=OVER_LINK, connection="link")
        if name != "lost-behind":
            hq.deliver(name, "in", "flights", "k", ms=6, hops=OVER_LINK)
    hq.publish("crossed-twice", "flights", "k", ("in",), ms=5, hops=OVER_LINK, connection="link")
    hq.deliver("crossed-twice", "in", "flights", "k", ms=6, hops=OVER_LINK)
    ewr.publish("lost-on-the-way", "flights", "k", (LINK,))
    ewr.deliver("lost-on-the-way", LINK, "flights", "k")
    hq.publish("unrecorded", "flights", "k", ("in",), ms=5, hops=OVER_LINK, connection="link")
    hq.deliver("unrecorded", "in", "flights", "k", ms=6, hops=OVER_LINK)
    # waiting messages: the newest two of three
    for name in ("gone", "waits", "waits-too"):
        hq.publish(name, "", "desk", ("desk",))
    hq.publish("the end", "amq.topic", "k", (), ms=200_000)
    return ewr, hq


LOST = {
    "lost": ["hq: q"],
    "unasked": ["hq: q"],
    "unanswered": ["hq: q"],
    "half": ["hq: b"],
    "shared": ["hq: b"],
    "not-in-lake": ["hq: archived"],
    "overdue": ["hq: notices"],
    "never-came-out": ["hq: a"],
    "lost-behind": ["hq: in"],
    "lost-on-the-way": ["ewr: federation: flights -> hq"],
    "gone": ["hq: desk"],
}
TWICE = {
    "twice": ["hq: q"],
    "stored-twice": ["hq: s"],
    "crossed-twice": ["ewr: federation: flights -> hq", "hq: in"],
}


def lake(spark: SparkSession) -> DataFrame:
    rows = [("in-lake", "archived", 0, "", "archived", BEGAN, {"n": "1"})]
    columns = "message_id STRING, source STRING, offset BIGINT, exchange STRING, routing_key STRING, arrived TIMESTAMP"
    return spark.createDataFrame(rows, f"{columns}, headers MAP<STRING, STRING>")


@pytest.fixture(scope="module")
def audited(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, list[Row], Path]:
    directory = tmp_path_factory.mktemp("audit")
    ewr, hq = scenario()
    summary = audit(
        spark, {"ewr": ewr.frame(spark), "hq": hq.frame(spark)}, lakes={"hq": lake(spark)}, waiting={("hq", "desk"): 2},
        delay_units_ms={"mine": 10}, table=str(directory / "table"), report=str(directory / "report.html"),
    )  # fmt: skip
    return summary, spark.read.parquet(str(directory / "table")).collect(), directory


Audited = tuple[Summary, list[Row], Path]


def of(audited: Audited, message_id: str) -> Row:
    (row,) = [row for row in audited[1] if row.message_id == message_id]
    return row


def test_what_is_lost_and_where(audited: Audited) -> None:
    assert {row.message_id: row.lost_in for row in audited[1] if row.lost} == LOST
    assert audited[0].figures["lost"] == len(LOST)
    assert not audited[0].adds_up


def test_what_came_twice_and_where(audited: Audited) -> None:
    assert {row.message_id: sorted(row.duplicated_in) for row in audited[1] if row.duplicated} == TWICE


def test_repeats_of_a_publisher_are_no_duplicates(audited: Audited) -> None:
    assert {row.message_id for row in audited[1] if row.copies > 1} == {"repeated"}
    assert of(audited, "repeated").publishes == 2
    assert of(audited, "twice").publishes == 2


def test_every_other_state_has_its_name(audited: Audited) -> None:
    states = {row.message_id: [one.state for one in row.places] for row in audited[1]}
    expected = {
        "fine": "delivered", "refused": "unconfirmed", "provisional": "unconfirmed", "expired": "expired",
        "in-stream": "in stream", "in-lake": "delivered", "not-yet-due": "open", "waits": "waiting",
        "waits-too": "waiting", "again": "delivered",
    }  # fmt: skip
    assert {name: states[name] for name in expected} == {name: [state] for name, state in expected.items()}
    assert sorted(states["dead"]) == ["dead-lettered", "delivered"]
    assert states["nowhere"] == []


def test_confirms_are_known_where_they_were_asked_for(audited: Audited) -> None:
    assert of(audited, "fine").confirmed is True
    assert of(audited, "refused").confirmed is False
    assert of(audited, "unasked").confirmed is None
    assert of(audited, "unanswered").confirmed is None


def test_one_id_may_be_of_two_messages(audited: Audited) -> None:
    shared = {(row.exchange, row.destination): row.lost for row in audited[1] if row.message_id == "shared"}
    assert shared == {("amq.topic", None): False, ("", "b"): True}


def test_lateness_is_from_when_it_was_due(audited: Audited) -> None:
    found = {row.message_id: (row.delay_ms, row.lateness_ms) for row in audited[1] if row.due_at and row.deliveries}
    assert found == {
        "in-time": (1500, 3.0), "early": (1500, -0.5), "seconds": (2000, 1.0), "own-unit": (20, 2.0),
        "scheduled": (300, 10.0),
    }  # fmt: skip
    assert audited[0].figures["early"] == 1
    in_time = of(audited, "in-time")
    assert in_time.destination == "notices"
    assert in_time.delivered_at == (BEGAN + timedelta(milliseconds=1603)).replace(tzinfo=None)


def test_round_trips_are_from_request_to_reply(audited: Audited) -> None:
    assert {row.message_id: row.reply_ms for row in audited[1] if row.reply_ms is not None} == {"asked": 2.5}
    assert f"{REQUEST['reply_to']}#8" in {row.message_id for row in audited[1]}


def test_hops_are_told_with_their_times(audited: Audited) -> None:
    (hop,) = of(audited, "crossed").hops
    assert (hop.upstream, hop.broker) == ("ewr", "hq")
    assert hop.at == (BEGAN + timedelta(milliseconds=5)).replace(tzinfo=None)
    assert of(audited, "crossed").broker == "ewr"


def test_what_was_not_recorded_is_told_and_not_judged(audited: Audited) -> None:
    row = of(audited, "unrecorded")
    assert (row.recorded, row.broker, row.lost, row.duplicated) == (False, "ewr", False, False)
    assert any("no firehose recorded their publish" in note for note in audited[0].notes)
    assert audited[0].figures["unrecorded"] == 1


def test_the_summary_is_by_exchange_and_hour(audited: Audited) -> None:
    table = audited[0].tables[0]
    rows = {(row[0], row[1], row[2]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    flights = rows["ewr", "flights", "2013-01-01 06:00"]
    assert (flights["published"], flights["delivered"], flights["lost"], flights["duplicated"]) == (4, 3, 2, 1)
    late = rows["hq", "→ notices", "2013-01-01 06:00"]
    assert (late["late_max_ms"], late["early"]) == (3.0, 1)
    json.dumps(audited[0].document())


def test_the_report_is_one_file_with_pictures(audited: Audited) -> None:
    text = (audited[2] / "report.html").read_text()
    assert text.count("<svg") == 4
    assert "Problems found" in text
    assert "ewr: federation: flights -&gt; hq" in text
    assert not re.search(r"(src|href)=\"http", text)


def test_without_times_and_confirms_it_judges_what_it_can(spark: SparkSession) -> None:
    """In RabbitMQ's form: everything published counts, and there are no times."""
    hq = Firehose("hq", is_plain=True)
    for name in ("fine", "lost"):
        hq.publish(name)
    hq.deliver("fine")
    delayed(hq, "delayed", 1500, None)
    hq.publish(None, body=b"same")
    hq.deliver(None, body=b"same")
    hq.publish(None, body=b"lost")
    summary = audit(spark, {"hq": hq.frame(spark)}, identity="content")
    assert (summary.figures["published"], summary.figures["lost"]) == (5, 2)
    assert "late_max_ms" not in summary.figures
    assert any("has no times" in note for note in summary.notes)
    assert any("has no confirms" in note for note in summary.notes)


def test_a_dry_run_counts_and_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    hq = Firehose("hq")
    hq.publish("m")
    summary = audit(spark, {"hq": hq.frame(spark)}, table=str(tmp_path / "t"), dry_run=True)
    assert summary.is_dry
    assert summary.tables[0].rows == (("hq", "node-hq", 1, 1, 0, "2013-01-01 06:00:00", "2013-01-01 06:00:00"),)
    assert list(tmp_path.iterdir()) == []


def test_a_firehose_that_told_nothing_is_an_error(spark: SparkSession) -> None:
    ewr, hq = Firehose("ewr"), Firehose("hq")
    hq.publish("m")
    with pytest.raises(PipelineError, match="the firehose of ewr recorded nothing: was it on"):
        audit(spark, {"ewr": ewr.frame(spark), "hq": hq.frame(spark)})
