"""The driver of the flows that are killed: a script that runs one streaming query per flow in a directory.

It gets ready, begins when it reads a line from standard input, and ends at the end of its input. A query that fails is
restarted, as a supervisor would do; each failure is a line of ``failures.jsonl``.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from leveret_failpoints import _passing, append
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from leveret import spark as leveret_spark
from leveret.spark.java import short_lived

SETTINGS = {
    # tasks are retried as on a cluster
    "spark.master": "local[2,4]",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": short_lived(),
    "spark.sql.shuffle.partitions": 1,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    # so that the log of files tells the batch of each of them
    "spark.sql.streaming.fileSink.log.deletion": False,
}
ROWS_PER_TRIGGER = "200"
ASK_S = 0.05


class Through:
    """The function of mapInArrow for sources whose rows come from the driver: adds arrows to kill executors at."""

    def __init__(self, flow: str) -> None:
        self._flow = flow

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _passing(batches, self._flow, "read")


def source(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return spark.readStream.format("leveret").options(url=url, maxRowsPerTrigger=ROWS_PER_TRIGGER, **options).load()


def stream_to_parquet(spark: SparkSession, url: str, directory: Path) -> DataStreamWriter:
    rows = source(spark, url, stream="stream-to-parquet", columns="message_id,offset", minPartitions="2")
    return rows.writeStream.format("parquet").option("path", str(directory / "out"))


def stream_to_leveret(spark: SparkSession, url: str, directory: Path) -> DataStreamWriter:
    rows = source(spark, url, stream="stream-to-leveret", columns="body,message_id", minPartitions="2")
    return rows.writeStream.format("leveret").options(
        url=url, queue="stream-to-leveret.target", delivery="exactly-once"
    )


def queue_to_parquet(spark: SparkSession, url: str, directory: Path) -> DataStreamWriter:
    rows = source(spark, url, queue="queue-to-parquet", columns="message_id,redelivered")
    rows = rows.mapInArrow(Through("queue-to-parquet"), rows.schema)
    return rows.writeStream.format("parquet").option("path", str(directory / "out"))


def spool_to_parquet(spark: SparkSession, url: str, directory: Path) -> DataStreamWriter:
    options = {"mode": "spool", "spoolDir": str(directory / "spool"), "minPartitions": "2"}
    rows = source(spark, url, queue="spool-to-parquet", columns="message_id,redelivered", **options)
    return rows.writeStream.format("parquet").option("path", str(directory / "out"))


FLOWS: dict[str, Callable[[SparkSession, str, Path], DataStreamWriter]] = {
    "stream-to-parquet": stream_to_parquet,
    "stream-to-leveret": stream_to_leveret,
    "queue-to-parquet": queue_to_parquet,
    "spool-to-parquet": spool_to_parquet,
}


def start(writer: DataStreamWriter) -> StreamingQuery:
    query = writer.start()
    # one after the other, because Spark fails a query whose process does not connect within 10 s
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(ASK_S)
    return query


def failed(query: StreamingQuery, job: dict[str, Any]) -> None:
    line = {"flow": query.name, "driver": int(os.environ["LEVERET_DRIVER"]), "error": str(query.exception())}
    append(Path(job["directory"]) / "failures.jsonl", json.dumps(line) + "\n")


def broker_is_there(url: str) -> bool:
    where = urlsplit(url)
    try:
        socket.create_connection((where.hostname, where.port or 5672)).close()
    except OSError:
        return False
    return True


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    spark = leveret_spark.session("kills", **SETTINGS)
    spark.sparkContext.setLogLevel("WARN")
    writers = {}
    for name in job["flows"]:
        directory = Path(job["directory"]) / name
        writer = FLOWS[name](spark, job["url"], directory).queryName(name)
        writers[name] = writer.option("checkpointLocation", str(directory / "checkpoint"))
    if os.read(0, 1):
        run(job, writers)
    spark.stop()


def run(job: dict[str, Any], writers: dict[str, DataStreamWriter]) -> None:
    queries: dict[str, StreamingQuery | None] = {name: start(writer) for name, writer in writers.items()}
    while not select.select([0], [], [], ASK_S)[0]:
        for name, query in list(queries.items()):
            if query is not None and not query.isActive:
                failed(query, job)
                queries[name] = None
            if queries[name] is None and broker_is_there(job["url"]):
                queries[name] = start(writers[name])
    for query in queries.values():
        if query is not None:
            query.stop()


if __name__ == "__main__":
    main()
