"""Errors of reading a stream, with texts that name the option to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from leveret.client import ChannelClosed, ConnectionClosed
from leveret.spark.refusals import no_connection
from leveret.wire.errors import ACCESS_REFUSED


class StreamError(Exception):
    """The stream cannot be read; the text says why and what to change."""


class NoStream(StreamError):
    """The stream does not exist."""


class StreamBroken(StreamError):
    """Messages of the stream are not delivered, or not in order."""


@contextmanager
def explained() -> Iterator[None]:
    """Turn a refusal by the broker, or a lost connection, into a ``StreamError``."""
    try:
        yield
    except ConnectionClosed as error:
        raise StreamError(no_connection(error)) from error
    except ChannelClosed as error:
        if error.code != ACCESS_REFUSED:
            raise
        raise StreamError(f"{error}; give the user of option url the permission to read it") from error
