"""Dead letters on their way: those that were chosen go out, all others back into their queue, in one write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from leveret.client import BlockingChannel, BlockingConnection, ChannelClosed, ClientError, StagesMissing
from leveret.pipelines.dead import letters
from leveret.pipelines.errors import PipelineError, cause
from leveret.pipelines.reporter import Reporter
from leveret.pipelines.watch import WatchedQuery
from leveret.wire.errors import NOT_FOUND

BATCH_ROWS: Final = 50_000
LOOK_S: Final = 0.2
CONNECTION: Final = "leveret spark deadletters"


@dataclass(frozen=True)
class Destination:
    """Where the chosen go: to the queue in which each died first, or all to one exchange or queue. None = not so."""

    exchange: str | None = None
    queue: str | None = None

    @property
    def is_back(self) -> bool:
        """Whether each goes back to where it came from."""
        return self.exchange is None and self.queue is None

    def place(self) -> tuple[Column, Column]:
        """Exchange and routing key of a row that was chosen."""
        if self.exchange is not None:
            return F.lit(self.exchange), F.coalesce("first_key", "routing_key")
        return F.lit(""), F.lit(self.queue) if self.queue is not None else F.col("first_queue")

    def check(self, url: str) -> bool:
        """Whether the broker has stages. ``PipelineError`` where the destination is not there."""
        try:
            with BlockingConnection(url, name=CONNECTION) as connection:
                if self.exchange:
                    connection.channel().declare_exchange(self.exchange, passive=True)
                if self.queue is not None:
                    connection.channel().declare_queue(self.queue, passive=True)
                try:
                    connection.channel().staged("leveret-deadletters")
                    return True
                except StagesMissing:
                    return False
        except (ClientError, OSError, ValueError) as error:
            raise PipelineError(f"they can't be sent: {error}") from error


def existing(url: str, queues: list[str]) -> list[str]:
    """Those of these queues that are there."""
    try:
        with BlockingConnection(url, name=CONNECTION) as connection:
            return [queue for queue in queues if _exists(connection.channel(), queue)]
    except (ClientError, OSError) as error:
        raise PipelineError(f"the broker: {error}") from error


def _exists(channel: BlockingChannel, queue: str) -> bool:
    try:
        channel.declare_queue(queue, passive=True)
    except ChannelClosed as error:
        if error.code != NOT_FOUND:
            raise
        return False
    channel.close()
    return True


def home(checkpoint: Path, queue: str) -> Path:
    """The directory of what is kept of a queue."""
    return checkpoint / quote(queue, safe="").replace(".", "%2E")


def outgoing(rows: DataFrame, queue: str, chosen: Column, destination: Destination) -> DataFrame:
    """Rows as the sink publishes them: properties as they were, but for what would be wrong on this journey."""
    exchange, key = destination.place()
    # those whom CC names have their copies
    left_out = ("CC", *letters.OF_FAILURE) if destination.is_back else ("CC",)
    return rows.select(
        "body",
        F.when(chosen, exchange).otherwise("").alias("exchange"),
        F.when(chosen, key).otherwise(queue).alias("routing_key"),
        F.when(chosen, _without(left_out)).otherwise(_without(("CC",))).alias("headers"),
        "content_header",
    )


def _without(names: tuple[str, ...]) -> Column:
    return F.create_map(*(part for name in names for part in (F.lit(name), F.lit(None).cast("string"))))


def send(
    spark: SparkSession, queue: str, where: str, reachable: list[str], destination: Destination, url: str,
    checkpoint: Path, batch_rows: int, exception_header: str, reporter: Reporter,
) -> tuple[int, int]:  # fmt: skip
    """Take all that the queue has now, and send each message where it belongs: (sent, put back).

    where: what is true of the chosen; reachable: the queues that letters may go back to. ``PipelineError`` where the
    query fails: what it had taken is in its files, and the next run goes on with it.
    """
    directory = home(checkpoint, queue)
    rows = letters.of_spooled(spark, url, queue, str(directory / "spool"), batch_rows)
    rows = letters.with_exception(rows, exception_header)
    chosen = F.coalesce(F.expr(where), F.lit(False))
    if destination.is_back:
        chosen = chosen & F.coalesce(F.col("first_queue").isin(reachable), F.lit(False))
    counted = rows.withColumn("_chosen", chosen).observe(
        "letters", F.count_if("_chosen").alias("sent"), F.count("*").alias("all")
    )
    ready = outgoing(counted, queue, F.col("_chosen"), destination)
    writer = ready.coalesce(1).writeStream.format("leveret").option("url", url)
    try:
        query = writer.option("checkpointLocation", str(directory / "query")).trigger(availableNow=True).start()
        return _watched(query, queue, reporter)
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"Spark's query over {queue!r} failed: {cause(error)}") from error


def _watched(query: StreamingQuery, queue: str, reporter: Reporter) -> tuple[int, int]:
    watched = WatchedQuery(query)
    batches: dict[int, tuple[int, int]] = {}
    try:
        is_over = False
        while not is_over and not reporter.is_ended:
            is_over = bool(query.awaitTermination(LOOK_S))
            _note(query, batches)
            reporter.show(queue, sum(both for _, both in batches.values()))
    finally:
        watched.stop()
    _note(query, batches)
    watched.look()
    sent, both = (sum(each) for each in zip(*batches.values(), strict=True)) if batches else (0, 0)
    return sent, both - sent


def _note(query: StreamingQuery, batches: dict[int, tuple[int, int]]) -> None:
    """Spark keeps the progress of its last micro-batches only."""
    for one in query.recentProgress:
        told = one["observedMetrics"].get("letters")
        if told is not None and one["numInputRows"]:
            batches[one["batchId"]] = told["sent"], told["all"]
