"""A broker's side of an audit: its firehose recorded into a stream, and how many messages wait in its queues."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from leveret.client import BlockingConnection, ChannelClosed, ClientError
from leveret.pipelines.errors import PipelineError
from leveret.wire.errors import RESOURCE_LOCKED

EXCHANGE: Final = "amq.rabbitmq.trace"

AUDIT: Final = "x-leveret-audit"
"""The argument of a binding to amq.rabbitmq.trace that lets leveret tell more; RabbitMQ does not mind it."""

UNKNOWN: Final = 2**31 - 1
"""More messages than a queue has."""


def record(url: str, queue: str = "audit") -> str:
    """Declare a stream and bind it to the broker's firehose; what is there already stays.

    From then on it records whatever the firehose tells, which has to be on: ``leveret ctl trace_on``, or
    ``rabbitmqctl trace_on``. Neither survives a restart of the broker: ``leveret serve --trace /`` has it on from the
    first message. RabbitMQ's firehose reaches no streams (measured: 3.10.8), so there it is a classic queue.

    Returns:
        ``stream`` or ``queue``.

    Raises:
        PipelineError: the broker can't be reached, or has another queue of this name.
    """
    try:
        with BlockingConnection(url) as connection:
            kind = _kind(connection)
            channel = connection.channel()
            channel.declare_queue(queue, arguments={"x-queue-type": "stream" if kind == "stream" else "classic"})
            channel.bind_queue(queue, EXCHANGE, "#", arguments={AUDIT: True})
    except (ClientError, OSError) as error:
        raise PipelineError(f"{bare(url)} can't record into {queue!r}: {error}") from error
    return kind


def recorded_by(url: str) -> str:
    """What a broker records its firehose into: ``stream``, or ``queue``.

    Raises:
        PipelineError: it can't be reached.
    """
    try:
        with BlockingConnection(url) as connection:
            return _kind(connection)
    except (ClientError, OSError) as error:
        raise PipelineError(f"{bare(url)} can't be reached: {error}") from error


def _kind(connection: BlockingConnection) -> str:
    return "stream" if "leveret_version" in connection.server_properties else "queue"


def waiting(url: str, queues: Iterable[str]) -> dict[str, int]:
    """How many messages each of these queues has ready; queues that are not there have none. Nobody is told of a queue
    that is exclusive to an open connection: ``UNKNOWN``.

    Raises:
        PipelineError: the broker can't be reached, or does not say.
    """
    counts: dict[str, int] = {}
    try:
        with BlockingConnection(url) as connection:
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
    """Without the password."""
    return url.rpartition("@")[2] or url
