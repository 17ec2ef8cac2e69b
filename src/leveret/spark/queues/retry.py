"""Retries of queue readers, and their final error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from leveret.client import ConnectionClosed
from leveret.spark.queues.errors import QueueBusy, SourceError
from leveret.spark.refusals import no_connection
from leveret.spark.retry import Retry

T = TypeVar("T")


def with_retries(
    queue: str, action: Callable[[], T], close: Callable[[], None] = lambda: None, *passing: type[SourceError]
) -> T:
    """Return what ``action`` returns; retry it while the broker is away or another consumer has the queue.

    ``close`` is called before each retry: the broker requeues everything unacknowledged and delivers it again. Raises
    ``SourceError`` when the time for retries is over.
    """
    try:
        return Retry(f"queue {queue}", QueueBusy, *passing).run(action, close)
    except ConnectionClosed as error:
        raise SourceError(f"queue {queue!r} can't be read: {no_connection(error)}") from error
