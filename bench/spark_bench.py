#!/usr/bin/env python3
"""Rows per second of the Spark source and sink, against the same jobs written with pika, in turns on the same broker.

    bench/spark_bench.py --rows 100000 --rounds 3 --brokers rabbitmq,leveret

Source: a durable queue is read by AvailableNow into the noop sink; the time is that of the micro-batches (without the
start of the query). Sink: a frame that is in memory already is published; the time is that of the whole job. "pika" is
pika's usual job with confirms, which it awaits one by one; "pika, no confirms" may lose rows and is there to show what
the confirms cost. Both move 100-byte persistent messages with an id and a header. Medians, and ratios to pika.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from leveret.client import BlockingChannel, BlockingConnection, Properties
from leveret.spark import session
from leveret.testing.processes import LeveretProcess, RabbitMQProcess
from spark_pika import SCHEMA, PikaDataSource, Publisher

HERE = Path(__file__).resolve().parent
QUEUE = "spark.bench"
SOURCES = {"leveret": "leveret", "pika": "pika_queue"}
BROKERS = {"rabbitmq": RabbitMQProcess, "leveret": LeveretProcess}
# pika awaits every confirm, so it gets fewer rows: a rate needs seconds, not minutes
PIKA_CONFIRMED_SHARE = 10

Figures = dict[tuple[str, str, str], list[float]]


def renew(channel: BlockingChannel) -> None:
    """An empty queue for the next job: a new one, since an old one may be busy with what it has just dropped."""
    channel.delete_queue(QUEUE)
    channel.declare_queue(QUEUE)


def fill(channel: BlockingChannel, rows: int, size: int) -> None:
    """Publish what the source is to read."""
    body = b"x" * size
    for number in range(rows):
        properties = Properties(message_id=f"id-{number}", headers={"origin": "JFK"}, delivery_mode=2)
        channel.publish(body, routing_key=QUEUE, properties=properties)
    channel.wait_for_confirms(120)


def read(spark: SparkSession, source: str, url: str, per_trigger: int, rows: int) -> float:
    """Read the whole queue: rows per second."""
    options = {"url": url, "queue": QUEUE, "maxRowsPerTrigger": str(per_trigger)}
    stream = spark.readStream.format(source).schema(SCHEMA).options(**options).load()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    taken = sum(batch["numInputRows"] for batch in batches)
    if taken != rows:
        sys.exit(f"{source} read {taken} rows instead of {rows}")
    return taken / sum(batch["durationMs"]["triggerExecution"] for batch in batches) * 1000


def timed(job: Callable[[], None], rows: int) -> float:
    started_s = time.perf_counter()
    job()
    return rows / (time.perf_counter() - started_s)


def frame_of(spark: SparkSession, rows: int, size: int) -> DataFrame:
    """Rows to publish, in memory before the clock starts."""
    frame = spark.range(0, rows, numPartitions=2).selectExpr(
        f"cast(repeat('x', {size}) as binary) as body",
        "concat('id-', id) as message_id",
        "map('origin', 'JFK') as headers",
    )
    frame.cache().count()
    return frame


def run_round(
    spark: SparkSession, url: str, broker: str, frames: tuple[DataFrame, DataFrame], args: argparse.Namespace
) -> Figures:
    """Every job once on one broker."""
    figures: Figures = {}
    frame, fewer = frames

    def leveret_sink() -> None:
        frame.write.format("leveret").mode("append").option("url", url).option("queue", QUEUE).save()

    with BlockingConnection(url) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for name, source in SOURCES.items():
            renew(channel)
            fill(channel, args.rows, args.size)
            figures[broker, "source", name] = [read(spark, source, url, args.per_trigger, args.rows)]
        sinks: dict[str, tuple[Callable[[], None], int]] = {
            "leveret": (leveret_sink, args.rows),
            "pika": (lambda: fewer.foreachPartition(Publisher(url, QUEUE, True)), args.rows // PIKA_CONFIRMED_SHARE),
            "pika, no confirms": (lambda: frame.foreachPartition(Publisher(url, QUEUE, False)), args.rows),
        }
        for name, (job, rows) in sinks.items():
            renew(channel)
            figures[broker, "sink", name] = [timed(job, rows)]
        channel.delete_queue(QUEUE)
    return figures


def table(figures: Figures) -> str:
    """Medians and ratios, one line per broker, direction and job."""
    lines = [f"{'broker':10} {'':7} {'job':18} {'rows/s':>9}  {'to pika':>8}"]
    for (broker, direction, name), rates in sorted(figures.items()):
        median = statistics.median(rates)
        ratio = median / statistics.median(figures[broker, direction, "pika"])
        lines.append(f"{broker:10} {direction:7} {name:18} {median:9,.0f}  {ratio:7.1f}x")
    return "\n".join(lines)


def main() -> None:
    """Start the brokers, warm up once, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=100, help="bytes per body")
    parser.add_argument("--per-trigger", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--brokers", default="rabbitmq,leveret", help=f"of {', '.join(BROKERS)}")
    args = parser.parse_args()
    # Spark's workers unpickle the pika jobs by the name of their module
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    spark = session("leveret-bench", **{"spark.master": "local[2]", "spark.driver.memory": "2g"})
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(PikaDataSource)
    figures: Figures = {}
    with ExitStack() as stack:
        urls = {name: stack.enter_context(BROKERS[name]()).url for name in args.brokers.split(",")}
        frames = frame_of(spark, args.rows, args.size), frame_of(spark, args.rows // PIKA_CONFIRMED_SHARE, args.size)
        for turn in range(args.rounds + 1):
            for broker, url in urls.items():
                for key, rates in run_round(spark, url, broker, frames, args).items():
                    # the first turn warms the JVM and the workers up
                    if turn:
                        figures.setdefault(key, []).extend(rates)
        spark.stop()
    print(table(figures))


if __name__ == "__main__":
    main()
