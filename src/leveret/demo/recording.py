"""The firehose of a broker, recorded in a stream of its own: what the audit knows it from."""

from __future__ import annotations

from leveret.client import BlockingConnection, ClientError
from leveret.control.blocking import ControlClient
from leveret.control.refusal import Refused
from leveret.demo.errors import DemoError
from leveret.demo.plan import AUDIT_STREAM
from leveret.testing.processes import LeveretProcess

FIREHOSE = "amq.rabbitmq.trace"


def record(broker: LeveretProcess) -> None:
    """Turns the firehose on, into the stream ``AUDIT_STREAM``.

    Raises:
        DemoError: the broker is not there, or refuses.
    """
    try:
        with BlockingConnection(broker.url) as connection:
            channel = connection.channel()
            channel.declare_queue(AUDIT_STREAM, arguments={"x-queue-type": "stream"})
            channel.bind_queue(AUDIT_STREAM, FIREHOSE, "#", arguments={"x-leveret-audit": True})
        with ControlClient(str(broker.data_dir), timeout_s=30.0) as control:
            control.call("trace_on", vhost="/")
    except (OSError, ClientError, Refused) as error:
        raise DemoError(f"the firehose of the broker at {broker.data_dir.name} can't be recorded: {error}") from error
