"""Messages per second of `leveret spark replay`: a lake into a leveret broker, exactly once, every message confirmed.

python bench/pipeline_replay.py --messages 300000
"""

from __future__ import annotations

import argparse
import json
import struct
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from leveret.client import BlockingConnection, Properties
from leveret.pipelines.replays.replay import replay
from leveret.spark import session
from leveret.testing.processes import LeveretProcess
from leveret.wire.properties import encode_header

BODY = b"x" * 100
FILE_ROWS = 100_000
ARRIVAL_S = 60


def write_lake(path: Path, messages: int) -> None:
    """Write rows as the archive does, with distinct ids and typed headers."""
    schemas = path / "_leveret" / "schemas"
    schemas.mkdir(parents=True)
    (schemas.parent / "lake.json").write_text(json.dumps({"form": "parquet", "partition_by": [], "version": 1}))
    (schemas / "000000001.json").write_text(json.dumps({"columns": [], "is_exact": True}))
    for first in range(0, messages, FILE_ROWS):
        numbers = range(first, min(messages, first + FILE_ROWS))
        headers = [
            encode_header(Properties(message_id=f"id-{n}", delivery_mode=2, headers={"n": n % 100}), 0)[12:]
            for n in numbers
        ]
        columns = {
            "body": pa.array([struct.pack(">Q", n) + BODY for n in numbers], pa.binary()),
            "routing_key": [f"key.{n % 16}" for n in numbers],
            "content_header": pa.array(headers, pa.binary()),
            "source": ["flights"] * len(numbers),
            "offset": pa.array(numbers, pa.int64()),
            "arrived": pa.array([1_357_000_000_000_000 + n * 1000 for n in numbers], pa.timestamp("us", tz="UTC")),
        }
        pq.write_table(pa.table(columns), path / f"{first}.parquet")


def main() -> None:
    """Replay a lake, after a warm-up replay that does not count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--tasks", type=int, help="of a micro-batch at most")
    given = parser.parse_args()
    if given.tasks:
        import leveret.pipelines.replays.replay as module

        module.TASKS = given.tasks  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as directory, LeveretProcess() as broker:
        spark = session("bench", **{"spark.master": "local[2]"})
        with BlockingConnection(broker.url, reconnect=False) as connection:
            channel = connection.channel()
            channel.declare_exchange("again", "topic")
            channel.declare_queue("again")
            channel.bind_queue("again", "again", "#")
            for name, count in (("warm", min(20_000, given.messages)), ("measured", given.messages)):
                lake = Path(directory) / name
                write_lake(lake, count)
                done = replay(
                    spark, "again", name=name, checkpoint=Path(directory) / f"{name}.checkpoint", lake=str(lake),
                    url=broker.url,
                )  # fmt: skip
                end_s = time.monotonic() + ARRIVAL_S  # the last release enters the queue in parts
                while channel.declare_queue("again", passive=True).message_count < count:
                    assert time.monotonic() < end_s, "some messages are missing"
                    time.sleep(0.01)
                there = channel.purge_queue("again")
                assert there == count, f"{there} of {count} messages are there"
        spark.stop()
    print(f"replay of {done.figures['messages']:,} messages, exactly once into leveret:")
    print(f"  sending   {done.figures['messages_per_second']:,.0f} messages/s confirmed")
    print(f"  with choosing and Spark's planning {done.figures['seconds']:.1f} s in all")


if __name__ == "__main__":
    main()
