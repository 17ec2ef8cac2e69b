"""Tables of reminders become delayed messages, exactly once, and the pending messages follow the table."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyspark.sql import DataFrame, SparkSession

from leveret.client import BlockingConnection
from leveret.demo.data import load_flights
from leveret.pipelines import PipelineError, Summary, schedule
from leveret.pipelines.schedules.reminders import Columns
from leveret.pipelines.schedules.state import ScheduleState
from leveret.testing.processes import LeveretProcess

from ...waiting import until
from .commands import commands, invoke, run_and_kill, summary

DAY = timedelta(days=1)
START = datetime.now(UTC).replace(microsecond=0) + DAY
COLUMNS = Columns(at="at", queue="queue")


@pytest.fixture(scope="module")
def office() -> Iterator[LeveretProcess]:
    """A leveret broker with an HTTP API and two queues."""
    with LeveretProcess(admin=True) as process:
        with BlockingConnection(process.url, reconnect=False) as connection:
            for queue in ("bills", "gates"):
                connection.channel().declare_queue(queue)
        process.said("the HTTP API is on")
        yield process


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"s.{request.node.name[:60]}"


def asked(office: LeveretProcess, path: str) -> Any:
    login = base64.b64encode(b"guest:guest").decode()
    request = urllib.request.Request(office.admin_url + path, headers={"Authorization": f"Basic {login}"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def pending(office: LeveretProcess, name: str) -> dict[str, tuple[str, int]]:
    """Return queue and due time (ms) of a schedule's pending messages by id; each id is pending once."""
    path = f"/api/delayed/%2F/messages?limit=10000&header=x-schedule={quote(name)}"
    rows = asked(office, path)
    again = [each for each, count in Counter(row["message_id"] for row in rows).items() if count > 1]
    assert again == []
    return {row["message_id"]: (row["destination"], row["due_ms"]) for row in rows}


def run(spark: SparkSession, office: LeveretProcess, table: Any, name: str, path: Path, **options: Any) -> Summary:
    given = {"columns": COLUMNS, "api_url": office.admin_url, **options}
    return schedule(spark, table, name=name, state=path / "state", url=office.url, **given)


def table(spark: SparkSession, rows: dict[str, tuple[datetime, str, str]]) -> DataFrame:
    return spark.createDataFrame(
        [(each, *values) for each, values in rows.items()], "id STRING, at TIMESTAMP, queue STRING, text STRING"
    )


def expected(rows: dict[str, tuple[datetime, str, str]]) -> dict[str, tuple[str, int]]:
    return {each: (queue, int(at.timestamp() * 1000)) for each, (at, queue, _) in rows.items()}


def assert_waits(found: dict[str, tuple[str, int]], rows: dict[str, tuple[datetime, str, str]]) -> None:
    """Check that the ids are pending with their queues and times: never early, at most the publishing time late."""
    wanted = expected(rows)
    assert found.keys() == wanted.keys()
    for each, (queue, due_ms) in found.items():
        assert queue == wanted[each][0]
        assert 0 <= due_ms - wanted[each][1] < 3_600_000, each


@pytest.mark.needs("minutes")
def test_a_killed_run_is_finished_and_nothing_is_lost_or_twice(
    spark: SparkSession, office: LeveretProcess, name: str, tmp_path: Path
) -> None:
    flights = load_flights(6000, 3)
    lines = [
        f"{each},{(START + timedelta(minutes=number)).isoformat()},bills,{key}"
        for number, (each, key) in enumerate(zip(flights.ids, flights.keys, strict=True))
    ]
    csv = tmp_path / "flights.csv"
    csv.write_text("id,at,queue,key\n" + "\n".join(lines))
    words = [
        "spark", "schedule", str(csv), "--format", "csv", "--option", "header=true", "--name", name,
        "--at-column", "at", "--queue-column", "queue", "--api-url", office.admin_url,
        "--state", str(tmp_path / "state"), "--url", office.url,
    ]  # fmt: skip

    def is_publishing() -> bool:
        return any(row["messages"] > 0 for row in asked(office, "/api/queries"))

    run_and_kill(words, is_publishing, tmp_path / "log")
    figures = summary(words)["figures"]
    assert figures["invalid"] == figures["not_carried_out"] == 0
    found = pending(office, name)
    assert len(found) == 6000
    assert found.keys() == set(flights.ids)
    again = summary(words)["figures"]
    assert {each: again[each] for each in ("scheduled", "retimed", "replaced", "taken_back", "unchanged")} == {
        "scheduled": 0, "retimed": 0, "replaced": 0, "taken_back": 0, "unchanged": 6000,
    }  # fmt: skip
    assert pending(office, name) == found


