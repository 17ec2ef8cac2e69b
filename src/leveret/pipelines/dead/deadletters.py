"""What dead-lettered, why, how often, when; and a selection of it back to where it came from.
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
    """Say what is in queues of dead letters, and send a selection of it on.

    Looking takes nothing out of a queue. To send, each queue is emptied as far as it is filled now, into files of the
    checkpoint; of each micro-batch the chosen go out and all others back into their queue, in one write: into leveret
    both exactly once.

    Args:
        spark: the session.
        queues: queues of dead letters.
        lake: archived dead letters, to be looked at, in place of queues.
        url: of the broker.
        where: a predicate of Spark's SQL over ``letters.COLUMNS``; None: all. To send one is needed; ``true`` is all.
        group_by: columns that the table is grouped by.
        exception_header: a header that says what went wrong, in place of the endpoints'.
        send_back: each of the chosen to the queue in which it died first, as if new.
        to_exchange: all of them to this exchange, with their first routing key and what they say of their deaths.
        to_queue: all of them to this queue, in the same way.
        checkpoint: directory of what is taken from queues, which driver and executors share; needed to send.
        messages_max: how many messages of a queue are looked at; None: all. Not to send.
        batch_rows: messages of a micro-batch.
        dry_run: say what would be sent, and send nothing.
        reporter: hears how far it is.

    Raises:
        PipelineError: a wrong argument; a queue, lake or broker that can't be used; a failure of Spark. What was taken
            from a queue and not sent yet is in the checkpoint, and the next run goes on with it.
    """
    is_sending = send_back or to_exchange is not None or to_queue is not None
    _check(queues, lake, where, send_back, to_exchange, to_queue, checkpoint, messages_max, is_sending, batch_rows)
    began_s = time.monotonic()
    destination = Destination(to_exchange, to_queue)
    directory = Path(checkpoint).absolute() if checkpoint is not None else None
    has_stages = destination.check(url) if is_sending else False
    reporter.phase("looking at dead letters")
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
    notes = [f"queue {queue!r} is not there: what died in it stays" for queue in wanted if queue not in reachable]
    tables = (_table(found, group_by),)
    if not is_sending or dry_run:
        figures["seconds"] = round(time.monotonic() - began_s, 3)
        return Summary("deadletters", figures, tables, tuple(notes), is_dry=is_sending)
    assert directory is not None
    assert where is not None
    sent = put_back = 0
    for queue in queues:
        # with nothing to send a queue is better left alone, unless a run before left something behind
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
        notes.append(f"run it again with checkpoint {checkpoint}: what was taken from a queue may still be there")
    return Summary("deadletters", figures, tables, tuple(notes), adds_up=len(reachable) == len(wanted))


def _check(
    queues: Sequence[str], lake: str | None, where: str | None, send_back: bool, to_exchange: str | None,
    to_queue: str | None, checkpoint: str | Path | None, messages_max: int | None, is_sending: bool, batch_rows: int,
) -> None:  # fmt: skip
    if bool(queues) == (lake is not None):
        raise PipelineError("say queues of dead letters, or a lake: one of them")
    if len(set(queues)) < len(queues) or not all(queues):
        raise PipelineError("say each queue once, by its name")
    if not is_sending:
        return
    if lake is not None:
        raise PipelineError("dead letters of a lake can be looked at; leveret spark replay sends them")
    if send_back + (to_exchange is not None) + (to_queue is not None) > 1:
        raise PipelineError("say one of send back, to exchange and to queue")
    if to_queue in queues:
        raise PipelineError(f"the queue to send to, {to_queue!r}, is the one that they are in")
    if where is None:
        raise PipelineError("say which are to be sent by where; 'true' means all")
    if checkpoint is None:
        raise PipelineError("a checkpoint is needed to send: the directory where messages are while they are moved")
    if messages_max is not None:
        raise PipelineError("a limit is for looking: what is sent is said by where")
    if batch_rows < 1:
        raise PipelineError(f"a micro-batch has 1 message at least, not {batch_rows}")


def _rows(
    spark: SparkSession, queues: Sequence[str], lake: str | None, url: str, messages_max: int | None,
    exception_header: str,
) -> DataFrame:  # fmt: skip
    if lake is not None:
        return letters.with_exception(letters.of_lake(spark, lake), exception_header)
    frames = [letters.of_queue(spark, url, queue, messages_max) for queue in queues]
    return letters.with_exception(reduce(DataFrame.union, frames), exception_header)


def _groups(chosen: DataFrame, group_by: Sequence[str]) -> list[Row]:
    """Most messages first; with each the ids of a message that died early and of one that died late."""
    unknown = [name for name in group_by if name not in chosen.columns]
    if unknown:
        raise PipelineError(f"--group-by {unknown[0]}: there is no such column; there are {', '.join(letters.COLUMNS)}")
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
