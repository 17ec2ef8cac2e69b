"""What a query on a queue waits for, and what it says in the end."""

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
    """What ``action`` returns; it is tried again while the broker is away, or somebody else has the queue.

    ``close`` comes before each trial but the first: the broker has put everything unacknowledged back, and will deliver
    it again. Raises ``SourceError`` in the end.
    """
    try:
        return Retry(f"queue {queue}", QueueBusy, *passing).run(action, close)
    except ConnectionClosed as error:
        raise SourceError(f"queue {queue!r} can't be read: {no_connection(error)}") from error
