"""What operators see of queries and stages, and what they forget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leveret.broker.staging.report import REPORTS_MAX, QueryReport, keep, read_report
from leveret.control.command import COMMANDS
from leveret.control.refusal import NOT_FOUND, Refused
from leveret.wire import grammar

from .admin import MINE, Browser, missing
from .metrics import samples
from .stages import attach, opened, queries, release, say, settle, stage
from .support import recovered
from .test_queries import Rig


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.bench.batches.append(b"".join(rig.bench.broker.snapshot()))
    rig.client.queue("staged", durable=True)
    rig.client.send(1, grammar.CONFIRM_SELECT)
    stage(rig.client, 6, "a", b"six", key="staged")
    release(rig.client, 6, "a")
    settle(rig.bench)
    stage(rig.client, 7, "b", b"seven", b"eight", key="staged")
    rig.bench.pass_time(2_000_000)
    attach(rig.client, 7, "a", expires_ms=5000)
    rig.bench.sync()
    return rig


def columns(rows: Any, *names: str) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_queries_are_listed(rig: Rig) -> None:
    row = {
        "vhost": "/", "name": "Q", "owner": "guest", "last_batch": 6, "stages": 2, "messages": 2, "octets": 10,
        "released_messages": 1, "released_octets": 3, "idle_ms": 2000, "title": None, "checkpoint": None,
        "reported_batch": None, "rows": None, "streams": None, "lag": None, "reported_ms": None,
    }  # fmt: skip
    assert rig.ask("list_queries") == rig.ask("list_queries", vhost="/") == [row]
    assert rig.ask("list_queries", name="other") == []
    assert rig.ask("get_query", vhost="/", name="Q") == row
    assert rig.refusal("get_query", vhost="/", name="P") == (NOT_FOUND, "no query 'P' in vhost '/'")


def test_a_query_reports_its_progress(rig: Rig) -> None:
    client = opened(rig.bench)
    client.queue("events", durable=True, arguments={"x-queue-type": "stream"})
    for _ in range(5):
        client.publish("events", b"x")
    report = {"query": "R", "title": "flights", "checkpoint": "/cp", "batch": 3, "rows": 2}
    say(client, op="report", **report, streams={"events": 2, "gone": 7})
    rig.bench.sync()
    rig.bench.pass_time(1_500_000)
    client.publish("events", b"x")
    rig.bench.sync()
    [reported] = rig.ask("list_queries", name="R")
    assert reported == {
        "vhost": "/", "name": "R", "owner": "guest", "last_batch": None, "stages": 0, "messages": 0, "octets": 0,
        "released_messages": 0, "released_octets": 0, "idle_ms": None, "title": "flights", "checkpoint": "/cp",
        "reported_batch": 3, "rows": 2, "lag": 4, "reported_ms": 1500,
        "streams": [{"name": "events", "next_offset": 2, "lag": 4}, {"name": "gone", "next_offset": 7, "lag": None}],
    }  # fmt: skip
    say(client, op="report", query="Q", streams={"events": 6})
    assert columns(rig.ask("list_queries"), "name", "last_batch", "lag") == [("Q", 6, 0), ("R", None, 4)]
    rows = samples(rig.ask("metrics", families=["leveret_queries"]))
    found = [(name, labels["query"], value) for name, labels, value in rows if "query" in labels]
    assert ("leveret_query_lag_messages", "R", 4) in found
    assert ("leveret_query_report_age_seconds", "R", 1.5) in found
    assert ("leveret_query_released_messages_total", "Q", 1) in found
    assert queries(recovered(rig.bench.batches)).reports == {}
    COMMANDS["forget_query"](name="R").run(rig.node)  # type: ignore[call-arg]
    say(client, op="forget", query="Q")
    assert rig.ask("list_queries") == []


@pytest.mark.parametrize("wrong", [
    {"batch": "1"}, {"rows": -2}, {"title": 5}, {"checkpoint": "x" * 1001}, {"streams": ["s"]}, {"streams": {"s": -1}},
    {"streams": {str(number): 0 for number in range(1001)}},
])  # fmt: skip
def test_a_report_that_cannot_be_read_is_refused(rig: Rig, wrong: dict[str, Any]) -> None:
    say(rig.client, op="report", query="R", **wrong)
    [closed] = [method for method in rig.client.methods() if method.name == "channel.close"]
    assert next(iter(wrong)) in closed.text("reply_text")
    assert rig.ask("list_queries", name="R") == []


def test_the_oldest_report_goes_first() -> None:
    kept: dict[str, QueryReport] = {}
    for number in [*range(REPORTS_MAX), 0, REPORTS_MAX]:
        keep(kept, str(number), read_report({}, "guest", 0))
    assert (len(kept), "0" in kept, "1" in kept) == (REPORTS_MAX, True, False)


def test_stages_are_listed_by_batch_and_attempt(rig: Rig) -> None:
    rows = rig.ask("list_stages", query="Q")
    assert columns(rows, "batch", "attempt", "state", "messages", "octets", "idle_ms", "expires_ms") == [
        (7, "a", "open", 0, 0, 0, 5000),
        (7, "b", "open", 2, 10, 2000, 86_398_000),
    ]
    assert rig.ask("list_stages", query="P") == []


def test_what_moves_is_a_stage_still_and_none_of_the_query(rig: Rig) -> None:
    release(rig.client, 7, "b")
    rows = rig.ask("list_stages")
    assert columns(rows, "attempt", "state", "messages", "expires_ms") == [("b", "releasing", 2, None)]
    assert columns(rig.ask("list_queries"), "last_batch", "stages", "messages", "idle_ms") == [(7, 0, 0, None)]


def test_a_query_is_forgotten_with_its_stages(rig: Rig) -> None:
    command = COMMANDS["forget_query"](name="Q")  # type: ignore[call-arg]
    assert command.changes
    command.run(rig.node)
    assert rig.ask("list_queries") == []
    assert rig.ask("list_stages") == []
    rig.bench.sync()
    assert queries(recovered(rig.bench.batches)).by_name == {}


def test_the_name_of_a_query_that_was_closed_is_forgotten(rig: Rig) -> None:
    known = queries(rig.bench)
    for _ in range(402):
        rig.bench.pass_time(86_400_000_000)
    assert (list(known.by_name), list(known.closed.values())) == ([], ["guest"])
    COMMANDS["forget_query"](name="Q").run(rig.node)  # type: ignore[call-arg]
    assert known.closed == {}
    assert queries(recovered([*rig.bench.batches, rig.bench.sync()])).closed == {}
    with pytest.raises(Refused):
        COMMANDS["forget_query"](name="Q").run(rig.node)  # type: ignore[call-arg]


def test_nothing_is_forgotten_that_is_not_there(rig: Rig) -> None:
    with pytest.raises(Refused) as refused:
        COMMANDS["forget_query"](name="P").run(rig.node)  # type: ignore[call-arg]
    assert (refused.value.kind, refused.value.reason) == (NOT_FOUND, "no query 'P' in vhost '/'")


def test_what_is_staged_is_told_to_monitors_and_counts_nowhere_else(rig: Rig) -> None:
    rows = samples(rig.ask("metrics", families=["leveret_stages"]))
    found = {name: (labels, value) for name, labels, value in rows if name.startswith("leveret")}
    labels = {"vhost": "/"}
    assert found == {"leveret_staged_messages": (labels, 2), "leveret_staged_bytes": (labels, 10)}
    guide = (Path(__file__).parents[2] / "docs" / "reference" / "ctl.md").read_text()
    assert all(f"`{name}`" in guide for name in found)
    assert columns(rig.ask("list_queues", name="staged"), "messages", "messages_ready") == [(1, 1)]
    assert rig.ask("overview")["queue_totals"]["messages"] == 1


async def test_over_http() -> None:
    browse = Browser()
    row = {"vhost": MINE, "name": "Q", "last_batch": 3}
    browse.control.answers |= {
        "list_queries": lambda fields: [row], "list_stages": lambda fields: [{"batch": 4}],
        "get_query": lambda fields: row, "forget_query": lambda fields: None,
    }  # fmt: skip
    assert (await browse("GET", f"/api/queries/{MINE}")).json() == [row]
    assert (await browse("GET", f"/api/queries/{MINE}/Q")).json() == row
    assert (await browse("GET", f"/api/queries/{MINE}/Q/stages")).json() == [{"batch": 4}]
    assert (await browse("DELETE", f"/api/queries/{MINE}/Q")).status_code == 204
    assert browse.control.fields_of("forget_query") == {"vhost": MINE, "name": "Q"}
    guide = (Path(__file__).parents[2] / "docs" / "reference" / "http-api.md").read_text()
    assert "`/api/queries/VHOST/NAME`" in guide


async def test_over_http_a_query_that_was_closed_is_forgotten_though_it_is_not_to_be_seen() -> None:
    browse = Browser()
    browse.control.answers |= {"get_query": missing, "forget_query": lambda fields: None}
    assert (await browse("GET", f"/api/queries/{MINE}/Q")).status_code == 404
    assert (await browse("DELETE", f"/api/queries/{MINE}/Q")).status_code == 204
    browse.control.answers["forget_query"] = missing
    assert (await browse("DELETE", f"/api/queries/{MINE}/Q")).status_code == 404
