"""Dead letters on their way: those that were chosen go out, all others back into their queue, in one write."""

from __future__ import annotations

import json
import shutil
import uuid
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
LOOK_S: Final = 1
PUT_BACK: Final = "x-put-back"
"""A header of messages that are back in their queue, with another value in each run.

A spool knows a message that comes again, and drops it. One that was put back is none of these, though it is marked as
redelivered where a consumer that died had it already: the header makes it another message.
"""

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


def outgoing(rows: DataFrame, queue: str, chosen: Column, destination: Destination, run: str) -> DataFrame:
    """Rows as the sink publishes them: properties as they were, but for what would be wrong on this journey.

    run: a name that no other run has, for those that are put back.
    """
    exchange, key = destination.place()
    # those whom CC names have their copies
    left_out = ("CC", PUT_BACK, *letters.OF_FAILURE) if destination.is_back else ("CC", PUT_BACK)
    returned = F.create_map(F.lit("CC"), F.lit(None), F.lit(PUT_BACK), F.lit(run))
    return rows.select(
        "body",
        F.when(chosen, exchange).otherwise("").alias("exchange"),
        F.when(chosen, key).otherwise(queue).alias("routing_key"),
        F.when(chosen, _without(left_out)).otherwise(returned).alias("headers"),
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
    ready = outgoing(counted, queue, F.col("_chosen"), destination, uuid.uuid4().hex)
    writer = ready.coalesce(1).writeStream.format("leveret").option("url", url)
    try:
        query = writer.option("checkpointLocation", str(directory / "query")).trigger(availableNow=True).start()
        found = _watched(query, queue, reporter)
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"Spark's query over {queue!r} failed: {cause(error)}") from error
    if _is_done(directory):
        _forget(url, str(query.id))
        shutil.rmtree(directory)
    return found


def _is_done(directory: Path) -> bool:
    """Whether all that was taken out of the queue has been sent, by Spark's own word."""
    taken = [int(path.stem.split("-")[1]) for path in (directory / "spool").glob("*-*.*") if path.stem[:1].isdigit()]
    done = [int(path.name) for path in (directory / "query" / "commits").glob("*") if path.name.isdigit()]
    if not done:
        return not taken
    log = (directory / "query" / "offsets" / str(max(done))).read_text()
    return bool(json.loads(log.splitlines()[-1])["messages"] == max(taken, default=0))


def _forget(url: str, query: str) -> None:
    """The broker need not know the query any more: there will be none with this checkpoint."""
    try:
        with BlockingConnection(url, name=CONNECTION) as connection:
            connection.channel().forget_query(query)
    except ClientError:
        return  # RabbitMQ has none; of a leveret one number stays there


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
