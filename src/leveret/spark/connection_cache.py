"""Connections that stay open from task to task: Spark uses a worker's process again, and a handshake is half of what a
small task costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from leveret.client import BlockingConnection, ClientError

_idle: dict[str, tuple[str, BlockingConnection]] = {}


@contextmanager
def cached_connection(
    url: str, name: str, connect: Callable[[str, str], BlockingConnection]
) -> Iterator[BlockingConnection]:
    """A connection for a task, which has it alone, and closes the channels that it opens. After an error in the task
    it is closed.

    A process keeps one connection of each name. Errors are those of ``connect``, which gets url and name where there is
    none that is open.
    """
    where, connection = _idle.pop(name, (url, None))
    if connection is None or where != url or not _is_open(connection):
        if connection is not None:
            connection.close()
        connection = connect(url, name)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    if name in _idle:
        connection.close()
    else:
        _idle[name] = (url, connection)


def _is_open(connection: BlockingConnection) -> bool:
    """Whether it still is. A broker that has gone was heard to hang up."""
    try:
        connection.flush()
    except ClientError:
        pass
    return not connection.is_closed
