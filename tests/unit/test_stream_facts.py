"""The pseudo-queue amq.leveret.stream.<name>: its content and permissions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leveret.net.disk.sealing import Sealing
from leveret.wire import grammar

from .stream_house import TABLES, StreamHouse
from .support import Client

SCHEMA = '[{"name": "station", "type": "string"}]'


@pytest.fixture
def house() -> StreamHouse:
    house = StreamHouse()
    house.declare()
    return house


def get(client: Client, queue: str, no_ack: bool = True) -> None:
    client.send(1, grammar.BASIC_GET, queue=queue, no_ack=no_ack)


def facts(house: StreamHouse, name: str = "s") -> dict[str, Any]:
    get(house.client, f"amq.leveret.stream.{name}")
    (body,) = house.client.bodies()
    told: dict[str, Any] = json.loads(body)
    return told


def closed(house: StreamHouse) -> tuple[int, str, int, int]:
    (method,) = house.client.methods()
    assert method.spec is grammar.CHANNEL_CLOSE
    return (
        method.number("reply_code"), method.text("reply_text"), method.number("class_id"), method.number("method_id")
    )  # fmt: skip


def test_a_stream_without_messages(house: StreamHouse) -> None:
    house.declare("other", **{"x-leveret-schema": SCHEMA})
    told = facts(house)
    assert told == {
        "name": "s", "vhost": "/", "creation": house.stream().creation, "first_offset": 0, "next_offset": 0,
        "sealed_offset": 0, "schema": None, "tables_dir": None,
    }  # fmt: skip
    other = facts(house, "other")
    assert other["schema"] == SCHEMA
    assert other["creation"] == house.stream("other").creation != told["creation"]


def test_what_is_not_on_disk_is_not_told(house: StreamHouse) -> None:
    house.fill(3)
    house.client.publish("s", b"later")
    assert facts(house)["next_offset"] == 3
    house.step()
    assert facts(house)["next_offset"] == 4


def test_retention_moves_the_beginning(house: StreamHouse) -> None:
    house.declare("short", **{"x-max-length-bytes": 1})
    house.fill(3, "short")
    house.fill(2, "short")
    house.look()
    assert [facts(house, "short")[name] for name in ("first_offset", "next_offset")] == [3, 5]


def test_what_is_sealed(house: StreamHouse) -> None:
    """After listing the tables, and after new ones. A restored backup may have fewer messages than tables."""
    house.fill(3)
    asked: list[bytes] = []
    sealing = Sealing(house.streams.archives, TABLES, house.disk, house._submit, asked.append)
    sealing.look(house.bench.now_us)
    assert facts(house)["tables_dir"] is None
    house.run()
    assert [facts(house)[name] for name in ("sealed_offset", "tables_dir")] == [3, f"{TABLES}/%2F/s"]
    house.client.publish("s", b"x" * 100)
    house.step()
    house.archive().write()
    house.run()
    sealing.look(house.bench.now_us + 60_000_000)
    sealing.look(house.bench.now_us + 120_000_000)
    (request,) = asked
    assert facts(house)["sealed_offset"] == 3
    answer = {"id": json.loads(request)["id"], "end": 4, "lost": [], "error": ""}
    sealing.answered(json.dumps(answer).encode(), house.bench.now_us)
    assert facts(house)["sealed_offset"] == 4
    house.stream().history.sealed = 9
    assert facts(house)["sealed_offset"] == 4


def test_no_queue(house: StreamHouse) -> None:
    get(house.client, "amq.leveret.stream.none")
    assert closed(house) == (404, "NOT_FOUND - no queue 'none' in vhost '/'", 60, 70)


def test_no_such_question(house: StreamHouse) -> None:
    get(house.client, "amq.leveret.weather")
    assert closed(house) == (404, "NOT_FOUND - no queue 'amq.leveret.weather' in vhost '/'", 60, 70)


def test_no_stream(house: StreamHouse) -> None:
    house.client.queue("classic", durable=True)
    get(house.client, "amq.leveret.stream.classic")
    assert closed(house) == (406, "PRECONDITION_FAILED - queue 'classic' in vhost '/' is not a stream", 60, 70)


def test_an_answer_cannot_be_acknowledged(house: StreamHouse) -> None:
    get(house.client, "amq.leveret.stream.s", no_ack=False)
    text = "PRECONDITION_FAILED - the answer of 'amq.leveret.stream.s' cannot be acknowledged"
    assert closed(house) == (406, text, 60, 70)


def test_large_answers_come_in_frames(house: StreamHouse) -> None:
    columns = [{"name": f"column_{number}", "type": "string"} for number in range(900)]
    house.declare("wide", **{"x-leveret-schema": json.dumps(columns)})
    house.client.peer.frame_max = 4096
    get(house.client, "amq.leveret.stream.wide")
    frames = house.client.frames()
    assert max(len(frame.payload) for frame in frames) <= 4096 - 8
    body = b"".join(bytes(frame.payload) for frame in frames[2:])
    assert json.loads(json.loads(body)["schema"]) == columns
