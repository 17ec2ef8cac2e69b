"""Tables of streams on a running broker: rows equal what AMQP consumers get, also after kills."""

from __future__ import annotations

import json
import os
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from leveret.client import BlockingConnection, Properties
from leveret.client.protocol.model import Delivery
from leveret.store.disk import RealDisk
from leveret.store.tables import stream_directory, table_files
from leveret.testing.processes import LeveretProcess
from leveret.wire.properties import encode_header

STREAM = {"x-queue-type": "stream", "x-leveret-seal-after-ms": 1}

EVERYTHING = Properties(
    content_type="application/json", content_encoding="gzip", delivery_mode=1, priority=9, correlation_id="c",
    reply_to="r", expiration="60000", message_id="m", timestamp=1_700_000_000, type="t", user_id="guest", app_id="app",
    headers={
        "text": "ä", "octets": b"\xff\0", "int": -7, "long": 1 << 40, "double": 0.5, "yes": True, "none": None,
        "decimal": Decimal("12.34"), "time": datetime(2013, 1, 1, tzinfo=UTC), "list": [1, "a", None],
        "table": {"deep": {"er": [True]}},
    },
)  # fmt: skip
MESSAGES = [
    ("", b"plain", Properties()),
    ("", b"", EVERYTHING),
    ("amq.topic", b"\0\xff" * 50, EVERYTHING),
    ("amq.topic", bytes(range(256)) * 1200, Properties(headers={})),  # more than one frame
    *[("amq.topic", b"alike %03d" % number, Properties(message_id="same")) for number in range(200)],
]


