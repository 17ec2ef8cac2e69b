"""Streams for operators: list_streams and get_stream, and streams among the queues."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leveret.control.calls.line import SOMEBODY, call_line, result_of
from leveret.control.control import Control
from leveret.control.direct import reply_refusal
from leveret.control.node import BrokerNode
from leveret.control.refusal import BAD_REQUEST, NOT_FOUND, Refused
from leveret.wire import grammar
from leveret.wire.errors import NOT_IMPLEMENTED, ProtocolError

from .asking import whole
from .metrics import samples
from .stream_rig import StreamRig
from .test_queries import Host

START_MS = 1_700_000_000_000


class Asked(StreamRig):
    """A broker with streams and the commands about them."""

    def ask(self, command: str, **fields: Any) -> Any:
        host = Host(self.bench)
        host.streams = self.streams  # type: ignore[attr-defined]
        host.federator = SimpleNamespace(statuses=list)  # type: ignore[attr-defined]
        host.clients.append(self.client)
        control = Control(BrokerNode(self.bench.broker, host, "leveret@test", "/data", "1.0", "interpreted"))  # type: ignore[arg-type]
        line = call_line(command, fields, SOMEBODY).rstrip()
        return result_of(asyncio.run(whole(control.answer(line))))

    def row(self) -> Any:
        (row,) = self.ask("list_streams")
        return row


@pytest.fixture
def rig() -> Asked:
    rig = Asked()
    rig.declare()
    rig.client.queue("classic", durable=True)
    return rig


def test_a_stream_without_messages(rig: Asked) -> None:
    row = rig.row()
    assert (row["name"], row["vhost"], row["messages"], row["segments"], row["octets"]) == ("s", "/", 0, 0, 0)
    assert (row["first_offset"], row["next_offset"], row["committed_offset"]) == (0, 0, 0)
    assert {row[name] for name in ("oldest_ms", "newest_ms", "sealed_offset", "lag", "max_age_s")} == {None}
    assert row["creation"] == rig.stream().creation


def test_what_is_in_files_and_in_the_tail(rig: Asked) -> None:
    rig.bench.pass_time(1_000_000)
    rig.fill(3)
    rig.bench.pass_time(1_000_000)
    rig.fill(2)
    rig.bench.pass_time(1_000_000)
    rig.client.publish("s", b"x" * 50)
    row = rig.row()
    assert (row["messages"], row["first_offset"], row["next_offset"], row["segments"]) == (6, 0, 6, 2)
    assert (row["committed_offset"], row["sealed_offset"]) == (5, 5)
    assert row["file_octets"] == sum(rig.disk.size(rig.archive().files.path(first)) for first in (0, 3))
    assert row["octets"] == row["file_octets"] + row["tail_octets"]
    assert row["tail_octets"] > 50
    assert (row["oldest_ms"], row["newest_ms"]) == (START_MS + 1000, START_MS + 3000)
    rig.step()
    assert rig.row()["committed_offset"] == 6


def test_the_oldest_time_is_known_after_a_restart(rig: Asked) -> None:
    rig.bench.pass_time(5_000_000)
    rig.fill(1)
    rig.bench.pass_time(5_000_000)
    rig.fill(1)
    again = Asked(rig.disk, rig.bench.batches, rig.bench.now_us)
    assert again.archive().files.segments[0].places is None
    assert (again.row()["oldest_ms"], again.row()["newest_ms"]) == (START_MS + 5000, START_MS + 10_000)
    assert again.archive().files.segments[0].places is None  # one chunk head was read, not all of them


def test_how_far_behind_readers_are(rig: Asked) -> None:
    rig.fill(10)
    for tag, offset in (("slow", 0), ("quick", 9)):
        channel = {"slow": 1, "quick": 2}[tag]
        if channel == 2:
            rig.client.call(2, grammar.CHANNEL_OPEN)
        rig.client.send(channel, grammar.BASIC_QOS, prefetch_count=3)
        arguments = {"x-stream-offset": offset}
        rig.client.send(channel, grammar.BASIC_CONSUME, queue="s", consumer_tag=tag, arguments=arguments)
    rig.bench.broker.end_turn(rig.bench.now_us)
    row = rig.row()
    assert (row["consumers"], row["lag"], row["unacknowledged"]) == (2, 7, 4)
    found = {each["consumer_tag"]: each for each in rig.ask("get_stream", vhost="/", name="s")["consumer_details"]}
    assert (found["slow"]["next_offset"], found["slow"]["lag"], found["slow"]["messages_unacknowledged"]) == (3, 7, 3)
    assert (found["quick"]["next_offset"], found["quick"]["lag"]) == (10, 0)


def test_a_reader_is_not_behind_what_is_gone() -> None:
    rig = Asked()
    rig.declare(**{"x-max-length-bytes": 1})
    rig.fill(10)
    rig.client.send(1, grammar.BASIC_QOS, prefetch_count=1)
    rig.client.send(1, grammar.BASIC_CONSUME, queue="s", consumer_tag="c", arguments={"x-stream-offset": "first"})
    rig.bench.broker.end_turn(rig.bench.now_us)
    rig.fill(10)
    row = rig.row()
    assert (row["first_offset"], row["next_offset"], row["lag"]) == (10, 20, 10)


def test_what_was_sealed_of_an_older_stream_of_this_name_does_not_count(rig: Asked) -> None:
    rig.seal(0, 99, "0" * 16)
    assert rig.row()["sealed_offset"] is None
    rig.fill(3)
    assert rig.row()["sealed_offset"] == 3


def test_limits_and_policies(rig: Asked) -> None:
    definition = {"max-age": "2h", "max-length-bytes": 5_000}
    policy = {"vhost": "/", "name": "short", "pattern": "s", "apply-to": "queues", "priority": 0}
    rig.bench.broker.definitions.put("policy", policy | {"definition": definition})
    while rig.bench.broker.enforce_policies(rig.bench.now_us):
        pass
    row = rig.row()
    assert (row["policy"], row["max_age_s"], row["max_length_bytes"]) == ("short", 7200, 5000)
    assert row["max_segment_size_bytes"] == 1


def test_what_limits_would_keep_and_what_could_not_be_written(rig: Asked) -> None:
    rig.declare("t", **{"x-max-length-bytes": 1})
    for _ in range(2):
        rig.grant(0, 60_000, "t")
        rig.fill(5, "t")
    rig.disk.before = _refuse
    rig.client.publish("t")
    rig.step()
    rig.archive("t").write()
    rig.run()
    row = rig.ask("get_stream", vhost="/", name="t")
    assert (row["first_offset"], row["retention_offset"], row["write_errors"]) == (0, 5, 1)


def _refuse(operation: str, path: str) -> None:
    raise OSError(5, "Input/output error")


def test_streams_are_found_by_name_and_nothing_else_is(rig: Asked) -> None:
    rig.declare("other")
    assert [row["name"] for row in rig.ask("list_streams", columns=["name"])] == ["other", "s"]
    page = rig.ask("list_streams", page=1, name="oth")
    assert (page["filtered_count"], page["total_count"]) == (1, 2)
    for name, reason in (
        ("classic", "queue 'classic' in vhost '/' is not a stream"), ("n", "no stream 'n' in vhost '/'"),
    ):  # fmt: skip
        with pytest.raises(Refused) as refused:
            rig.ask("get_stream", vhost="/", name=name)
        assert (refused.value.kind, refused.value.reason) == (NOT_FOUND, reason)


def test_a_stream_among_the_queues_keeps_what_its_consumers_have(rig: Asked) -> None:
    rig.fill(2)
    rig.client.publish("s", b"x" * 50)
    rig.step()
    rig.client.send(1, grammar.BASIC_QOS, prefetch_count=3)
    rig.client.send(1, grammar.BASIC_CONSUME, queue="s", consumer_tag="c", arguments={"x-stream-offset": "first"})
    rig.bench.broker.end_turn(rig.bench.now_us)
    row = rig.ask("get_queue", vhost="/", name="s")
    assert (row["type"], row["readers"], row["consumers"]) == ("stream", {"leveret@test": 1}, 1)
    assert (row["messages"], row["messages_ready"], row["messages_unacknowledged"]) == (3, 3, 0)
    assert (row["messages_ram"], row["messages_paged_out"], row["messages_persistent"]) == (1, 2, 3)
    stream = rig.row()
    assert stream["unacknowledged"] == 3
    assert (row["message_bytes"], row["memory"] > stream["tail_octets"]) == (stream["octets"], True)
    assert rig.ask("list_vhosts")[0]["messages"] == 3
    by_length = rig.ask("list_queues", sort="messages", sort_reverse=True)
    assert [each["name"] for each in by_length] == ["s", "classic"]


def test_numbers_for_monitoring(rig: Asked) -> None:
    rig.fill(10)
    rig.client.publish("s", b"x" * 50)
    rig.step()
    rows = list(samples(rig.ask("metrics", families=["leveret_streams"])))
    found = {name: (labels, value) for name, labels, value in rows if name.startswith("leveret_stream")}
    assert {tuple(labels.items()) for labels, _ in found.values()} == {(("vhost", "/"), ("stream", "s"))}
    row = rig.row()
    for name, column in (
        ("messages", "messages"), ("next_offset", "next_offset"), ("committed_offset", "committed_offset"),
        ("file_bytes", "file_octets"), ("tail_bytes", "tail_octets"), ("segments", "segments"),
        ("consumers", "consumers"), ("write_errors_total", "write_errors"),
    ):  # fmt: skip
        assert found[f"leveret_stream_{name}"][1] == row[column]
    assert row["messages"] == 11
    assert "leveret_stream_lag_messages" not in found
    rig.client.send(1, grammar.BASIC_QOS, prefetch_count=1)
    rig.client.send(1, grammar.BASIC_CONSUME, queue="s", consumer_tag="c", arguments={
        "x-stream-offset": 4, "x-leveret-consumer": "reader",
    })  # fmt: skip
    rig.bench.broker.end_turn(rig.bench.now_us)
    numbers = {name: value for name, _, value in samples(rig.ask("metrics", families=["leveret_streams"]))}
    assert (numbers["leveret_stream_lag_messages"], numbers["leveret_stream_consumer_lag_messages"]) == (6, 7)
    guide = (Path(__file__).parents[2] / "docs" / "reference" / "ctl.md").read_text()
    assert all(f"`{name}`" in guide for name in numbers if name.startswith("leveret_stream"))


def test_what_streams_have_not_is_said_in_rabbitmqs_words() -> None:
    refused = reply_refusal(ProtocolError(NOT_IMPLEMENTED, "basic.get not supported by stream queues queue 's'"))
    assert (refused.kind, refused.reason) == (BAD_REQUEST, "540 basic.get not supported by stream queues queue 's'")
