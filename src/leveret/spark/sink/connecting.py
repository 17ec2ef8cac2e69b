"""Connections of the sink, with retries and error texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from leveret.client import BlockingConnection, ConnectionClosed
from leveret.spark.refusals import no_connection
from leveret.spark.retry import Retry

T = TypeVar("T")


class SinkError(Exception):
    """Rows could not be written; the text says why, and which option or column to change."""


def connect(url: str, name: str) -> BlockingConnection:
    """Connect, with retries while the broker is away. Raises the errors of :func:`with_retries`."""
    return with_retries(lambda: BlockingConnection(url, name=name, reconnect=False))


def with_retries(action: Callable[[], T]) -> T:
    """Return what ``action`` returns; retry it while the broker is away. Raises ``SinkError`` when the time for retries
    is over, or at once if the broker refuses for good."""
    try:
        return Retry("sink").run(action)
    except ConnectionClosed as error:
        raise SinkError(no_connection(error)) from None
