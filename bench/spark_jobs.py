"""The jobs that spark_bench.py measures: each prepares its data, runs once, and returns one number."""

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

from leveret.client import BlockingChannel, BlockingConnection, Properties
from leveret.spark import rpc
from leveret.testing.processes import ServerProcess
from spark_pika import SCHEMA, Publisher

HERE = Path(__file__).resolve().parent
QUEUE, ANSWERED, ASKED = "spark.bench", "spark.bench.answered", "spark.bench.asked"
LEVERET, PIKA = "leveret", "pika"
PIKA_CONFIRMED_SHARE = 10
"""pika awaits every confirm, so it gets fewer rows: seconds suffice for a rate."""
PIKA_STREAM_SHARE = 10
RPC_WINDOW = 256
FLOOR_ROWS = 100
LATENCY_RATE = 200
WARM_S = 20.0
"""Before latency counts: real queries run for hours, but the JVM's compilers are busy in the first seconds."""
POLL_S = 0.01


@dataclass
class Site:
    """Where jobs run: a session, the brokers by name, and the amounts of data."""

    spark: SparkSession
    brokers: dict[str, ServerProcess]
    rows: int
    size: int
    stream_rows: int
    per_trigger: int
    seconds: float
    frames: dict[int, DataFrame] = field(default_factory=dict)
    filled: set[tuple[str, str]] = field(default_factory=set)

    def url(self, broker: str) -> str:
        return self.brokers[broker].url

    def frame(self, rows: int) -> DataFrame:
        """Return rows to publish, held in memory."""
        if rows not in self.frames:
            frame = self.spark.range(0, rows, numPartitions=2).selectExpr(
                f"cast(repeat('x', {self.size}) as binary) as body",
                "concat('id-', id) as message_id",
                "map('origin', 'JFK') as headers",
            )
            frame.cache().count()
            self.frames[rows] = frame
        return self.frames[rows]

    @contextmanager
    def channel(self, broker: str) -> Iterator[BlockingChannel]:
        """Open a channel with confirms."""
        with BlockingConnection(self.url(broker), reconnect=False) as connection:
            channel = connection.channel()
            channel.confirm_select()
            yield channel


def rate(job: Callable[[], object], rows: int) -> float:
    started_s = time.perf_counter()
    job()
    return rows / (time.perf_counter() - started_s)


def publish(channel: BlockingChannel, queue: str, rows: int, size: int) -> None:
    """Publish the messages that all jobs use: persistent, with an id and a header."""
    body = b"x" * size
    for number in range(rows):
        properties = Properties(message_id=f"id-{number}", headers={"origin": "JFK"}, delivery_mode=2)
        channel.publish(body, routing_key=queue, properties=properties)
    channel.wait_for_confirms(300)


def renewed(site: Site, broker: str, rows: int = 0) -> None:
    """Declare the queue anew and publish `rows` messages to it; an old queue may still be busy with removals."""
    with site.channel(broker) as channel:
        channel.delete_queue(QUEUE)
        channel.declare_queue(QUEUE)
        publish(channel, QUEUE, rows, site.size)


@contextmanager
def running(frame: DataFrame, available: bool, output: dict[str, str] | None = None) -> Iterator[StreamingQuery]:
    """Run a query into the noop sink, or into leveret's sink with these options; stop it at the end."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format(LEVERET if output else "noop").options(**(output or {}))
        writer = writer.option("checkpointLocation", checkpoint)
        query = (writer.trigger(availableNow=True) if available else writer).start()
        try:
            yield query
        finally:
            query.stop()


def batches(frame: DataFrame, rows: int) -> list[tuple[int, float]]:
    """Read everything with AvailableNow; return rows and milliseconds of each micro-batch."""
    with running(frame, available=True) as query:
        query.awaitTermination()
        found = [
            (progress["numInputRows"], float(progress["durationMs"]["triggerExecution"]))
            for progress in query.recentProgress
            if progress["numInputRows"]
        ]
    if (taken := sum(count for count, _ in found)) != rows:
        raise RuntimeError(f"read {taken} rows instead of {rows}")
    return found


def batch_rate(frame: DataFrame, rows: int) -> float:
    """Return the rows per second of the micro-batches, without the start of the query."""
    found = batches(frame, rows)
    return rows / sum(ms for _, ms in found) * 1000


# -- queues -----------------------------------------------------------------------------------------------------------


def read_queue(site: Site, broker: str, source: str = LEVERET, **more: str) -> float:
    """Read a filled queue as fast as possible; return rows per second."""
    renewed(site, broker, site.rows)
    with tempfile.TemporaryDirectory() as spool:
        options = {"url": site.url(broker), "queue": QUEUE, "maxRowsPerTrigger": str(site.per_trigger), **more}
        if more.get("mode") == "spool":
            options["spoolDir"] = spool
        stream = site.spark.readStream.format(source).schema(SCHEMA).options(**options).load()
        return batch_rate(stream, site.rows)


def floor(site: Site, broker: str) -> float:
    """Return the median duration of micro-batches of 100 rows each, in milliseconds."""
    count = max(1, round(10 * site.seconds)) * FLOOR_ROWS
    renewed(site, broker, count)
    options = {"url": site.url(broker), "queue": QUEUE, "maxRowsPerTrigger": str(FLOOR_ROWS)}
    return statistics.median(
        ms for _, ms in batches(site.spark.readStream.format(LEVERET).options(**options).load(), count)
    )


class Counted(StatefulProcessor):
    """Counts the messages of each key, and passes them on."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        known = self._count.get()
        count = known[0] if known else 0
        for frame in rows:
            count += len(frame)
            yield frame[["body"]]
        self._count.update((count,))

    def close(self) -> None:
        pass


