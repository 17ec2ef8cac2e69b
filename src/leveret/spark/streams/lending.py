"""Connections that stay open from task to task: Spark uses a worker's process again, and a handshake is half of what a
small task costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from leveret.client import BlockingConnection, ClientError
from leveret.spark.patience import Patience

NAME: Final = "leveret spark stream task"

_idle: dict[str, BlockingConnection] = {}


@contextmanager
def lent(url: str) -> Iterator[BlockingConnection]:
    """A connection for a task, which has it alone. After an error in the task it is closed.

    ``ConnectionClosed`` where the broker stays away for :data:`leveret.spark.patience.RECONNECT_S`.
    """
    connection = _idle.pop(url, None)
    if connection is None or not _is_open(connection):
        connection = _connected(url)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    for other in _idle.values():
        other.close()
    _idle.clear()
    _idle[url] = connection


def _connected(url: str) -> BlockingConnection:
    return Patience("task of a stream").run(lambda: BlockingConnection(url, name=NAME))


def _is_open(connection: BlockingConnection) -> bool:
    """Whether it still is. A broker that has gone was heard to hang up."""
    try:
        connection.flush()
    except ClientError:
        pass
    return not connection.is_closed
