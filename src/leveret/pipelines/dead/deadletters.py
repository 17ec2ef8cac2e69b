"""The pipeline ``deadletters``: what was dead-lettered, why and when; and sending a selection back. See
docs/guides/spark/deadletters.md."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from leveret.pipelines.dead import letters
from leveret.pipelines.dead.sending import BATCH_ROWS, Destination, existing, home, send
from leveret.pipelines.errors import PipelineError, cause
from leveret.pipelines.predicate import matching
from leveret.pipelines.reporter import Reporter
from leveret.pipelines.summary import Summary, Table, Value
from leveret.spark.options import URL_DEFAULT
from leveret.spark.sink.options import AT_LEAST_ONCE, EXACTLY_ONCE

GROUPS: Final = ("reason", "queue", "exception")


def deadletters(
    spark: SparkSession,
    queues: Sequence[str] = (),
    *,
    lake: str | None = None,
    url: str = URL_DEFAULT,
    where: str | None = None,
    group_by: Sequence[str] = GROUPS,
    exception_header: str = letters.EXCEPTION,
    send_back: bool = False,
    to_exchange: str | None = None,
    to_queue: str | None = None,
    checkpoint: str | Path | None = None,
    messages_max: int | None = None,
    batch_rows: int = BATCH_ROWS,
    dry_run: bool = False,
    reporter: Reporter = Reporter(),  # noqa: B008  # it has no state
) -> Summary:
    """Report on the messages in dead letter queues, and send a selection of them on.

    The report takes nothing out of a queue. To send, each queue's current messages are moved into files of the
    checkpoint. Of each micro-batch the selected messages are sent and all others are put back into their queue, in one
    write: with leveret, both exactly once.

    Args:
        spark: the session.
        queues: queues of dead letters.
        lake: archived dead letters to report on, instead of queues.
        url: the broker.
        where: a Spark SQL predicate over ``letters.COLUMNS``; None selects all. Required to send; ``true`` sends all.
        group_by: columns to group the table by.
        exception_header: header with the error, instead of those that endpoints set.
        send_back: send each message to the queue in which it died first, as if new.
        to_exchange: send all to this exchange, with their first routing key and their death history.
        to_queue: send all to this queue, likewise.
        checkpoint: directory for messages that are taken from queues, shared by driver and executors; required to send.
        messages_max: most messages of a queue to report on; None for all. Not for sending.
        batch_rows: messages of a micro-batch.
        dry_run: tell what would be sent, and send nothing.
        reporter: receives the progress.

    Raises:
        PipelineError: a wrong argument; a queue, lake or broker is unusable; Spark failed. Messages that were taken
            from a queue and not sent yet are in the checkpoint, and the next run resumes with them.
    """
    is_sending = send_back or to_exchange is not None or to_queue is not None
    _check(queues, lake, where, send_back, to_exchange, to_queue, checkpoint, messages_max, is_sending, batch_rows)
    began_s = time.monotonic()
    destination = Destination(to_exchange, to_queue)
    directory = Path(checkpoint).absolute() if checkpoint is not None else None
    has_stages = destination.check(url) if is_sending else False
    reporter.phase("reading dead letters")
    rows = _rows(spark, queues, lake, url, messages_max, exception_header)
    chosen = matching(rows, where).persist()
    try:
        found = _groups(chosen, group_by)
        wanted = _first_queues(chosen) if is_sending and destination.is_back else []
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"dead letters can't be read: {cause(error)}") from error
    finally:
        chosen.unpersist()
    reachable = existing(url, wanted)
    figures: dict[str, Value] = {
        "messages": sum(row["messages"] for row in found), "deaths": sum(row["deaths"] or 0 for row in found),
    }  # fmt: skip
    notes = [
        f"queue {queue!r} does not exist: its dead letters stay where they are"
        for queue in wanted
        if queue not in reachable
    ]
    tables = (_table(found, group_by),)
    if not is_sending or dry_run:
        figures["seconds"] = round(time.monotonic() - began_s, 3)
        return Summary("deadletters", figures, tables, tuple(notes), is_dry=is_sending)
    assert directory is not None
    assert where is not None
    sent = put_back = 0
    for queue in queues:
        # leave a queue alone if there is nothing to send, unless an earlier run left messages behind
        if not figures["messages"] and not home(directory, queue).exists():
            continue
        reporter.phase(f"sending from {queue}")
        its_sent, its_back = send(
            spark, queue, where, reachable, destination, url, directory, batch_rows, exception_header, reporter
        )
        sent, put_back = sent + its_sent, put_back + its_back
    figures |= {
        "sent": sent, "put_back": put_back, "seconds": round(time.monotonic() - began_s, 3),
        "delivery": EXACTLY_ONCE if has_stages else AT_LEAST_ONCE,
    }  # fmt: skip
    if reporter.is_ended:
        notes.append(
            f"run it again with checkpoint {checkpoint}: it may still hold messages that were taken from a queue"
        )
    return Summary("deadletters", figures, tables, tuple(notes), adds_up=len(reachable) == len(wanted))


def _check(
    queues: Sequence[str], lake: str | None, where: str | None, send_back: bool, to_exchange: str | None,
    to_queue: str | None, checkpoint: str | Path | None, messages_max: int | None, is_sending: bool, batch_rows: int,
) -> None:  # fmt: skip
    if bool(queues) == (lake is not None):
        raise PipelineError("name either queues of dead letters or a lake")
    if len(set(queues)) < len(queues) or not all(queues):
        raise PipelineError("name each queue once")
    if not is_sending:
        return
    if lake is not None:
        raise PipelineError("dead letters of a lake can only be viewed; send them with leveret spark replay")
    if send_back + (to_exchange is not None) + (to_queue is not None) > 1:
        raise PipelineError("use only one of send back, to exchange and to queue")
    if to_queue in queues:
        raise PipelineError(f"the queue to send to, {to_queue!r}, is the queue that already holds them")
    if where is None:
        raise PipelineError("choose the messages to send with where; 'true' means all")
    if checkpoint is None:
        raise PipelineError("sending needs a checkpoint: the directory that holds messages while they are moved")
    if messages_max is not None:
        raise PipelineError("a limit is only for viewing: choose the messages to send with where")
    if batch_rows < 1:
        raise PipelineError(f"a micro-batch must have at least 1 message, not {batch_rows}")


def _rows(
    spark: SparkSession, queues: Sequence[str], lake: str | None, url: str, messages_max: int | None,
    exception_header: str,
) -> DataFrame:  # fmt: skip
    if lake is not None:
        return letters.with_exception(letters.of_lake(spark, lake), exception_header)
    frames = [letters.of_queue(spark, url, queue, messages_max) for queue in queues]
    return letters.with_exception(reduce(DataFrame.union, frames), exception_header)


def _groups(chosen: DataFrame, group_by: Sequence[str]) -> list[Row]:
    """Group the messages, largest group first, each with the ids of an early and a late dead letter."""
    unknown = [name for name in group_by if name not in chosen.columns]
    if unknown:
        raise PipelineError(
            f"--group-by {unknown[0]}: there is no such column; the columns are {', '.join(letters.COLUMNS)}"
        )
    found = chosen.groupBy(*group_by).agg(
        F.count("*").alias("messages"), F.sum("deaths").alias("deaths"),
        F.unix_micros(F.min("died_at")).alias("first"), F.unix_micros(F.max("died_at")).alias("last"),
        F.min_by("message_id", "died_at").alias("early"), F.max_by("message_id", "died_at").alias("late"),
    )  # fmt: skip
    return found.orderBy(F.desc("messages"), *group_by).collect()


def _first_queues(chosen: DataFrame) -> list[str]:
    return [row[0] for row in chosen.select("first_queue").distinct().orderBy("first_queue").collect() if row[0]]


def _table(found: list[Row], group_by: Sequence[str]) -> Table:
    rows = [
        (*(None if row[name] is None else str(row[name]) for name in group_by), row["messages"], row["deaths"],
         _time(row["first"]), _time(row["last"]), row["early"], row["late"])
        for row in found
    ]  # fmt: skip
    columns = (*group_by, "messages", "deaths", "first", "last", "an early one", "a late one")
    return Table(f"dead letters by {', '.join(group_by)}", columns, tuple(rows))


def _time(micros: int | None) -> str | None:
    return (
        None
        if micros is None
        else datetime.fromtimestamp(micros / 1e6, UTC).replace(tzinfo=None).isoformat(" ", "seconds")
    )
