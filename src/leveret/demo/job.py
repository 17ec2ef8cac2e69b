"""The Spark side: a query from the queue to Parquet with an RPC per flight, another from there to the delayed notices.

Two queries and not one with two sinks: each has its own checkpoint, so each is replayed by itself after a crash, and
the second starts from files that the first has committed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from leveret.demo.data import CODES, LATE_MINUTES, NUMBERS
from leveret.demo.errors import DemoError
from leveret.demo.lookups import look_up
from leveret.demo.plan import DELAY_HEADER, FLIGHTS_QUEUE, NOTICES_QUEUE, Plan
from leveret.demo.timed import TimedDataSource
from leveret.spark import session

ROWS_PER_TRIGGER = 30_000
"""Flights of a micro-batch: few large ones, since each costs planning, commits and a file."""

SOURCE_SCHEMA = "message_id STRING, body BINARY"
"""The columns of the source that are of use here; the others are not decoded then."""

BODY_SCHEMA = ", ".join(["id STRING", *(f"{name} INT" for name in NUMBERS), *(f"{name} STRING" for name in CODES)])

REPLY_SCHEMA = """id STRING, plane STRUCT<year: INT, type: STRING, manufacturer: STRING, model: STRING,
    engines: INT, seats: INT, speed: INT, engine: STRING>"""


@contextmanager
def spark_session(log: Path) -> Iterator[SparkSession]:
    """A session on two cores of this machine, stopped at the end.

    Args:
        log: file for what Java and Spark's Python workers say; between the bars it would be unreadable.

    Raises:
        DemoError: no Java, or it does not start.
    """
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        # A run is over before better compiled code or concurrent collections pay.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # each query in its own pool, or the second waits until the first has no tasks left
        "spark.scheduler.mode": "FAIR",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    try:
        with _stderr_to(log):
            spark = session("leveret demo", **settings)
    except RuntimeError as error:
        raise DemoError(f"Spark did not start: {error}") from error
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Lets processes that are started meanwhile inherit a file as their standard error."""
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class Job:
    """The two queries, running from the moment that they are made.

    Args:
        spark: the session.
        plan: of the run.
        hasty: id of a flight whose notice is sent without its delay, for tests; None for none.
    """

    def __init__(self, spark: SparkSession, plan: Plan, hasty: str | None) -> None:
        self._spark = spark
        self._plan = plan
        self._grown_s = time.monotonic()
        self._counts: dict[str, dict[int, int]] = {}
        plan.enriched.mkdir()
        spark.dataSource.register(TimedDataSource)
        enriched = self._enriched()
        notices = self._notices(enriched.schema, hasty)
        self._writing = _start(enriched, "flights", plan, "parquet", path=str(plan.enriched))
        self._noticing = _start(
            notices, "notices", plan, "leveret-timed", url=plan.url, delayUnitMs=1, queue=NOTICES_QUEUE
        )

    def _enriched(self) -> DataFrame:
        source = self._spark.readStream.format("leveret").schema(SOURCE_SCHEMA)
        source = source.options(url=self._plan.url, queue=FLIGHTS_QUEUE, maxRowsPerTrigger=ROWS_PER_TRIGGER)
        answered = look_up(source.load(), self._plan)
        flight = f.from_json(f.col("body").cast("string"), BODY_SCHEMA)
        reply = f.from_json(f.col("reply").cast("string"), REPLY_SCHEMA)
        rows = answered.select("message_id", flight.alias("flight"), reply.alias("reply"))
        # a flight that never arrived was not on time
        on_time = f.coalesce(f.col("arr_delay") < LATE_MINUTES, f.lit(False))
        return rows.select("message_id", "flight.*", "reply.plane").drop("id").withColumn("on_time", on_time)

    def _notices(self, schema: StructType, hasty: str | None) -> DataFrame:
        flights = self._spark.readStream.schema(schema).parquet(str(self._plan.enriched))
        late = flights.where(f.col("arr_delay") >= LATE_MINUTES)
        delay_ms = f.round(f.col("air_time") * self._plan.hour_ms / 60).cast("int")
        asked_s = f.when(f.col("message_id") == f.lit(hasty), 0.0).otherwise(delay_ms / 1000)
        notice = f.struct("message_id", "carrier", "flight", "origin", "dest", "arr_delay", "plane.model")
        return late.select(
            f.to_json(notice).cast("binary").alias("body"),
            "message_id",
            f.create_map(f.lit(DELAY_HEADER), delay_ms.cast("string")).alias("headers"),
            asked_s.cast("double").alias("delay"),
        )

    @property
    def rows_written(self) -> int:
        """Flights in the files of finished micro-batches."""
        return self._rows(self._writing)

    @property
    def rows_noticed(self) -> int:
        """Flights, late or not, of which the second query has taken care."""
        return self._rows(self._noticing)

    @property
    def writing(self) -> bool:
        """True while the first query works on a micro-batch."""
        return bool(self._writing.status["isDataAvailable"])

    @property
    def noticing(self) -> bool:
        """True while the second query works on a micro-batch."""
        return bool(self._noticing.status["isDataAvailable"])

    @property
    def finished_s(self) -> float:
        """When a count last grew (``time.monotonic``)."""
        return self._grown_s

    def check(self) -> None:
        """Sees to it that the queries are well.

        Raises:
            DemoError: one has failed.
        """
        for query in (self._writing, self._noticing):
            failure = query.exception()
            if failure is not None:
                raise DemoError(f"Spark's query {query.name} failed: {_cause(failure)}")

    def end_of_flights(self) -> None:
        """Stops the first query."""
        self._writing.stop()

    def compute_punctuality(self) -> None:
        """Writes flights, flights on time and their share, and the average delay, per carrier and origin."""
        flights = self._spark.read.parquet(str(self._plan.enriched))
        on_time = f.col("on_time").cast("int")
        table = flights.groupBy("carrier", "origin").agg(
            f.count("*").alias("flights"),
            f.sum(on_time).alias("on_time"),
            f.round(f.avg(on_time), 4).alias("punctuality"),
            f.round(f.avg("arr_delay"), 1).alias("arr_delay_mean_min"),
            f.count("plane").alias("aircraft_known"),
            f.round(f.avg("plane.seats"), 1).alias("seats_mean"),
        )
        table.orderBy("carrier", "origin").coalesce(1).write.parquet(str(self._plan.punctuality))

    def close(self) -> None:
        """Stops both queries."""
        self._writing.stop()
        self._noticing.stop()

    def _rows(self, query: StreamingQuery) -> int:
        counts = self._counts.setdefault(query.name, {})
        before = len(counts)
        # Spark keeps the progress of its last micro-batches only, so they are noted as they come.
        counts.update({progress.batchId: progress.numInputRows for progress in query.recentProgress})
        if len(counts) > before:
            self._grown_s = time.monotonic()
        return sum(counts.values())


def _start(frame: DataFrame, name: str, plan: Plan, form: str, **options: str | int) -> StreamingQuery:
    writer = frame.writeStream.queryName(name).format(form).options(**options)
    return writer.option("checkpointLocation", str(plan.checkpoints / name)).start()


def _cause(failure: StreamingQueryException) -> str:
    """The line that tells a person most: the last one of a Python error, else the first."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("leveret.", "ValueError", "TimeoutError"))]
    return (told or lines or ["unknown"])[-1 if told else 0]
