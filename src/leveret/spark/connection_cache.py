"""Connections that stay open between tasks: Spark reuses worker processes, and a handshake is half the cost of a small
task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from leveret.client import BlockingConnection, ClientError

_idle: dict[str, tuple[str, BlockingConnection]] = {}


@contextmanager
def cached_connection(
    url: str, name: str, connect: Callable[[str, str], BlockingConnection]
) -> Iterator[BlockingConnection]:
    """Give one task a cached or a new connection; after an error in the task it is closed.

    The task has the connection to itself and must close the channels that it opens. Each process keeps one connection
    per name. ``connect(url, name)`` is called if no open connection is cached; its errors are raised.
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
    """Whether the connection is still open. The flush notices a broker that has closed it."""
    try:
        connection.flush()
    except ClientError:
        pass
    return not connection.is_closed
