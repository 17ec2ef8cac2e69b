"""Records a broker's firehose into a stream, and counts the messages in its queues."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from leveret.client import BlockingConnection, ChannelClosed, ClientError
from leveret.pipelines.errors import PipelineError
from leveret.wire.errors import RESOURCE_LOCKED

EXCHANGE: Final = "amq.rabbitmq.trace"

AUDIT: Final = "x-leveret-audit"
"""Argument of a binding to amq.rabbitmq.trace that makes leveret tell more; RabbitMQ ignores it."""

UNKNOWN: Final = 2**31 - 1
"""A number larger than the messages of any queue."""


def record(url: str, queue: str = "audit") -> str:
    """Declare a stream and bind it to the broker's firehose; an existing stream keeps its messages.

    The firehose must be on: ``leveret ctl trace_on``, or ``rabbitmqctl trace_on``. Both end with a restart of the
    broker; ``leveret serve --trace /`` has it on from the first message. RabbitMQ's firehose reaches no streams
    (measured: 3.10.8), so there the firehose is recorded into a classic queue.

    Returns:
        ``stream`` or ``queue``.

    Raises:
        PipelineError: the broker is unreachable, or has another queue of this name.
    """
    try:
        with BlockingConnection(url, reconnect=False) as connection:
            kind = _kind(connection)
            channel = connection.channel()
            channel.declare_queue(queue, arguments={"x-queue-type": "stream" if kind == "stream" else "classic"})
            channel.bind_queue(queue, EXCHANGE, "#", arguments={AUDIT: True})
    except (ClientError, OSError) as error:
        raise PipelineError(f"{bare(url)} can't record into {queue!r}: {error}") from error
    return kind


def recorded_by(url: str) -> str:
    """Return what a broker records its firehose into: ``stream`` or ``queue``.

    Raises:
        PipelineError: the broker is unreachable.
    """
    try:
        with BlockingConnection(url, reconnect=False) as connection:
            return _kind(connection)
    except (ClientError, OSError) as error:
        raise PipelineError(f"{bare(url)} can't be reached: {error}") from error


def _kind(connection: BlockingConnection) -> str:
    return "stream" if "leveret_version" in connection.server_properties else "queue"


def waiting(url: str, queues: Iterable[str]) -> dict[str, int]:
    """Return the number of ready messages of each queue, 0 for queues that do not exist. For a queue that is exclusive
    to another connection, brokers refuse to answer: ``UNKNOWN``.

    Raises:
        PipelineError: the broker is unreachable, or does not answer.
    """
    counts: dict[str, int] = {}
    try:
        with BlockingConnection(url, reconnect=False) as connection:
            for queue in queues:
                channel = connection.channel()
                try:
                    counts[queue] = channel.declare_queue(queue, passive=True).message_count
                    channel.close()
                except ChannelClosed as error:
                    counts[queue] = UNKNOWN if error.code == RESOURCE_LOCKED else 0
    except (ClientError, OSError) as error:
        raise PipelineError(f"{bare(url)} can't report the messages in its queues: {error}") from error
    return counts


def bare(url: str) -> str:
    """Return what follows user and password in a URL: host, port and virtual host."""
    return url.rpartition("@")[2] or url
