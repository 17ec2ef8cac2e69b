"""Sends dead letters: the selected ones to their destination, all others back into their queue, in one write."""

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
from leveret.pipelines.watch import WatchedQuery, observed
from leveret.wire.errors import NOT_FOUND

BATCH_ROWS: Final = 50_000
LOOK_S: Final = 1
PUT_BACK: Final = "x-put-back"
"""A header of messages that are put back into their queue, with a different value in each run.

A spool recognises redelivered messages, and drops them. A message that was put back must not be dropped, though it is
marked as redelivered if a consumer that died had it already; with this header it is another message.
"""

CONNECTION: Final = "leveret spark deadletters"


@dataclass(frozen=True)
class Destination:
    """Where the selected messages go: all to one exchange or queue, or, if both are None, each to its first queue."""

    exchange: str | None = None
    queue: str | None = None

    @property
    def is_back(self) -> bool:
        """Whether each message goes back to the queue in which it died first."""
        return self.exchange is None and self.queue is None

    def place(self) -> tuple[Column, Column]:
        """Return exchange and routing key for a selected row."""
        if self.exchange is not None:
            return F.lit(self.exchange), F.coalesce("first_key", "routing_key")
        return F.lit(""), F.lit(self.queue) if self.queue is not None else F.col("first_queue")

    def check(self, url: str) -> bool:
        """Return whether the broker has stages. ``PipelineError`` if the destination does not exist."""
        try:
            with BlockingConnection(url, name=CONNECTION, reconnect=False) as connection:
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
    """Return those of the queues that exist."""
    try:
        with BlockingConnection(url, name=CONNECTION, reconnect=False) as connection:
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
    """Return the checkpoint's directory for a queue."""
    return checkpoint / quote(queue, safe="").replace(".", "%2E")


def outgoing(rows: DataFrame, queue: str, chosen: Column, destination: Destination, run: str) -> DataFrame:
    """Return rows for the sink, with unchanged properties, except those that would be wrong on the new route.

    ``run`` is a value unique to this run, for messages that are put back.
    """
    exchange, key = destination.place()
    # without CC, since the queues named there have their copies
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
    """Take all current messages from the queue and send or put back each; returns the numbers (sent, put back).

    ``where`` selects the messages to send; ``reachable`` are the queues to which they may go back. ``PipelineError`` if
    the query fails: the messages taken are in its files, and the next run resumes with them.
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
    """Whether all messages taken from the queue are sent, by Spark's checkpoint."""
    taken = [int(path.stem.split("-")[1]) for path in (directory / "spool").glob("*-*.*") if path.stem[:1].isdigit()]
    done = [int(path.name) for path in (directory / "query" / "commits").glob("*") if path.name.isdigit()]
    if not done:
        return not taken
    log = (directory / "query" / "offsets" / str(max(done))).read_text()
    return bool(json.loads(log.splitlines()[-1])["messages"] == max(taken, default=0))


def _forget(url: str, query: str) -> None:
    """Have the broker forget the query, which will not run again with this checkpoint."""
    try:
        with BlockingConnection(url, name=CONNECTION, reconnect=False) as connection:
            connection.channel().forget_query(query)
    except ClientError:
        return  # RabbitMQ knows no queries; a leveret keeps one number


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
    """Note the observed counts, since Spark keeps the progress of the last micro-batches only."""
    for one in query.recentProgress:
        told = observed(one, "letters")
        if told is not None and one.numInputRows:
            batches[one["batchId"]] = told["sent"], told["all"]
