"""The firehose of a broker, recorded in a stream of its own: what the audit knows it from."""

from __future__ import annotations

from typing import Final

from leveret.client import BlockingConnection, ClientError
from leveret.demo.errors import DemoError
from leveret.demo.plan import AUDIT_STREAM

RECORDED: Final = ("--trace", "/")
"""Options of a broker whose firehose is on from its first moment on, also after a crash."""

FIREHOSE: Final = "amq.rabbitmq.trace"


def record(url: str) -> None:
    """Has the broker keep what its firehose tells in the stream ``AUDIT_STREAM``.

    Raises:
        DemoError: the broker is not there, or refuses.
    """
    try:
        with BlockingConnection(url) as connection:
            channel = connection.channel()
            channel.declare_queue(AUDIT_STREAM, arguments={"x-queue-type": "stream"})
            channel.bind_queue(AUDIT_STREAM, FIREHOSE, "#", arguments={"x-leveret-audit": True})
    except (OSError, ClientError) as error:
        raise DemoError(f"the firehose of a broker can't be recorded: {error}") from error