@pytest.mark.needs("minutes")
def test_edits_are_followed_wherever_a_run_breaks(
    spark: SparkSession, office: LeveretProcess, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {f"r{n}": (START + n * DAY, "bills", f"text {n}") for n in range(60)}
    assert run(spark, office, table(spark, rows), name, tmp_path).figures["scheduled"] == 60
    assert_waits(pending(office, name), rows)
    old = dict(rows)
    for n in range(10):
        rows[f"r{n}"] = (START + n * DAY + timedelta(hours=5), "bills", f"text {n}")
        rows[f"r{10 + n}"] = (START + (10 + n) * DAY, "bills", f"new text {n}")
        del rows[f"r{20 + n}"]
        rows[f"r{30 + n}"] = (START + n * DAY, "gates", f"text {30 + n}")
        rows[f"new{n}"] = (START, "bills", "new")
    note = ScheduleState.note
    broken: list[str] = []

    def break_once(state: ScheduleState, step: str, number: int, facts: dict[str, Any]) -> None:
        """Fail once after each step, so that it is done but not recorded."""
        if step not in broken:
            broken.append(step)
            raise RuntimeError(f"broken at {step}")
        note(state, step, number, facts)

    monkeypatch.setattr(ScheduleState, "note", break_once)

    def followed(rows: dict[str, tuple[datetime, str, str]]) -> Summary:
        while True:
            with suppress(PipelineError):
                return run(spark, office, table(spark, rows), name, tmp_path)

    while "held" not in broken:
        with pytest.raises(PipelineError):
            run(spark, office, table(spark, rows), name, tmp_path)
    # the edits are undone before anything was published: held messages are due at their old times
    assert followed(old).figures["unchanged"] == 60
    assert_waits(pending(office, name), old)
    found = followed(rows)
    monkeypatch.undo()
    assert {"planned", "held", "given_up", "published", "retimed", "taken"} < set(broken)
    assert found.adds_up
    # the run that cancelled them could not record it: the next one finds that they are not pending
    assert found.figures["taken_back"] + found.figures["too_late"] == 10
    assert_waits(pending(office, name), rows)
    same = run(spark, office, table(spark, rows), name, tmp_path)
    assert same.figures["unchanged"] == 60
    assert_waits(pending(office, name), rows)
    # the messages are the new versions: all of them are delivered when their times are past
    past = {each: (START - 2 * DAY, queue, text) for each, (_, queue, text) in rows.items()}
    assert run(spark, office, table(spark, past), name, tmp_path).figures["retimed"] == 60
    assert delivered(office, "gates", 10) == {f"r{30 + n}": f"text {30 + n}" for n in range(10)}
    assert delivered(office, "bills", 50) == {
        each: text for each, (_, queue, text) in rows.items() if queue == "bills"
    }  # fmt: skip
    # delivered messages are left alone
    late = run(spark, office, table(spark, rows), name, tmp_path)
    assert (late.figures["too_late"], late.figures["retimed"]) == (60, 0)
    assert pending(office, name) == {}


def delivered(office: LeveretProcess, queue: str, count: int) -> dict[str, str]:
    """Return ids and texts of the next messages of a queue, and check that there are no more."""
    with BlockingConnection(office.url, reconnect=False) as connection:
        channel = connection.channel()
        until(lambda: channel.declare_queue(queue, passive=True).message_count >= count)
        found = {}
        while (delivery := channel.get(queue, no_ack=True)) is not None:
            assert delivery.properties.message_id is not None
            assert delivery.properties.message_id not in found
            assert delivery.properties.content_type == "application/json"
            found[delivery.properties.message_id] = json.loads(delivery.body)["text"]
        return found


def test_a_table_is_taken_back_and_scheduled_again(
    spark: SparkSession, office: LeveretProcess, name: str, tmp_path: Path
) -> None:
    rows = {f"c{n}": (START + n * DAY, "bills", "t") for n in range(30)}
    parquet = tmp_path / "table"
    table(spark, rows).write.parquet(str(parquet))
    run(spark, office, parquet, name, tmp_path)
    run(spark, office, table(spark, {"other": (START, "bills", "t")}), f"{name}.other", tmp_path / "other")
    assert run(spark, office, None, name, tmp_path, cancel=True, dry_run=True).figures["taken_back"] == 30
    assert len(pending(office, name)) == 30
    assert run(spark, office, None, name, tmp_path, cancel=True).figures["taken_back"] == 30
    assert pending(office, name) == {}
    assert len(pending(office, f"{name}.other")) == 1
    assert run(spark, office, parquet, name, tmp_path, dry_run=True).figures["scheduled"] == 30
    assert pending(office, name) == {}
    assert run(spark, office, parquet, name, tmp_path).figures["scheduled"] == 30
    assert_waits(pending(office, name), rows)
    with pytest.raises(PipelineError, match="is the state of the schedule"):
        run(spark, office, parquet, "other", tmp_path)


def test_wrong_rows_are_told_and_all_others_scheduled(
    spark: SparkSession, office: LeveretProcess, name: str, tmp_path: Path
) -> None:
    at = START.isoformat()
    texts = [
        ("fine", at, "bills"), ("fine too", "2013-01-01", "bills"), (None, at, "bills"), ("twice", at, "bills"),
        ("twice", at, "bills"), ("never", None, "bills"), ("once", "soon", "bills"), ("far", "2090-01-01", "bills"),
        ("nowhere", at, None), ("x" * 256, at, "bills"), ("long", at, "q" * 200),
    ]  # fmt: skip
    frame = spark.createDataFrame(texts, "id STRING, at STRING, queue STRING")
    found = run(spark, office, frame, name, tmp_path, past="skip")
    assert not found.adds_up
    assert (found.figures["scheduled"], found.figures["past"], found.figures["invalid"]) == (1, 1, 9)
    reasons = dict(found.tables[0].rows)
    assert reasons == {
        None: "no id", "twice": "the id occurs 2 times", "never": "no time", "once": "an invalid time: soon",
        "far": "further away than 8.5 years", "nowhere": "no queue", "x" * 256: "an id of more than 255 octets",
        "long": "a queue's name of more than 199 octets",
    }  # fmt: skip
    assert pending(office, name).keys() == {"fine"}
    # an error in a row that is scheduled cancels nothing
    slip = spark.createDataFrame([("fine", "soon", "bills")], "id STRING, at STRING, queue STRING")
    found = run(spark, office, slip, name, tmp_path)
    assert (found.figures["invalid"], found.figures["taken_back"]) == (1, 0)
    assert pending(office, name).keys() == {"fine"}
    gone = frame.where("false")
    assert run(spark, office, gone, name, tmp_path).figures["taken_back"] == 1


def test_a_missing_queue_is_told_and_nothing_is_scheduled(
    spark: SparkSession, office: LeveretProcess, name: str, tmp_path: Path
) -> None:
    rows = {"a": (START, "bills", "t"), "b": (START, "no such queue", "t")}
    with pytest.raises(PipelineError, match="no such queue"):
        run(spark, office, table(spark, rows), name, tmp_path)
    assert pending(office, name) == {}
    rows["b"] = (START, "bills", "t")
    assert run(spark, office, table(spark, rows), name, tmp_path).figures["scheduled"] == 2
    assert_waits(pending(office, name), rows)


def test_without_the_api_edits_wait_and_on_any_broker_nothing_is_early(
    spark: SparkSession, url: str, queue: str, name: str, tmp_path: Path
) -> None:
    columns = Columns(delay_s="delay", queue_name=queue, body="text", headers="headers")
    rows = [(f"d{n}", 0.5 + n % 2, f"text {n}", '{"n":"1"}') for n in range(20)] + [("late", 864000.0, "text", None)]
    kinds = "id STRING, delay DOUBLE, text STRING, headers STRING"
    began = datetime.now(UTC)

    def one_run(rows: list[Any]) -> Summary:
        frame = spark.createDataFrame(rows, kinds)
        return schedule(spark, frame, name=name, state=tmp_path / "state", columns=columns, url=url)

    assert one_run(rows).figures["scheduled"] == 21
    assert one_run(rows).figures["unchanged"] == 21
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.consume(queue, no_ack=True)
        arrived: dict[str, str] = {}
        while len(arrived) < 20:
            for delivery in channel.deliveries(20, 0.2):
                each = delivery.properties.message_id or ""
                assert each not in arrived
                assert datetime.now(UTC) - began >= timedelta(seconds=0.5 + int(each[1:]) % 2)
                assert (delivery.properties.headers or {})["x-schedule"] == name
                assert (delivery.properties.headers or {})["n"] == "1"
                arrived[each] = delivery.body.decode()
    assert arrived == {f"d{n}": f"text {n}" for n in range(20)}
    rows[-1] = ("late", 864001.0, "text", None)
    for _ in range(2):
        found = one_run(rows)
        assert not found.adds_up
        assert found.figures["not_carried_out"] == 1
        assert found.tables[0].rows == (("late", "time"),)


def test_a_table_of_a_database(spark: SparkSession, office: LeveretProcess, name: str, tmp_path: Path) -> None:
    rows = {f"j{n}": (START + n * DAY, "bills", "t") for n in range(5)}
    options = {"url": f"jdbc:derby:{tmp_path}/db;create=true", "dbtable": "reminders"}
    table(spark, rows).write.format("jdbc").options(**options).save()
    found = run(spark, office, None, name, tmp_path, form="jdbc", options=options)
    assert found.figures["scheduled"] == 5
    assert_waits(pending(office, name), rows)


def test_the_guide_runs_as_it_stands(spark: SparkSession, office: LeveretProcess, tmp_path: Path) -> None:
    rows = {f"g{n}": (START + n * DAY, "bills", "t") for n in range(5)}
    table(spark, rows).write.parquet(f"{tmp_path}/reminders")
    table(spark, rows).selectExpr("id as booking", "at as departure", "text").write.csv(
        f"{tmp_path}/flights.csv", header=True
    )
    lines = commands("guides/spark/schedule.md")
    assert len(lines) >= 4
    places = {"amqp://broker": office.url.rstrip("/"), "http://broker:15672": office.admin_url}
    said = [
        invoke(words, {"/data": str(tmp_path), **places})
        for words in lines
    ]  # fmt: skip
    assert any("this would be done" in " ".join(text.split()) for text in said)
