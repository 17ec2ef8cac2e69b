"""Calls a service for each event, and adds the reply as a struct."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leveret.pipelines.enriching.events import CORRUPT, ERROR
from leveret.pipelines.errors import PipelineError, cause
from leveret.spark.rpc import rpc

__all__ = ["Service", "lookups"]


@dataclass(frozen=True)
class Service:
    """A service: its address, its requests, and the schema of its JSON replies.

    Attributes:
        key: routing key of the requests.
        request: SQL for the request; null sends none.
        window, timeout_s: as in ``leveret.spark.rpc``.
    """

    key: str
    reply_schema: str
    exchange: str = ""
    request: str = "body"
    window: int = 256
    timeout_s: float = 30.0


def lookups(frame: DataFrame, service: Service, url: str, fails: bool = True) -> DataFrame:
    """Add the column ``reply`` with the service's replies; rows with an ``error`` are not sent.

    If ``fails``, a request without a valid reply fails the task; otherwise it sets ``error``. Calls are made at least
    once: a task that Spark repeats calls again. ``PipelineError`` if SQL is invalid.
    """
    parse = {"columnNameOfCorruptRecord": CORRUPT}
    try:
        asked = frame.withColumn("request", F.when(F.col(ERROR).isNull(), F.expr(service.request)))
        answered = rpc(
            asked, service.exchange, service.key, service.window, service.timeout_s, url=url, request="request",
            reply="said", on_error="fail" if fails else "column",
        )  # fmt: skip
        schema = f"{service.reply_schema}, {CORRUPT} STRING"
        parsed = answered.withColumn("reply", F.from_json(F.col("said").cast("string"), schema, parse))
        is_wrong = F.col("said").isNotNull() & (F.col("reply").isNull() | F.col(f"reply.{CORRUPT}").isNotNull())
        errors = [F.col(ERROR), F.when(is_wrong, F.lit("the reply is not JSON of this schema"))]
        if not fails:
            errors.append(F.col("said_error"))
        found = parsed.withColumn(ERROR, F.coalesce(*errors))
        found = found.withColumn("reply", F.when(~is_wrong, F.col("reply").dropFields(CORRUPT)))
        return found.drop("request", "said", "said_error")
    except (PySparkException, ValueError) as error:
        raise PipelineError(f"the service {service.key}: {cause(error)}") from error
