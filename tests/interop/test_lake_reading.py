"""leveret.lake: a stream as a table of pyarrow, polars and DuckDB, with what is not sealed yet, at one offset."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from leveret import lake
from leveret.client import BlockingChannel, BlockingConnection, Properties
from leveret.lake.live import live_rows
from leveret.lake.rows import RowMaker
from leveret.testing.processes import LeveretProcess

from ..waiting import until
from .test_tables import BODIES, EVERYTHING, MESSAGES, SCHEMA, publish

NEVER = {"x-queue-type": "stream", "x-leveret-seal-after-ms": 3_600_000}
AT_ONCE = {"x-queue-type": "stream", "x-leveret-seal-after-ms": 1}
SMALL = {**AT_ONCE, "x-stream-max-segment-size-bytes": 100_000}


@pytest.fixture(scope="module")
def broker() -> Iterator[LeveretProcess]:
    with LeveretProcess(admin=True) as process:
        yield process


@pytest.fixture
def channel(broker: LeveretProcess) -> Iterator[BlockingChannel]:
    with BlockingConnection(broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


def fill(channel: BlockingChannel, stream: str, first: int, end: int, octets: int = 1) -> None:
    for number in range(first, end):
        channel.publish(b"%d " % number + b"x" * octets, "", stream, Properties(message_id=f"m{number}"))
    channel.wait_for_confirms()


def half_sealed(channel: BlockingChannel, stream: str, sealed: int, count: int) -> None:
    """Declare a stream of which the first messages are sealed; the others are too new while the test runs.

    Full files are sealed at once, and the tail moves into files when it has grown by 1 MiB.
    """
    channel.declare_queue(stream, durable=True, arguments={**NEVER, "x-stream-max-segment-size-bytes": 100_000})
    fill(channel, stream, 0, sealed, 1000)
    until(lambda: channel.stream_facts(stream)["sealed_offset"] > 0, "no file was sealed")
    fill(channel, stream, sealed, count)


def offsets(table: pa.Table) -> list[int]:
    return sorted(table["offset"].to_pylist())


def test_live_rows_are_what_sealing_makes_of_them(broker: LeveretProcess, channel: BlockingChannel) -> None:
    schema = {"x-leveret-schema": json.dumps(SCHEMA)}
    messages = [*MESSAGES, *(("", body, Properties()) for body in BODIES)]
    for stream, arguments in (("live", NEVER), ("sealed", AT_ONCE)):
        channel.declare_queue(stream, durable=True, arguments={**arguments, **schema})
        channel.bind_queue(stream, "amq.topic", "same")
        channel.bind_queue(stream, "amq.direct", "same")
    for exchange, body, properties in messages:
        channel.publish(body, exchange or "amq.direct", "same", properties)
    channel.wait_for_confirms()
    until(lambda: channel.stream_facts("sealed")["sealed_offset"] == len(messages), "not sealed")
    live, sealed = (lake.dataset(each, broker.url).to_table().to_pylist() for each in ("live", "sealed"))
    assert channel.stream_facts("live")["sealed_offset"] == 0
    assert len(live) == len(messages)
    for row, other in zip(live, sealed, strict=True):
        if not other["headers"]:  # a delivery does not show an empty table of the publisher
            row["headers"] = other["headers"] = None
            row["raw_properties"] = other["raw_properties"] = b""
        assert row == other
        assert row["date"] == row["timestamp"].date().isoformat()


def test_polars_and_duckdb_see_files_and_live_messages(broker: LeveretProcess, channel: BlockingChannel) -> None:
    half_sealed(channel, "both", 3000, 3200)
    sealed = channel.stream_facts("both")["sealed_offset"]
    assert 0 < sealed < 3200
    frame = lake.lazy_frame("both", broker.url)
    found = frame.filter(pl.col("offset") >= sealed - 10).select("offset", "message_id").sort("offset").collect()
    assert found["offset"].to_list() == list(range(sealed - 10, 3200))
    assert found["message_id"].to_list() == [f"m{number}" for number in range(sealed - 10, 3200)]
    with duckdb.connect() as connection:
        both = lake.relation("both", broker.url, connection=connection)
        recent = both.filter("timestamp > now() - INTERVAL 1 DAY AND date >= '2013-01-01'")
        assert recent.aggregate("count(*), min(\"offset\"), max(\"offset\")").fetchall() == [(3200, 0, 3199)]
    assert len(lake.relation("both", broker.url)) == 3200


def test_a_query_opens_only_files_that_it_needs(broker: LeveretProcess, channel: BlockingChannel) -> None:
    half_sealed(channel, "pruned", 3000, 3010)
    table = lake.dataset("pruned", broker.url)
    files = sorted(Path(channel.stream_facts("pruned")["tables_dir"]).glob("*/*.parquet"))
    files[0].write_bytes(b"no Parquet file")
    last = int(files[0].name.split("-")[1])
    assert offsets(table.to_table(filter=ds.field("offset") > last)) == list(range(last + 1, 3010))
    with pytest.raises(pa.ArrowInvalid, match=files[0].name):
        table.to_table()


def test_each_message_once_while_others_are_published_and_sealed(
    broker: LeveretProcess, channel: BlockingChannel
) -> None:
    channel.declare_queue("race", durable=True, arguments=SMALL)
    confirmed, is_over = [0], threading.Event()

    def publishing() -> None:
        with BlockingConnection(broker.url, reconnect=False) as connection:
            own = connection.channel()
            own.confirm_select()
            while not is_over.is_set():
                fill(own, "race", confirmed[0], confirmed[0] + 50, 500)
                confirmed[0] += 50

    publisher = threading.Thread(target=publishing)
    publisher.start()
    sealed_at: set[int] = set()
    try:
        for _ in range(200):
            before, sealed = confirmed[0], channel.stream_facts("race")["sealed_offset"]
            table = lake.dataset("race", broker.url).to_table(columns=["offset", "message_id"])
            found = offsets(table)
            assert found == list(range(len(found)))
            assert len(found) >= before
            assert set(table["message_id"].to_pylist()) == {f"m{number}" for number in found}
            sealed_at.add(sealed)
            if len(sealed_at) >= 5:
                break
    finally:
        is_over.set()
        publisher.join()
    assert len(sealed_at) >= 5


def test_retention_takes_the_oldest_and_leaves_no_hole(broker: LeveretProcess, channel: BlockingChannel) -> None:
    channel.declare_queue("kept", durable=True, arguments={**SMALL, "x-max-length-bytes": 300_000})
    fill(channel, "kept", 0, 2000, 1000)
    first = until(lambda: channel.stream_facts("kept")["first_offset"], "nothing was removed")
    found = offsets(lake.dataset("kept", broker.url).to_table(columns=["offset"]))
    assert found == list(range(found[0], 2000))
    assert found[0] >= first > 0


def test_files_that_go_before_they_are_read(broker: LeveretProcess, channel: BlockingChannel) -> None:
    """Without a lease the reader fails; with one the files stay."""
    channel.declare_queue("going", durable=True, arguments={**SMALL, "x-max-length-bytes": 300_000})
    fill(channel, "going", 0, 200, 1000)
    until(lambda: channel.stream_facts("going")["sealed_offset"], "nothing was sealed")
    plain = lake.dataset("going", broker.url)
    [sealed, _] = plain.children
    fill(channel, "going", 200, 1000, 1000)
    until(lambda: not Path(sealed.files[0]).exists(), "nothing was removed")
    with pytest.raises(FileNotFoundError):
        plain.to_table()
    held = lake.dataset("going", broker.url, api_url=broker.admin_url)
    begin = channel.stream_facts("going")["first_offset"]
    fill(channel, "going", 1000, 2000, 1000)
    found = offsets(held.to_table(columns=["offset"]))
    assert found == list(range(found[0], 1000))
    assert found[0] <= begin


def test_files_over_http(broker: LeveretProcess, channel: BlockingChannel) -> None:
    half_sealed(channel, "far", 3000, 3020)
    with pytest.raises(lake.StreamUnreadable, match="can't be read here: tables_dir says where"):
        lake.dataset("far", broker.url, tables_dir="/nowhere")
    far = lake.dataset("far", broker.url, tables_dir="/nowhere", api_url=broker.admin_url)
    assert far.to_table().equals(lake.dataset("far", broker.url).to_table())
    frame = lake.lazy_frame("far", broker.url, tables_dir="/nowhere", api_url=broker.admin_url)
    assert frame.select(pl.col("offset").max()).collect().item() == 3019
    with pytest.raises(lake.StreamUnreadable, match=r"grants no lease.*can't be reached"):
        lake.dataset("far", broker.url, api_url="http://localhost:1")


def test_an_empty_stream_has_the_columns(broker: LeveretProcess, channel: BlockingChannel) -> None:
    channel.declare_queue("empty", durable=True, arguments=NEVER)
    table = lake.dataset("empty", broker.url).to_table()
    assert (len(table), table.schema.names[0], table.schema.names[-1]) == (0, "offset", "date")


def test_what_is_no_stream(broker: LeveretProcess, channel: BlockingChannel) -> None:
    with pytest.raises(lake.StreamUnreadable, match="no stream 'missing' in this virtual host"):
        lake.dataset("missing", broker.url)
    channel.declare_queue("plain", durable=True)
    with pytest.raises(lake.StreamUnreadable, match="'plain' can't be read: 406"):
        lake.dataset("plain", broker.url)


def test_a_stream_that_is_declared_again_meanwhile(broker: LeveretProcess, channel: BlockingChannel) -> None:
    channel.declare_queue("again", durable=True, arguments=NEVER)
    publish(channel, "again", [("", b"old", EVERYTHING)])
    facts: dict[str, Any] = channel.stream_facts("again")
    with BlockingConnection(broker.url, reconnect=False) as connection:
        assert len(list(live_rows(connection, facts, 0, 1, RowMaker(None)))) == 1
        channel.delete_queue("again")
        with pytest.raises(lake.StreamUnreadable, match="'again' was deleted while it was read"):
            list(live_rows(connection, facts, 0, 1, RowMaker(None)))
        channel.declare_queue("again", durable=True, arguments=NEVER)
        with pytest.raises(lake.StreamUnreadable, match="deleted and declared again"):
            list(live_rows(connection, facts, 0, 1, RowMaker(None)))


def test_readers_need_no_spark() -> None:
    text = "import sys, leveret.lake as lake; lake.dataset; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)