def counted(frame: DataFrame) -> DataFrame:
    """Pass the messages through a state of ten keys, which Spark keeps in RocksDB."""
    frame.sparkSession.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    keyed = frame.selectExpr("body", "substring(body, -1) AS key").groupBy("key")
    return keyed.transformWithStateInPandas(Counted(), "body binary", "append", "none")


def latency(
    site: Site, broker: str, delivery: str, through: Callable[[DataFrame], DataFrame] = lambda frame: frame
) -> float:
    """Send 200 messages a second queue → Spark → queue; return the median milliseconds from publish to delivery."""
    renewed(site, broker)
    url = site.url(broker)
    with site.channel(broker) as publisher, BlockingConnection(url, reconnect=False) as connection:
        answers = connection.channel()
        answers.delete_queue(ANSWERED)
        answers.declare_queue(ANSWERED)
        answers.consume(ANSWERED, no_ack=True)
        came = site.spark.readStream.format(LEVERET).options(url=url, queue=QUEUE).schema("body binary").load()
        with running(through(came), available=False, output={"url": url, "queue": ANSWERED, "delivery": delivery}):
            publisher.publish(b"%d" % time.perf_counter_ns(), routing_key=QUEUE)
            publisher.wait_for_confirms(60)
            if answers.next_delivery(120) is None:
                raise RuntimeError("nothing comes out of the query")
            found: list[float] = []
            reading = threading.Thread(target=take_times, args=(answers, found))
            reading.start()
            begin_s = time.perf_counter()
            for number in range(round(LATENCY_RATE * (WARM_S + site.seconds))):
                time.sleep(max(0.0, begin_s + number / LATENCY_RATE - time.perf_counter()))
                publisher.publish(b"%d" % time.perf_counter_ns(), routing_key=QUEUE)
                publisher.flush()
            publisher.publish(b"", routing_key=QUEUE)
            publisher.wait_for_confirms(60)
            reading.join()
    return statistics.median(found[round(LATENCY_RATE * WARM_S) :])


def take_times(channel: BlockingChannel, found: list[float]) -> None:
    """Append the milliseconds since the time in each message, up to an empty message."""
    while (delivery := channel.next_delivery(60)) is not None and delivery.body:
        found.append((time.perf_counter_ns() - int(delivery.body)) / 1e6)


# -- sinks and services -----------------------------------------------------------------------------------------------


def write(site: Site, broker: str, **more: str) -> float:
    """Write a frame from memory into a queue, each row confirmed; return rows per second."""
    renewed(site, broker)
    frame = site.frame(site.rows)
    writer = frame.write.format(LEVERET).mode("append").options(url=site.url(broker), queue=QUEUE, **more)
    return rate(writer.save, site.rows)


def write_with_pika(site: Site, broker: str, confirms: bool = True) -> float:
    """Write the same frame with foreachPartition and pika; return rows per second."""
    renewed(site, broker)
    rows = site.rows // PIKA_CONFIRMED_SHARE if confirms else site.rows
    frame = site.frame(rows)
    return rate(lambda: frame.foreachPartition(Publisher(site.url(broker), QUEUE, confirms)), rows)


@contextmanager
def echo(url: str) -> Iterator[None]:
    """Run a service in a separate process, on the same core for every broker."""
    command = [sys.executable, str(HERE / "spark_echo.py"), url, ASKED]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if not process.stdout.readline():
            raise RuntimeError("the service did not start")
        yield
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


def ask(site: Site, broker: str) -> float:
    """Return the calls per second of two tasks with RPC_WINDOW calls outstanding each."""
    with echo(site.url(broker)):
        asked = rpc(site.frame(site.rows), "", ASKED, RPC_WINDOW, url=site.url(broker))
        return rate(asked.write.format("noop").mode("overwrite").save, site.rows)