@contextmanager
def channel_of(broker: LeveretProcess) -> Iterator[Any]:
    with BlockingConnection(broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


def rows_of(broker: LeveretProcess, stream: str, count: int, tables: Path | None = None) -> list[dict[str, Any]]:
    """Return the rows once there are `count`; `tables` is their directory, if outside of the data directory."""
    folder = stream_directory(str(tables or broker.data_dir / "tables"), "/", stream)
    while sum(file.last - file.first + 1 for file in table_files(RealDisk(), folder)) < count:
        pass  # each poll lists the directory
    return list(ds.dataset(folder, format="parquet", partitioning="hive").to_table().sort_by("offset").to_pylist())


def consumed(channel: Any, stream: str, count: int) -> list[Delivery]:
    """Return what an AMQP consumer gets from the first message on."""
    channel.qos(prefetch_count=1000)
    tag = channel.consume(stream, arguments={"x-stream-offset": "first"})
    found: list[Delivery] = []
    while len(found) < count:
        found += channel.deliveries(count - len(found))
    channel.cancel(tag)
    return found


def publish(channel: Any, stream: str, messages: list[tuple[str, bytes, Properties]]) -> None:
    for exchange, body, properties in messages:
        channel.publish(body, exchange, stream, properties, mandatory=True)
    channel.wait_for_confirms()


def same(row: dict[str, Any], delivery: Delivery) -> None:
    """Check that a row equals the message that a consumer got."""
    properties = delivery.properties
    assert properties.headers is not None
    assert row["offset"] == properties.headers.pop("x-stream-offset")
    assert (row["body"], row["exchange"], row["routing_key"]) == (
        delivery.body, delivery.exchange, delivery.routing_key,
    )  # fmt: skip
    if not properties.headers and row["headers"] is None:
        properties.headers = None
    header = struct.pack(">HHQ", 60, 0, len(row["body"])) + bytes(row["raw_properties"])
    assert header == encode_header(properties, len(delivery.body))
    assert row["message_id"] == properties.message_id
    assert row["properties"]["content_type"] == properties.content_type


SCHEMA = [{"name": "n", "type": "long"}, {"name": "timestamp", "type": "timestamp", "column": "sent"}]
BODIES = [b'{"n": 1, "timestamp": "2013-01-01T00:00:00Z"}', b"{", b'{"n": 2}']


@pytest.fixture(scope="module")
def broker() -> Iterator[LeveretProcess]:
    """A broker with streams that are about to be sealed."""
    with LeveretProcess() as process:
        with channel_of(process) as channel:
            channel.declare_queue("all", durable=True, arguments={**STREAM, "x-stream-max-segment-size-bytes": 100_000})
            channel.declare_queue("parsed", durable=True, arguments={**STREAM, "x-leveret-schema": json.dumps(SCHEMA)})
            channel.bind_queue("all", "amq.topic", "all")
            publish(channel, "parsed", [("", body, Properties()) for body in BODIES])
            for start in range(0, len(MESSAGES), 70):
                publish(channel, "all", MESSAGES[start : start + 70])
        yield process


def test_rows_are_what_consumers_get(broker: LeveretProcess) -> None:
    """Also for messages that were stored as batches, and in one or in several native files."""
    rows = rows_of(broker, "all", len(MESSAGES))
    with channel_of(broker) as channel:
        deliveries = consumed(channel, "all", len(MESSAGES))
    assert [row["offset"] for row in rows] == list(range(len(MESSAGES)))
    for row, delivery, (_, body, properties) in zip(rows, deliveries, MESSAGES, strict=True):
        same(row, delivery)
        assert row["body"] == body
        assert bytes(row["raw_properties"]) == encode_header(properties, 0)[12:]
    headers = dict(rows[1]["headers"])
    assert {name: value["text"] for name, value in headers.items()} == {
        "text": "ä", "octets": "\ufffd\0", "int": "-7", "long": str(1 << 40), "double": "0.5", "yes": "true",
        "none": None, "decimal": "12.34", "time": "2013-01-01T00:00:00+00:00", "list": '[1,"a",null]',
        "table": '{"deep":{"er":[true]}}',
    }  # fmt: skip
    assert [headers[name]["integer"] for name in ("int", "long", "yes", "time")] == [-7, 1 << 40, 1, 1_356_998_400]


def test_parsed_columns(broker: LeveretProcess) -> None:
    rows = rows_of(broker, "parsed", len(BODIES))
    assert [(row["n"], row["body"], row["parse_error"] is None) for row in rows] == [
        (1, BODIES[0], True), (None, BODIES[1], False), (2, BODIES[2], True),
    ]  # fmt: skip
    assert rows[0]["sent"] == datetime(2013, 1, 1, tzinfo=UTC)


def sealing_pid(broker: LeveretProcess) -> int | None:
    """Return the process id of the broker's sealing process."""
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    for pid in map(int, children):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if b"leveret.lake" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


def test_each_message_is_sealed_once_whoever_is_killed(tmp_path: Path) -> None:
    """First the sealing process is killed, then the broker. The tables are outside of the data directory here."""
    elsewhere = tmp_path / "elsewhere"
    with LeveretProcess(tmp_path / "data", arguments=["--tables-dir", str(elsewhere)]) as broker:
        before = datetime.now(UTC)
        with channel_of(broker) as channel:
            channel.declare_queue("s", durable=True, arguments=STREAM)
            publish(channel, "s", [("", b"%d" % number, Properties()) for number in range(40)])
            while (pid := sealing_pid(broker)) is None:
                pass  # each poll reads /proc
            os.kill(pid, signal.SIGKILL)
            publish(channel, "s", [("", b"%d" % number, Properties()) for number in range(40, 60)])
            rows_of(broker, "s", 60, elsewhere)
        broker.kill()
        broker.start()
        with channel_of(broker) as channel:
            publish(channel, "s", [("", b"%d" % number, Properties()) for number in range(60, 80)])
            rows = rows_of(broker, "s", 80, elsewhere)
            deliveries = consumed(channel, "s", 80)
        after = datetime.now(UTC)
    assert [row["body"] for row in rows] == [b"%d" % number for number in range(80)]
    for row, delivery in zip(rows, deliveries, strict=True):
        same(row, delivery)
        assert before <= row["timestamp"] <= after
        assert row["date"] == row["timestamp"].date().isoformat()
    assert not (tmp_path / "data" / "tables").exists()


def test_without_the_extra_there_are_streams_and_no_tables(tmp_path: Path) -> None:
    """An installation without pyarrow."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: None if name == 'pyarrow' else find(name, package)\n"
    )
    broker = LeveretProcess(tmp_path / "data")
    broker.extra_environment["PYTHONPATH"] = f"{tmp_path / 'hidden'}:{os.environ.get('PYTHONPATH', '')}"
    with broker, channel_of(broker) as channel:
        channel.declare_queue("s", durable=True, arguments=STREAM)
        publish(channel, "s", [("", b"x", Properties())])
        assert "pip install 'leveret[lake]'" in broker.said("no tables are written for streams")
        assert [delivery.body for delivery in consumed(channel, "s", 1)] == [b"x"]
        assert sealing_pid(broker) is None
    assert not (tmp_path / "data" / "tables").exists()
