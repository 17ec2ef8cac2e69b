"""The pseudo-queue amq.leveret.stream.<name>: its content and permissions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leveret.net.disk.sealing import Sealing
from leveret.wire import grammar

from .stream_rig import TABLES, StreamRig
from .support import Client

SCHEMA = '[{"name": "station", "type": "string"}]'


@pytest.fixture
def rig() -> StreamRig:
    rig = StreamRig()
    rig.declare()
    return rig


def get(client: Client, queue: str, no_ack: bool = True) -> None:
    client.send(1, grammar.BASIC_GET, queue=queue, no_ack=no_ack)


def facts(rig: StreamRig, name: str = "s") -> dict[str, Any]:
    get(rig.client, f"amq.leveret.stream.{name}")
    (body,) = rig.client.bodies()
    told: dict[str, Any] = json.loads(body)
    return told


def closed(rig: StreamRig) -> tuple[int, str, int, int]:
    (method,) = rig.client.methods()
    assert method.spec is grammar.CHANNEL_CLOSE
    return (
        method.number("reply_code"), method.text("reply_text"), method.number("class_id"), method.number("method_id")
    )  # fmt: skip


def test_a_stream_without_messages(rig: StreamRig) -> None:
    rig.declare("other", **{"x-leveret-schema": SCHEMA})
    told = facts(rig)
    assert told == {
        "name": "s", "vhost": "/", "creation": rig.stream().creation, "first_offset": 0, "next_offset": 0,
        "sealed_offset": 0, "schema": None, "tables_dir": None,
    }  # fmt: skip
    other = facts(rig, "other")
    assert other["schema"] == SCHEMA
    assert other["creation"] == rig.stream("other").creation != told["creation"]


def test_what_is_not_on_disk_is_not_told(rig: StreamRig) -> None:
    rig.fill(3)
    rig.client.publish("s", b"later")
    assert facts(rig)["next_offset"] == 3
    rig.step()
    assert facts(rig)["next_offset"] == 4


def test_retention_moves_the_beginning(rig: StreamRig) -> None:
    rig.declare("short", **{"x-max-length-bytes": 1})
    rig.fill(3, "short")
    rig.fill(2, "short")
    rig.look()
    assert [facts(rig, "short")[name] for name in ("first_offset", "next_offset")] == [3, 5]


def test_what_is_sealed(rig: StreamRig) -> None:
    """After listing the tables, and after new ones. A restored backup may have fewer messages than tables."""
    rig.fill(3)
    asked: list[bytes] = []
    sealing = Sealing(rig.streams.archives, TABLES, rig.disk, rig._submit, asked.append)
    sealing.look(rig.bench.now_us)
    assert facts(rig)["tables_dir"] is None
    rig.run()
    assert [facts(rig)[name] for name in ("sealed_offset", "tables_dir")] == [3, f"{TABLES}/%2F/s"]
    rig.client.publish("s", b"x" * 100)
    rig.step()
    rig.archive().write()
    rig.run()
    sealing.look(rig.bench.now_us + 60_000_000)
    sealing.look(rig.bench.now_us + 120_000_000)
    (request,) = asked
    assert facts(rig)["sealed_offset"] == 3
    answer = {"id": json.loads(request)["id"], "end": 4, "lost": [], "error": ""}
    sealing.answered(json.dumps(answer).encode(), rig.bench.now_us)
    assert facts(rig)["sealed_offset"] == 4
    rig.stream().history.sealed = 9
    assert facts(rig)["sealed_offset"] == 4


def test_no_queue(rig: StreamRig) -> None:
    get(rig.client, "amq.leveret.stream.none")
    assert closed(rig) == (404, "NOT_FOUND - no queue 'none' in vhost '/'", 60, 70)


def test_no_such_question(rig: StreamRig) -> None:
    get(rig.client, "amq.leveret.weather")
    assert closed(rig) == (404, "NOT_FOUND - no queue 'amq.leveret.weather' in vhost '/'", 60, 70)


def test_no_stream(rig: StreamRig) -> None:
    rig.client.queue("classic", durable=True)
    get(rig.client, "amq.leveret.stream.classic")
    assert closed(rig) == (406, "PRECONDITION_FAILED - queue 'classic' in vhost '/' is not a stream", 60, 70)


def test_an_answer_cannot_be_acknowledged(rig: StreamRig) -> None:
    get(rig.client, "amq.leveret.stream.s", no_ack=False)
    text = "PRECONDITION_FAILED - the answer of 'amq.leveret.stream.s' cannot be acknowledged"
    assert closed(rig) == (406, text, 60, 70)


def test_large_answers_come_in_frames(rig: StreamRig) -> None:
    columns = [{"name": f"column_{number}", "type": "string"} for number in range(900)]
    rig.declare("wide", **{"x-leveret-schema": json.dumps(columns)})
    rig.client.peer.frame_max = 4096
    get(rig.client, "amq.leveret.stream.wide")
    frames = rig.client.frames()
    assert max(len(frame.payload) for frame in frames) <= 4096 - 8
    body = b"".join(bytes(frame.payload) for frame in frames[2:])
    assert json.loads(json.loads(body)["schema"]) == columns
