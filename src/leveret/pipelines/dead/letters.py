"""Dead letters as rows, with what their headers tell: where, why and how often they died."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from leveret.pipelines.archives import lake
from leveret.pipelines.errors import PipelineError, cause
from leveret.pipelines.loading import loaded

EXCEPTION: Final = "NServiceBus.ExceptionInfo.ExceptionType"
"""The header in which endpoints name the exception."""

FAILED: Final = "failed"
"""The reason for messages that an endpoint could not handle, and that never died in a queue."""

OF_DEATHS: Final = (
    "x-death",
    *(f"x-{which}-death-{what}" for which in ("first", "last") for what in ("exchange", "queue", "reason")),
)
_OF_ENDPOINTS: Final = (
    "NServiceBus.FailedQ", "NServiceBus.TimeOfFailure", "NServiceBus.ProcessingEndpoint",
    "NServiceBus.ProcessingMachine", "Leveret.ImmediateRetries", "Leveret.DelayedRetries", "NServiceBus.Retries",
    "NServiceBus.Retries.Timestamp", "NServiceBus.FLRetries",
    *(f"NServiceBus.ExceptionInfo.{what}"
      for what in ("ExceptionType", "InnerExceptionType", "Message", "Source", "StackTrace")),
)  # fmt: skip
OF_FAILURE: Final = (*OF_DEATHS, *_OF_ENDPOINTS)
"""Headers that a message sent as new must not carry: RabbitMQ would take an old death for a cycle."""

COLUMNS: Final = (
    "source", "reason", "queue", "exception", "exception_message", "deaths", "died_at", "first_queue",
    "first_exchange", "first_key", "body", "exchange", "routing_key", "headers", "message_id", "type",
    "correlation_id", "app_id", "timestamp",
)  # fmt: skip
"""The columns that a predicate may use, besides ``data`` of a lake that has it."""

_DEATHS: Final = (
    "array<struct<count bigint, reason string, queue string, exchange string, `routing-keys` array<string>, "
    "time timestamp, `original-expiration` string>>"
)
_READ: Final = "body,exchange,routing_key,headers,message_id,type,correlation_id,app_id,timestamp,content_header"


def of_queue(spark: SparkSession, url: str, queue: str, messages_max: int | None) -> DataFrame:
    """Return the dead letters in a queue, which keeps them. ``PipelineError`` if they cannot be read."""
    reader = spark.read.format("leveret").options(url=url, queue=queue, mode="peek", columns=_READ)
    if messages_max is not None:
        reader = reader.option("maxRows", messages_max)
    return letters(loaded(reader, "dead letters").withColumn("source", F.lit(queue)))


def of_spooled(spark: SparkSession, url: str, queue: str, spool: str, rows_max: int) -> DataFrame:
    """Return the dead letters in a queue as a stream that moves them into a spool. ``PipelineError`` like
    ``of_queue``."""
    reader = spark.readStream.format("leveret").options(url=url, queue=queue, mode="spool", columns=_READ)
    reader = reader.options(spoolDir=spool, maxRowsPerTrigger=rows_max)
    return letters(loaded(reader, "dead letters").withColumn("source", F.lit(queue)))


def of_lake(spark: SparkSession, path: str) -> DataFrame:
    """Return the dead letters of a lake. ``PipelineError`` if it is unusable."""
    try:
        rows = lake.read(spark, path)
        missing = [name for name in (*_READ.split(","), "source") if name not in rows.columns]
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"the lake {path} can't be read: {cause(error)}") from error
    if "body" in missing or "headers" in missing:
        raise PipelineError(f"{path} is not a lake of messages: it has no column body or headers")
    kinds = {"timestamp": "timestamp", "content_header": "binary"}
    return letters(rows.withColumns({name: F.lit(None).cast(kinds.get(name, "string")) for name in missing}))


def with_exception(rows: DataFrame, header: str) -> DataFrame:
    """Take the column ``exception`` from another header, where a row has that."""
    return rows if header == EXCEPTION else rows.withColumn("exception", F.coalesce(_header(header), "exception"))


def letters(rows: DataFrame) -> DataFrame:
    """Add the columns of :data:`COLUMNS` to rows of messages."""
    deaths = F.from_json(_header("x-death"), _DEATHS)
    rows = rows.withColumn("_deaths", F.coalesce(deaths, F.array().cast(_DEATHS)))
    latest, oldest = F.try_element_at("_deaths", F.lit(1)), F.try_element_at("_deaths", F.lit(-1))
    failed_at = F.try_to_timestamp(_header("NServiceBus.TimeOfFailure"), F.lit("yyyy-MM-dd HH:mm:ss:SSSSSS X"))
    failed_in = _header("NServiceBus.FailedQ")
    count = F.aggregate("_deaths", F.lit(0).cast("bigint"), lambda sum_, one: sum_ + F.coalesce(one["count"], F.lit(1)))
    found = {
        "reason": F.coalesce(latest["reason"], F.when(failed_in.isNotNull(), FAILED)),
        "queue": F.coalesce(latest["queue"], failed_in),
        "exception": _header(EXCEPTION),
        "exception_message": _header("NServiceBus.ExceptionInfo.Message"),
        "deaths": F.when((count == 0) & failed_in.isNotNull(), F.lit(1).cast("bigint")).otherwise(count),
        "died_at": F.coalesce(latest["time"], failed_at),
        "first_queue": F.coalesce(_header("x-first-death-queue"), oldest["queue"], failed_in),
        "first_exchange": F.coalesce(_header("x-first-death-exchange"), oldest["exchange"]),
        "first_key": F.try_element_at(oldest["routing-keys"], F.lit(1)),
    }
    return rows.withColumns(found).drop("_deaths")


def _header(name: str) -> Column:
    return F.col("headers")[name]
