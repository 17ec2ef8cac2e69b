"""Exactly-once writes: tasks publish into stages, and the driver makes a batch visible as a whole, or drops it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage

from leveret.client import (
    BlockingChannel,
    BlockingConnection,
    ChannelClosed,
    ClientError,
    StagesMissing,
)
from leveret.spark.connection_cache import cached_connection
from leveret.spark.sink.connecting import SinkError, with_retries
from leveret.spark.sink.options import EXACTLY_ONCE, SinkOptions

COMMIT: Final = "leveret spark commit"

_log = logging.getLogger("leveret.spark")
_warned: set[str] = set()


@dataclass
class Published(WriterCommitMessage):
    """A task's message to the driver: the rows it wrote.

    Attributes:
        attempt: the stage; "" if nothing is staged: no rows, at-least-once delivery, or a batch that is released
            already.
    """

    partition: int
    rows: int
    query: str = ""
    batch: int = -1
    attempt: str = ""


@dataclass(frozen=True)
class Batch:
    """A unit of writing: batch number ``batch`` of the query ``query``."""

    query: str
    batch: int


def attached(
    connection: BlockingConnection, options: SinkOptions, batch: Batch, attempt: str
) -> tuple[BlockingChannel, bool] | None:
    """Return a channel, and whether it publishes into a stage; None if the batch is released already.

    Raises ``SinkError``, before anything is published, if stages are required and the broker has none.
    """
    channel = connection.channel()
    try:
        known = channel.staged(batch.query)
        if known is not None and known["last_batch"] is not None and known["last_batch"] >= batch.batch:
            channel.close()
            return None
        channel.attach_stage(batch.query, batch.batch, attempt, options.stage_expires_s * 1000)
        return channel, True
    except StagesMissing as error:
        if options.delivery == EXACTLY_ONCE:
            raise SinkError(
                f"option delivery=exactly-once needs leveret as the broker: {error}; delivery=at-least-once writes to "
                "any broker"
            ) from None
        _warn_once(options.url)
        return connection.channel(), False


def release(options: SinkOptions, batch: Batch, messages: Sequence[WriterCommitMessage | None], once: bool) -> None:
    """Make visible what the tasks have staged, in the order of their partitions.

    With ``once``, the query has no other batch, and the broker may forget it. Raises ``SinkError`` if a stage is gone
    or the broker stays away.
    """
    staged = sorted((each for each in messages if isinstance(each, Published) and each.attempt), key=_partition)
    if not staged:
        return
    attempts = [each.attempt for each in staged]
    try:
        _with_channel(options, lambda channel: channel.release_stages(batch.query, batch.batch, attempts))
    except ChannelClosed as error:
        hint = (
            "a stage is gone, and so are its published rows; option stageExpires sets how many seconds a stage is kept"
        )
        raise SinkError(f"batch {batch.batch} of query {batch.query} is not committed: {error} ({hint})") from None
    if once:
        _leave(options, lambda channel: channel.forget_query(batch.query))


def drop(options: SinkOptions, batch: Batch) -> None:
    """Drop a batch's stages. Errors are only logged: stages expire, and the query has failed already."""
    _leave(options, lambda channel: channel.abort_stages(batch.query, batch.batch))


def _partition(message: Published) -> int:
    return message.partition


def _with_channel(options: SinkOptions, ask: Callable[[BlockingChannel], None]) -> None:
    """Call ``ask``, and retry if the connection breaks: releasing a batch twice has no effect."""

    with_retries(lambda: _ask(options, ask))


def _leave(options: SinkOptions, ask: Callable[[BlockingChannel], None]) -> None:
    try:
        _ask(options, ask)
    except ClientError as error:
        _log.warning("could not remove the remainder of a write; the broker keeps it until it expires: %s", error)


def _ask(options: SinkOptions, ask: Callable[[BlockingChannel], None]) -> None:
    with cached_connection(options.url, COMMIT, _connected) as connection:
        channel = connection.channel()
        ask(channel)
        channel.close()


def _connected(url: str, name: str) -> BlockingConnection:
    return BlockingConnection(url, name=name, reconnect=False)


def _warn_once(url: str) -> None:
    if url not in _warned:
        _warned.add(url)
        _log.warning(
            "the broker does not support stages, so rows are written at least once: rows that Spark repeats are "
            "published again (option delivery=at-least-once suppresses this warning)"
        )
