"""The Spark job: one query from the queue to Parquet with an RPC per flight, another from there to delayed notices.

Two queries instead of one with two sinks: each has its own checkpoint, so each is replayed independently after a crash,
and the second reads only files that the first has committed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from leveret.demo.copies import SCHEMA as COPIES_SCHEMA
from leveret.demo.copies import without_repeats
from leveret.demo.data import CODES, LATE_MINUTES, NUMBERS
from leveret.demo.lookups import look_up
from leveret.demo.plan import AIRPORTS, DELAY_HEADER, FLIGHTS_QUEUE, HASTY_MS, HOUR_MS, NOTICES_QUEUE, DemoPlan
from leveret.demo.timed import TimedDataSource
from leveret.pipelines.watch import WatchedQuery

ROWS_PER_TRIGGER = 30_000
"""Flights per micro-batch: large, since each batch costs planning, commits and a file."""

FEDERATED_PARTITIONS = 2
"""Tasks after the shuffle that drops repeats."""

SOURCE_SCHEMA = "message_id STRING, body BINARY"
"""The columns that are needed of the source; the others are then not decoded."""

BODY_SCHEMA = ", ".join(["id STRING", *(f"{name} INT" for name in NUMBERS), *(f"{name} STRING" for name in CODES)])

REPLY_SCHEMA = """id STRING, plane STRUCT<year: INT, type: STRING, manufacturer: STRING, model: STRING,
    engines: INT, seats: INT, speed: INT, engine: STRING>"""


class DemoQueries:
    """The two queries; they run from the construction on.

    Args:
        spark: the session.
        plan: of the run.
        hasty: id of a flight whose notice is sent without its delay, for tests; or None.

    Attributes:
        writing: the query from the queue to Parquet.
        noticing: the query from there to the notices; it counts all flights as rows, late or not.
    """

    def __init__(self, spark: SparkSession, plan: DemoPlan, hasty: str | None) -> None:
        self._spark = spark
        self._plan = plan
        plan.enriched.mkdir()
        spark.dataSource.register(TimedDataSource)
        enriched = self._enriched()
        notices = self._notices(enriched.schema, hasty)
        self.writing = _start(enriched, "flights", plan, "parquet", path=str(plan.enriched))
        self.noticing = _start(
            notices, "notices", plan, "leveret-timed", url=plan.url, delayUnitMs=1, queue=NOTICES_QUEUE
        )

    def _enriched(self) -> DataFrame:
        answered = look_up(self._once() if self._plan.federated else self._flights(SOURCE_SCHEMA), self._plan)
        flight = f.from_json(f.col("body").cast("string"), BODY_SCHEMA)
        reply = f.from_json(f.col("reply").cast("string"), REPLY_SCHEMA)
        rows = answered.select("message_id", flight.alias("flight"), reply.alias("reply"))
        # a flight that never arrived was not on time
        on_time = f.coalesce(f.col("arr_delay") < LATE_MINUTES, f.lit(False))
        return rows.select("message_id", "flight.*", "reply.plane").drop("id").withColumn("on_time", on_time)

    def _once(self) -> DataFrame:
        """Return the flights of a federated run, without their publishers' repeats."""
        # with a single task, that one would make all lookups
        self._spark.conf.set("spark.sql.shuffle.partitions", FEDERATED_PARTITIONS)
        return without_repeats(self._flights(COPIES_SCHEMA), self._plan)

    def _flights(self, schema: str) -> DataFrame:
        source = self._spark.readStream.format("leveret").schema(schema)
        named = {"stream": FLIGHTS_QUEUE, "partitions": ",".join(AIRPORTS)} if self._plan.cluster else {}
        where = named or {"queue": FLIGHTS_QUEUE}
        return source.options(url=self._plan.url, maxRowsPerTrigger=ROWS_PER_TRIGGER, **where).load()

    def _notices(self, schema: StructType, hasty: str | None) -> DataFrame:
        flights = self._spark.readStream.schema(schema).parquet(str(self._plan.enriched))
        late = flights.where(f.col("arr_delay") >= LATE_MINUTES)
        delay_ms = f.round(f.col("air_time") * HOUR_MS / 60).cast("int")
        is_hasty = f.col("message_id") == f.lit(hasty)
        asked_s = f.when(is_hasty, 0.0).otherwise(delay_ms / 1000)
        told_ms = f.when(is_hasty, HASTY_MS).otherwise(delay_ms)
        notice = f.struct("message_id", "carrier", "flight", "origin", "dest", "arr_delay", "plane.model")
        return late.select(
            f.to_json(notice).cast("binary").alias("body"),
            "message_id",
            f.create_map(f.lit(DELAY_HEADER), told_ms.cast("string")).alias("headers"),
            asked_s.cast("double").alias("delay"),
        )

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
