"""The pipeline ``replay``: messages of a lake or stream again, in order, paced, marked, each once. See
docs/guides/spark/replay.md."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from leveret.client import BlockingConnection, ClientError, StagesMissing
from leveret.pipelines.errors import PipelineError, cause
from leveret.pipelines.predicate import matching
from leveret.pipelines.replays import choosing, source
from leveret.pipelines.replays.selection import ReplaySelection, SelectionTotals, totals
from leveret.pipelines.reporter import Reporter
from leveret.pipelines.summary import Summary, Table, Value
from leveret.pipelines.watch import WatchedQuery
from leveret.spark.options import URL_DEFAULT
from leveret.spark.sink.options import AT_LEAST_ONCE, AUTO, EXACTLY_ONCE

MARKER: Final = "x-replayed"
LOOK_S: Final = 0.1
TASKS: Final = 2
"""Tasks of a micro-batch with stages, which are released in order; without stages a single task keeps the order."""


def replay(
    spark: SparkSession,
    exchange: str,
    *,
    name: str,
    checkpoint: str | Path,
    lake: str | None = None,
    stream: str | None = None,
    starting: str | None = None,
    ending: str | None = None,
    where: str | None = None,
    routing_key: str | None = None,
    url: str = URL_DEFAULT,
    source_url: str | None = None,
    rate: float | None = None,
    speed: float | None = None,
    marker: str = MARKER,
    delivery: str = AUTO,
    dry_run: bool = False,
    reporter: Reporter = Reporter(),  # noqa: B008  # it has no state
) -> Summary:
    """Publish messages of a lake or of a stream again, in their original order.

    The selection is written into the checkpoint first, and does not change: a replay that is run again with its
    checkpoint resumes after the last committed micro-batch.

    Args:
        spark: the session.
        exchange: destination; '' is the default exchange.
        name: name of this replay, the value of the marker header.
        checkpoint: directory for this replay alone, shared by driver and executors.
        lake: a lake that ``leveret.pipelines.archive`` has written. Either this or ``stream``.
        stream: a stream, or a super stream, of the broker at ``source_url``.
        starting: start in a stream: ``earliest`` (the default), an offset or a time in ISO 8601.
        ending: end in a stream, exclusive, likewise; None for its current end.
        where: a Spark SQL predicate over the columns of the lake or stream; None selects all.
        routing_key: routing key for all messages; None keeps each message's own.
        url: the broker that gets the messages.
        source_url: the stream's broker, by default the same.
        rate: most messages per second.
        speed: keep the original spacing, this many times as fast. Without rate and speed: as fast as possible.
        marker: the header that gets ``name``.
        delivery: ``exactly-once`` by leveret's stages, ``at-least-once``, or ``auto`` for exactly-once if possible.
        dry_run: only tell what would be sent.
        reporter: receives the progress.

    Raises:
        PipelineError: a wrong argument; a lake, stream or broker is unusable; Spark failed.
    """
    _check(name, lake, stream, starting, ending, routing_key, rate, speed, marker, delivery)
    began_s = time.monotonic()
    directory = Path(checkpoint).absolute()
    asked = {
        "name": name, "lake": lake, "stream": stream, "starting": starting, "ending": ending, "where": where,
        "exchange": exchange, "routing_key": routing_key, "marker": marker, "with_times": speed is not None,
    }  # fmt: skip
    asked_before = {key: value for key, value in asked.items() if key != "with_times"}
    selection = ReplaySelection.of(directory, asked_before)
    if selection is None:
        reporter.phase("choosing messages")
        options = {"url": source_url or url, "stream": stream or "", **_places(starting, ending)}
        has_times = speed is not None
        rows = choosing.of_lake(spark, lake) if lake is not None else choosing.of_stream(spark, options, has_times)
        rows = matching(rows, where)
        if dry_run:
            timed = choosing.ordered(rows).select("exchange", "routing_key", "due")
            return _dry(totals(timed), 0, rate, speed)
        ready = choosing.published(choosing.ordered(rows), marker, name, routing_key)
        selection = ReplaySelection.make(ready, directory, asked)
    found = selection.totals
    sent_before = min(_sent(directory), found.messages)
    if dry_run:
        return _dry(found, sent_before, rate, speed)
    if speed is not None and found.messages and found.first_us is None:
        raise PipelineError("no message has its original time, so the original spacing is unknown: use rate")
    is_exactly_once = _is_exactly_once(url, delivery)
    reporter.phase(f"sending {found.messages - sent_before:,} of {found.messages:,} messages")
    sending_s = time.monotonic()
    query = _started(spark, selection, directory, exchange, url, rate, speed, delivery, is_exactly_once)
    sent = _watched(query, sent_before, found.messages, reporter)
    done_s = time.monotonic()
    if is_exactly_once and sent == found.messages and found.messages:
        _forget(url, str(query.id))
    seconds = (done_s - began_s, done_s - sending_s)
    return _summary(found, sent_before, sent, seconds, is_exactly_once, checkpoint)


def _summary(
    found: SelectionTotals, sent_before: int, sent: int, seconds: tuple[float, float], is_exactly_once: bool,
    checkpoint: str | Path,
) -> Summary:  # fmt: skip
    """Summarise a run; ``seconds`` has those of the run and those of sending."""
    here = sent - sent_before
    figures: dict[str, Value] = {
        "messages": here, "sent_in_all": sent, "left": found.messages - sent,
        "seconds": round(seconds[0], 3),
        "messages_per_second": round(here / max(seconds[1], 1e-9), 1),
        **_span(found), "delivery": EXACTLY_ONCE if is_exactly_once else AT_LEAST_ONCE,
    }  # fmt: skip
    notes = [] if sent == found.messages else [f"run it again with checkpoint {checkpoint} to send what is left"]
    if not is_exactly_once:
        notes.append(
            "the broker does not support stages, or they were not requested: messages that a crash repeats "
            "may arrive twice"
        )
    return Summary("replay", figures, (_keys(found),), tuple(notes))


def _check(
    name: str, lake: str | None, stream: str | None, starting: str | None, ending: str | None,
    routing_key: str | None, rate: float | None, speed: float | None, marker: str, delivery: str,
) -> None:  # fmt: skip
    if (lake is None) == (stream is None):
        raise PipelineError("name either a lake or a stream to replay")
    if lake is not None and (starting is not None or ending is not None):
        raise PipelineError(
            "from and to are positions in a stream; for a lake use where, like \"arrived >= '2013-01-02'\""
        )
    if not name:
        raise PipelineError("a replay needs a name for the marker header")
    for what, text in (("marker", marker), ("routing key", routing_key or "")):
        if len(text.encode()) > 255:
            raise PipelineError(f"the {what} has {len(text.encode())} octets, but AMQP allows only 255")
    if not marker:
        raise PipelineError("the marker is the name of a header, and can't be empty")
    if rate is not None and speed is not None:
        raise PipelineError("use either rate (messages per second) or speed (the original spacing), not both")
    for what, number in (("rate", rate), ("speed", speed)):
        if number is not None and not 0 < number < 1e9:
            raise PipelineError(f"the {what} must be more than 0 and less than 1,000,000,000, not {number:g}")
    if delivery not in (AUTO, EXACTLY_ONCE, AT_LEAST_ONCE):
        raise PipelineError(f"delivery must be {AUTO}, {EXACTLY_ONCE} or {AT_LEAST_ONCE}, not {delivery!r}")


def _places(starting: str | None, ending: str | None) -> dict[str, str]:
    given = {"startingOffsets": starting, "endingOffsets": ending}
    return {option: place for option, place in given.items() if place is not None}


def _is_exactly_once(url: str, delivery: str) -> bool:
    if delivery == AT_LEAST_ONCE:
        return False
    try:
        with BlockingConnection(url, name="leveret spark replay", reconnect=False) as connection:
            connection.channel().staged("leveret-replay")
        return True
    except StagesMissing as error:
        if delivery == EXACTLY_ONCE:
            raise PipelineError(f"delivery exactly-once needs leveret as the broker: {error}") from None
        return False
    except (ClientError, OSError, ValueError) as error:
        raise PipelineError(f"the broker at the other end: {error}") from error


def _started(
    spark: SparkSession, selection: ReplaySelection, directory: Path, exchange: str, url: str, rate: float | None,
    speed: float | None, delivery: str, is_exactly_once: bool,
) -> StreamingQuery:  # fmt: skip
    spark.dataSource.register(source.ReplaySource)
    given = source.options(selection, rate, speed, TASKS if is_exactly_once else 1)
    rows = spark.readStream.format(source.NAME).options(**given).load()
    writer = rows.writeStream.format(source.NAME).options(**given, url=url, exchange=exchange, delivery=delivery)
    try:
        return writer.option("checkpointLocation", str(directory / "query")).start()
    except Exception as error:
        raise PipelineError(f"Spark's query did not start: {cause(error)}") from error


def _watched(query: StreamingQuery, sent: int, messages: int, reporter: Reporter) -> int:
    """Watch the query until all is sent or the reporter requests the end; return the number of messages sent."""
    watched = WatchedQuery(query)
    try:
        while sent < messages and not reporter.is_ended and not watched.is_over:
            time.sleep(LOOK_S)
            watched.look()
            sent = max(sent, _reached(query))
            reporter.show("messages", sent, messages)
    except PipelineError:
        raise
    except Exception as error:
        watched.look()
        raise PipelineError(f"Spark's query failed: {cause(error)}") from error
    finally:
        watched.stop()
    return max(sent, _reached(query))


def _reached(query: StreamingQuery) -> int:
    """Return the number of messages in committed micro-batches."""
    progress = query.lastProgress
    if progress is None:
        return 0
    ended: Any = progress["sources"][0]["endOffset"]
    ended = json.loads(ended) if isinstance(ended, str) else ended
    return int(ended["next"]) if ended else 0


def _sent(directory: Path) -> int:
    """Return the number of messages sent before the query starts, from its checkpoint."""
    done = [int(path.name) for path in (directory / "query" / "commits").glob("*") if path.name.isdigit()]
    if not done:
        return 0
    log = (directory / "query" / "offsets" / str(max(done))).read_text()
    return int(json.loads(log.splitlines()[-1])["next"])


def _forget(url: str, query: str) -> None:
    """Have the broker forget the query: Spark has noted its last micro-batch as done."""
    try:
        with BlockingConnection(url, name="leveret spark replay", reconnect=False) as connection:
            connection.channel().forget_query(query)
    except ClientError:
        return  # the broker keeps one number; the messages have arrived


def _dry(found: SelectionTotals, sent: int, rate: float | None, speed: float | None) -> Summary:
    left = found.messages - sent
    takes_s: float | None = None
    if rate is not None:
        takes_s = left / rate
    elif speed is not None and found.first_us is not None and found.last_us is not None:
        takes_s = (found.last_us - found.first_us) / 1e6 / speed
    figures: dict[str, Value] = {"messages": left, "sent_in_all": sent, **_span(found), "would_take_seconds": takes_s}
    return Summary("replay", figures, (_keys(found),), is_dry=True)


def _span(found: SelectionTotals) -> dict[str, Value]:
    if found.first_us is None or found.last_us is None:
        return {"first": None, "last": None, "span_seconds": None}
    first, last = (datetime.fromtimestamp(each / 1e6, UTC).isoformat() for each in (found.first_us, found.last_us))
    return {"first": first, "last": last, "span_seconds": (found.last_us - found.first_us) / 1e6}


def _keys(found: SelectionTotals) -> Table:
    of = "" if found.key_count <= len(found.keys) else f" (the first {len(found.keys)} of {found.key_count})"
    return Table(f"by exchange and routing key{of}", ("exchange", "routing key", "messages"), found.keys)
