"""What stands between a query and its stream, in words that name the option to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from leveret.client import ChannelClosed, ConnectionClosed
from leveret.spark.refusals import no_connection
from leveret.wire.errors import ACCESS_REFUSED


class StreamError(Exception):
    """The stream can't be read. The text says why and what to change."""


class NoStream(StreamError):
    """There is no such stream."""


class StreamBroken(StreamError):
    """Messages that are in the stream do not come, or not as a stream's do."""


@contextmanager
def explained() -> Iterator[None]:
    """Turn what the broker objects to, and that it can't be reached, into a ``StreamError``."""
    try:
        yield
    except ConnectionClosed as error:
        raise StreamError(no_connection(error)) from error
    except ChannelClosed as error:
        if error.code != ACCESS_REFUSED:
            raise
        raise StreamError(f"{error}; give the user of option url the permission to read it") from error
