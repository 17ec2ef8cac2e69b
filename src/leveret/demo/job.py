"""The Spark job: one query from the stream to Parquet with an RPC per flight, another from there to delayed notices.

Two queries instead of one with two sinks: each has its own checkpoint, so each is replayed independently after a crash,
and the second reads only files that the first has committed. Both are exactly once: the offsets of the stream and the
names of the files are in the checkpoints, and the sinks make a micro-batch visible as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from leveret.demo.copies import SCHEMA as COPIES_SCHEMA
from leveret.demo.copies import without_repeats
from leveret.demo.data import LATE_MINUTES
from leveret.demo.lookups import look_up
from leveret.demo.plan import AIRPORTS, FLIGHTS_STREAM, MINUTE_MS, NOTICES_QUEUE, DemoPlan
from leveret.demo.timed import TimedDataSource
from leveret.pipelines.watch import WatchedQuery

ROWS_PER_TRIGGER = 85_000
"""Flights per micro-batch: large, since each batch costs planning, commits and files."""

TASKS = 2
"""Tasks of a micro-batch that make lookups and write a file each."""

SOURCE_SCHEMA = "message_id STRING, body BINARY"
"""The columns that are needed of the source; the others are then not decoded."""


def start_workers(spark: SparkSession) -> None:
    """Run a job without work, so that Python workers start while the queries are planned."""
    spark.range(0, TASKS, 1, TASKS).mapInArrow(_nothing, "id BIGINT").write.format("noop").mode("overwrite").save()


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


class DemoQueries:
    """The two queries; they run from the construction on.

    Args:
        spark: the session.
        plan: of the run.
        hasty: id of a flight whose notice is sent without its delay, for tests; or None.

    Attributes:
        writing: the query from the stream to Parquet.
        noticing: the query from there to the notices; it counts all flights as rows, late or not.
    """

    def __init__(self, spark: SparkSession, plan: DemoPlan, hasty: str | None) -> None:
        self._spark = spark
        self._plan = plan
        plan.enriched.mkdir()
        for kind in ("sent", "released"):
            (plan.records / kind).mkdir()
        spark.dataSource.register(TimedDataSource)
        enriched = self._enriched()
        notices = self._notices(enriched.schema, hasty)
        self.writing = _start(enriched, "flights", plan, "parquet", path=str(plan.enriched))
        sink = {"url": plan.url, "queue": NOTICES_QUEUE, "delayUnitMs": "1", "records": str(plan.records)}
        self.noticing = _start(notices, "notices", plan, "leveret-timed", **sink)

    def _enriched(self) -> DataFrame:
        rows = look_up(self._once() if self._plan.federated else self._flights(SOURCE_SCHEMA), self._plan)
        # a flight that never arrived was not on time
        return rows.withColumn("on_time", f.coalesce(f.col("arr_delay") < LATE_MINUTES, f.lit(False)))

    def _once(self) -> DataFrame:
        """Return the flights of a federated run, without their publishers' repeats."""
        # with a single task, that one would make all lookups
        self._spark.conf.set("spark.sql.shuffle.partitions", TASKS)
        return without_repeats(self._flights(COPIES_SCHEMA), self._plan)

    def _flights(self, schema: str) -> DataFrame:
        source = self._spark.readStream.format("leveret").schema(schema)
        named = {"partitions": ",".join(AIRPORTS)} if self._plan.cluster else {"minPartitions": TASKS}
        limit = {"maxRowsPerTrigger": ROWS_PER_TRIGGER}
        return source.options(url=self._plan.url, stream=FLIGHTS_STREAM, **limit, **named).load()

    def _notices(self, schema: StructType, hasty: str | None) -> DataFrame:
        files = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", TASKS)
        flights = files.parquet(str(self._plan.enriched))
        late = flights.where(f.col("arr_delay") >= LATE_MINUTES)
        delay_s = f.col("air_time") * MINUTE_MS / 1000
        if hasty is not None:
            delay_s = f.when(f.col("message_id") == hasty, 0.0).otherwise(delay_s)
        notice = f.struct("message_id", "carrier", "flight", "origin", "dest", "arr_delay", "plane.model")
        return late.select(
            f.to_json(notice).cast("binary").alias("body"),
            "message_id",
            delay_s.alias("delay"),
        )

    def finish(self) -> None:
        """Wait until both queries have read and committed all that there is; end them.

        Raises:
            StreamingQueryException: a query failed, or was stopped.
        """
        for query in (self.writing, self.noticing):
            query.catch_up()
            query.stop()

    def compute_punctuality(self) -> None:
        """Write flights, flights on time, their share, and average delay, per carrier and origin."""
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


def _start(frame: DataFrame, name: str, plan: DemoPlan, form: str, **options: str | int) -> WatchedQuery:
    writer = frame.writeStream.queryName(name).format(form).options(**options)
    return WatchedQuery(writer.option("checkpointLocation", str(plan.checkpoints / name)).start())
