"""A job as users write it, for spark-submit or a Connect server; prints its results as JSON.

Arguments: the broker's URL; a queue with messages, an empty one and one for foreachBatch; a stream; a service's queue;
a directory that driver and executors share; for a Connect server, what to send to its executors.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import leveret
from leveret import spark as leveret_spark

URL, FULL, EMPTY, ANSWERED, STREAM, SERVICE, FOLDER, *ARCHIVES = sys.argv[1:]


def surroundings(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return, from a task, where it found leveret and which packages its Python has."""
    for _ in batches:
        extras = [name for name in ("numpy", "pandas", "librt", "click") if importlib.util.find_spec(name)]
        yield pa.record_batch([pa.array([leveret.__file__]), pa.array([",".join(extras)])], names=["leveret", "extras"])


def ask_and_answer(frame: DataFrame, batch: int) -> None:
    """Ask the service and publish its replies: the function of foreachBatch."""
    answered = leveret_spark.rpc(frame, "", SERVICE, url=URL)
    rows = answered.selectExpr("reply as body", f"concat('batch', {batch}) as type")
    rows.write.format("leveret").mode("append").option("url", URL).option("queue", ANSWERED).save()


def with_artifacts(spark: SparkSession) -> SparkSession:
    """Return the session, after sending its executors what those of a Connect server need."""
    for archive in ARCHIVES:
        spark.addArtifacts(archive, pyfile=True)
    return spark


def other(spark: SparkSession) -> SparkSession:
    """Return another session of the same driver or server."""
    if not ARCHIVES:
        return spark.newSession()
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    return with_artifacts(RemoteSession.builder.remote(os.environ["SPARK_REMOTE"]).create())


def started(writer: DataStreamWriter) -> StreamingQuery:
    """Start the query, with retries: a server gives the Python of foreachBatch ten seconds to start."""
    for _ in range(5):
        try:
            return writer.start()
        except PySparkException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
    return writer.start()


def run(spark: SparkSession) -> dict[str, Any]:
    options = {"url": URL}
    # one task on each executor
    where = spark.range(0, 2, 1, 2).mapInArrow(surroundings, "leveret string, extras string").collect()

    rows = spark.range(0, 300, 1, 4).selectExpr("cast(id as string) as body", "concat('id-', id) as message_id")
    rows.write.format("leveret").mode("append").options(**options, queue=EMPTY).save()

    stream = spark.read.format("leveret").options(**options, stream=STREAM).load()
    offsets = stream.selectExpr("offset", "cast(body as string) as body").collect()

    queue = spark.readStream.format("leveret").options(**options, queue=FULL, maxRowsPerTrigger=50).load()
    writer = queue.writeStream.foreachBatch(ask_and_answer).option("checkpointLocation", f"{FOLDER}/checkpoint")
    ended = started(writer.trigger(availableNow=True)).awaitTermination(120)

    # nothing is registered in a new session: Spark finds pyspark_leveret
    by_name = other(spark).read.format("leveret").options(**options, stream=STREAM).load().count()
    return {
        "session": type(spark).__module__,
        "leveret": sorted({row.leveret for row in where}),
        "extras": sorted({row.extras for row in where}),
        "stream": sorted([row.offset, row.body] for row in offsets),
        "ended": ended,
        "by_name": by_name,
        "settings": {name: spark.conf.get(name) for name in leveret_spark.RECOMMENDED if "spark.sql" in name},
    }


if __name__ == "__main__":
    session = leveret_spark.session("job")
    print("found", json.dumps(run(with_artifacts(session))))
    session.stop()
