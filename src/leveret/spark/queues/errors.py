"""Errors of reading a queue, with texts that name the option to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from leveret.client import ChannelClosed, ConnectionClosed, ConsumerCancelled
from leveret.spark.refusals import no_connection
from leveret.spark.retry import passes
from leveret.wire.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
)


class SourceError(Exception):
    """The queue cannot be read; the text says why and what to change."""


class QueueBusy(SourceError):
    """Another consumer reads a queue that must be read exclusively; it may be about to end, so a retry makes sense."""


class AcknowledgedTooLate(SourceError):
    """The broker has requeued the deliveries, since their acknowledgement timed out."""


@contextmanager
def explained(queue: str) -> Iterator[None]:
    """Turn a refusal by the broker into a ``SourceError``; a lost connection is raised unchanged."""
    try:
        yield
    except ConnectionClosed as error:
        if passes(error):
            raise
        raise SourceError(no_connection(error)) from error
    except ConsumerCancelled as error:
        raise SourceError(f"queue {queue!r} was deleted while it was read; declare it and start again") from error
    except ChannelClosed as error:
        raise _refused(queue, error) from error


def is_in_use(error: ChannelClosed) -> bool:
    """Whether the queue has an exclusive consumer, or allows none (single active consumer)."""
    return error.code == ACCESS_REFUSED and "exclusive use" in error.text


def _refused(queue: str, error: ChannelClosed) -> SourceError:
    if error.code == NOT_FOUND:
        text = "declare it first, or correct option queue (or the virtual host in option url)"
        return SourceError(f"there is no queue {queue!r} ({error}): {text}")
    if is_in_use(error):
        return QueueBusy(f"{error}; stop the exclusive consumer, or read another queue (option queue)")
    if error.code == ACCESS_REFUSED:
        text = f"give the user of option url the permission to read {queue!r}, or change that option"
    elif error.code == RESOURCE_LOCKED:
        text = "only the connection that declared it can read it; choose another in option queue"
    elif error.code == PRECONDITION_FAILED and "acknowledgement" in error.text and "timed out" in error.text:
        return AcknowledgedTooLate(
            f"{error}; a micro-batch is acknowledged when Spark requests the next one: trigger more often, lower "
            "option maxRowsPerTrigger, raise the broker's consumer_timeout, or set option mode to spool, which does "
            "not wait"
        )
    else:
        text = f"option queue is {queue!r}"
    return SourceError(f"{error}; {text}")
