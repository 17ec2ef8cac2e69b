"""`leveret trace`: the output for events of the firehose."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from leveret.cli.trace import command as traced
from leveret.cli.trace.events import TraceEvent, event_of
from leveret.cli.trace.follow import Follower, Step, TraceFilter
from leveret.cli.trace.shown import SAID, StepPrinter
from leveret.cli.trace.switch import HttpSwitch, SwitchError
from leveret.client import Delivery
from leveret.wire.properties import Properties, encode_header

T0_US = 1_700_000_000_000_000
DIED = datetime(2023, 11, 14, 22, 13, 21, tzinfo=UTC)


def event(key: str, at_ms: int = 0, headers: dict[str, Any] | None = None, **told: Any) -> TraceEvent:
    """Return an event as the firehose sends it; arguments p_NAME are properties of the message."""
    properties = {name.removeprefix("p_"): told.pop(name) for name in list(told) if name.startswith("p_")}
    properties |= {"headers": headers} if headers is not None else {}
    said = {
        "exchange_name": "x", "routing_keys": ["k"], "properties": properties, "node": "n", "vhost": "/",
        "connection": "the shop", "channel": 1, "user": "guest", "timestamp_in_us": T0_US + 1000 * at_ms,
    } | told  # fmt: skip
    header = encode_header(Properties(headers=said), 0)
    found = event_of(Delivery(b"", header, "amq.rabbitmq.trace", key, 1, False, ""), 5.0)
    assert found is not None
    return found


def steps(wanted: TraceFilter, *events: TraceEvent) -> list[Step]:
    follower = Follower(wanted)
    return [step for each in events for step in follower.steps(each)]


def test_only_the_wanted_are_followed() -> None:
    events = [event("publish.x", p_message_id=name, routed_queues=["q"]) for name in ("a", "b")]
    assert [step["message_id"] for step in steps(TraceFilter("b"), *events)] == ["b"]


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (TraceFilter(), True),
        (TraceFilter(correlation_id="c"), True),
        (TraceFilter(correlation_id="d"), False),
        (TraceFilter(key="k"), True),
        (TraceFilter(key="l"), False),
        (TraceFilter(exchange="x", headers=(("n", "5"), ("t", "true"))), True),
        (TraceFilter(headers=(("n", "6"),)), False),
        (TraceFilter(headers=(("missing", "None"),)), False),
    ],
)
def test_what_fits(wanted: TraceFilter, fits: bool) -> None:
    told = event("publish.x", headers={"n": 5, "t": True}, p_correlation_id="c", routed_queues=[])
    assert wanted.takes(told) is fits


def test_a_known_message_is_followed_under_another_key() -> None:
    found = steps(
        TraceFilter(key="k"),
        event("publish.x", p_message_id="m", routed_queues=["q"]),
        event("deliver.q2", 10, p_message_id="m", routing_keys=["dead"], redelivered=0),
        event("deliver.q2", 20, p_message_id="other", routing_keys=["dead"], redelivered=0),
    )
    assert [(step["step"], step.get("after_ms")) for step in found] == [("published", None), ("delivered", 10)]


def test_confirms_belong_to_their_channel_and_number() -> None:
    found = steps(
        TraceFilter(),
        event("publish.x", p_message_id="a", publish_seq_no=4, routed_queues=["q"]),
        event("publish.x", p_message_id="b", publish_seq_no=6, routed_queues=["q"]),
        event("confirm.ack", first_seq_no=1, last_seq_no=9, channel=2),
        event("confirm.ack", first_seq_no=1, last_seq_no=5),
        event("confirm.nack", first_seq_no=6, last_seq_no=6),
    )
    assert [(step["step"], step["message_id"]) for step in found[2:]] == [("confirmed", "a"), ("refused", "b")]


def test_each_death_is_told_once() -> None:
    deaths = [
        {"queue": "q2", "reason": "rejected", "count": 1, "time": DIED},
        {"queue": "q1", "reason": "expired", "count": 2},
    ]
    delivered = event("deliver.q3", headers={"x-death": deaths}, p_message_id="m", redelivered=0)
    found = steps(TraceFilter(), event("publish.x", p_message_id="m", routed_queues=["q1"]), delivered, delivered)
    assert [(step["step"], step["queue"]) for step in found[1:]] == [
        ("dead-lettered", "q1"), ("dead-lettered", "q2"), ("delivered", "q3"), ("delivered", "q3"),
    ]  # fmt: skip
    assert [step.get("count") for step in found[1:3]] == [2, 1]
    assert found[2]["died_s"] == DIED.timestamp()


@pytest.mark.parametrize(
    ("exchange", "key", "headers", "delay_ms"),
    [
        ("d", "k", {"x-delay": 2500}, 2500),
        ("d", "k", {"x-delay": -2500}, None),
        ("nsb.delay-level-02", "1.0.1.orders", {}, 5000),
        ("celery_delayed_27", "0." * 27 + "1.orders", {}, 1000),
        ("orders", "1.0.1.x", {}, None),
    ],
)
def test_how_late(exchange: str, key: str, headers: dict[str, Any], delay_ms: int | None) -> None:
    names = {"exchange_name": exchange, "routing_keys": [key], "p_message_id": "m"}
    found = steps(
        TraceFilter(), event("publish.x", headers=headers, routed_queues=["w"], **names),
        event("deliver.q", 6000, p_message_id="m", redelivered=0),
    )  # fmt: skip
    assert found[0].get("delay_ms") == delay_ms
    assert found[1].get("late_ms") == (None if delay_ms is None else 6000 - delay_ms)


def test_links_are_named() -> None:
    hops = [{"cluster-name": "second", "exchange": "x"}, {"cluster-name": "first", "uri": "amqp://first"}]
    (step,) = steps(TraceFilter(), event("publish.x", headers={"x-received-from": hops}, routed_queues=["q"]))
    assert step["step"] == "federated"
    assert [hop["cluster-name"] for hop in step["hops"]] == ["first", "second"]


def test_when_it_is_done() -> None:
    follower = Follower(TraceFilter())
    follower.steps(event("publish.x", p_message_id="m", routed_queues=["q1", "q2"]))
    follower.steps(event("deliver.q1", p_message_id="m", redelivered=0))
    assert not follower.is_done
    follower.steps(event("deliver.q2", p_message_id="m", redelivered=0))
    assert follower.is_done


def test_a_step_is_a_line_that_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        event("publish.x", p_message_id="m\x1b[2J", routing_keys=["\x1bk"], publish_seq_no=1, routed_queues=["\x07q"]),
        event("confirm.ack", first_seq_no=1, last_seq_no=1),
        event("deliver.q", 5, headers={"x-death": [{"queue": "\x1bq", "reason": "expired", "count": 1, "time": DIED}]},
              p_message_id="m\x1b[2J", redelivered=1),
    ]  # fmt: skip
    found = steps(TraceFilter(), *events)
    screen = StepPrinter()
    for step in found:
        screen.show(step)
    out = capsys.readouterr().out
    assert "\x1b[2J" not in out
    assert "\x07" not in out
    assert len(out.splitlines()) == len(found) == 4
    assert {step["step"] for step in found} <= set(SAID)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--url", "http://x"], "a connection URL begins with amqp://"),
        (["--header", "colour"], "'colour' is not a header: write NAME=VALUE"),
        (["--admin-url", "amqp://x"], "an admin URL must begin with http://"),
        (["--timeout", "-1"], "--timeout"),
    ],
)
def test_wrong_options(arguments: list[str], text: str) -> None:
    done = CliRunner().invoke(traced.command, arguments)
    assert done.exit_code == 2
    assert text in done.output


def test_nobody_there() -> None:
    done = CliRunner().invoke(traced.command, ["--url", "amqp://guest:secret@127.0.0.1:1/"])
    assert done.exit_code == 3
    assert "127.0.0.1:1" in done.output
    assert "secret" not in done.output
    with pytest.raises(SwitchError, match=r"no answer from http://127.0.0.1:1"):
        HttpSwitch("http://127.0.0.1:1", "/", "guest", "secret").is_on()
