#!/usr/bin/env python3
"""How fast a stream is archived: rows per second, compared with Spark's own copy of the same rows.

    bench/pipeline_archive.py
    bench/pipeline_archive.py --messages 100000 --rounds 1

A stream is filled with flights of some 200 octets of JSON, and all of it is sealed. Then these jobs take turns in one
session, --rounds times: `archive` into a lake (batches of --batch rows), `archive` over AMQP, `archive --parse json`,
and a copy of the first lake by spark.read.parquet, partitioned by day and exchange. One warm-up round does not count.
Prints medians, and the ratio to Spark's own copy.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from leveret import spark as leveret_spark
from leveret.client import BlockingChannel, BlockingConnection, Properties
from leveret.demo.data import load_flights
from leveret.pipelines import archive
from leveret.testing.processes import LeveretProcess

STREAM, EXCHANGE = "bench.flights", "bench"
FIELDS = ("id", "carrier", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "distance", "air_time", "time_hour")
WINDOW = 5000


def fill(url: str, count: int) -> None:
    """Publish `count` flights, repeating the sample, and wait until all of them are sealed."""
    flights = load_flights(min(count, 100_000))
    bodies = [json.dumps({name: json.loads(body)[name] for name in FIELDS}).encode() for body in flights.bodies]
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.declare_exchange(EXCHANGE, "topic")
        channel.declare_queue(STREAM, arguments={"x-queue-type": "stream", "x-leveret-seal-after-ms": 200})
        channel.bind_queue(STREAM, EXCHANGE, "#")
        for number in range(count):
            place = number % len(bodies)
            properties = Properties(message_id=f"{number}-{flights.ids[place]}", content_type="application/json")
            channel.publish(bodies[place], EXCHANGE, flights.keys[place], properties)
            if number % WINDOW == WINDOW - 1:
                channel.wait_for_confirms(60)
        channel.wait_for_confirms(60)
        wait_until_sealed(channel, count)
    print(f"messages: {count:,}, bodies of {statistics.mean(map(len, bodies)):.0f} octets", flush=True)


def wait_until_sealed(channel: BlockingChannel, count: int) -> None:
    while channel.stream_facts(STREAM)["sealed_offset"] < count:
        time.sleep(0.2)


def copied(spark: SparkSession, source: Path, target: Path) -> None:
    """Copy the rows with Spark alone."""
    rows = spark.read.parquet(str(source))
    rows.write.partitionBy("day", "exchange").option("compression", "zstd").parquet(str(target))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=500_000, help="rows of a micro-batch")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="leveret-bench-archive-"))
    spark = leveret_spark.session("bench archive")
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with LeveretProcess(work / "broker") as broker:
            fill(broker.url, given.messages)
            times = measured(spark, broker.url, work, given.messages, given.batch, given.rounds)
    finally:
        spark.stop()
        shutil.rmtree(work)
    base = statistics.median(times["spark's copy"])
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"{name}: {given.messages / median:,.0f} rows/s, {base / median:.2f} of spark's copy")


def measured(spark: SparkSession, url: str, work: Path, count: int, batch: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each job in each round that counts."""
    made = 0

    def archived(**options: object) -> Path:
        nonlocal made
        made += 1
        target = work / f"lake-{made}"
        done = archive(spark, str(target), url=url, streams=[STREAM], max_rows_per_trigger=batch, **options)
        assert done.figures["rows"] == count, done
        return target

    first = archived()
    jobs: dict[str, Callable[[], object]] = {
        "archive": archived,
        "archive over AMQP": lambda: archived(options={"segments": "amqp"}),
        "archive --parse json": lambda: archived(parse="json"),
        "spark's copy": lambda: copied(spark, first, work / "copy"),
    }
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            shutil.rmtree(work / "copy", ignore_errors=True)
            began_s = time.monotonic()
            job()
            if number:
                times[name].append(time.monotonic() - began_s)
            for path in work.glob("lake-*"):
                if path != first:
                    shutil.rmtree(path)
    return times


if __name__ == "__main__":
    main()
