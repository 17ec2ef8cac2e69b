"""Connections of the sink, and what is said where there is none to be had."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from leveret.client import BlockingConnection, ConnectionClosed
from leveret.spark.refusals import no_connection
from leveret.spark.retry import Retry

T = TypeVar("T")


class SinkError(Exception):
    """Why rows could not be written, and which option or column to change."""


def connect(url: str, name: str) -> BlockingConnection:
    """A connection, as soon as the broker is there. Errors as those of :func:`with_retries`."""
    return with_retries(lambda: BlockingConnection(url, name=name))


def with_retries(action: Callable[[], T]) -> T:
    """What ``action`` returns; it is tried again while the broker is away. Raises ``SinkError`` in the end, and at once
    where the broker refuses for good."""
    try:
        return Retry("sink").run(action)
    except ConnectionClosed as error:
        raise SinkError(no_connection(error)) from None
