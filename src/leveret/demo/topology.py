"""The demo's topology: an exchange, the streams, the queues and the delay levels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from leveret.client import BlockingConnection, ChannelClosed, ConnectionClosed
from leveret.delay import MILLISECONDS
from leveret.demo.errors import DemoError
from leveret.demo.plan import EXCHANGE, NOTICES_QUEUE, DemoPlan
from leveret.wire.table import Value

STREAM: Final[dict[str, Value]] = {"x-queue-type": "stream"}

_TROUBLE = (OSError, ConnectionClosed, ChannelClosed)


@contextmanager
def declared(plan: DemoPlan) -> Iterator[str]:
    """Declare everything, without the messages of an earlier run; delete exchange and queues at the end.

    The delay levels are kept: they are shared, and other programs may use them.

    Yields:
        The broker's name and version.

    Raises:
        DemoError: the broker can't be reached or refuses, or another demo is using it right now.
    """
    try:
        with BlockingConnection(plan.url, reconnect=False) as connection:
            server = _declare(connection, plan)
    except _TROUBLE as error:
        raise DemoError(f"the broker can't be used: {error}") from error
    try:
        yield server
    except BaseException:
        # report the failure of the run, not that the clean-up failed, too
        with suppress(*_TROUBLE):
            _remove(plan)
        raise
    try:
        _remove(plan)
    except _TROUBLE as error:
        raise DemoError(f"the demo's queues can't be removed: {error}") from error


def _declare(connection: BlockingConnection, plan: DemoPlan) -> str:
    channel = connection.channel()
    channel.declare_exchange(EXCHANGE, kind="topic", durable=True)
    for queue in plan.queues:
        arguments = STREAM if queue in plan.partitions else None
        info = channel.declare_queue(queue, arguments=arguments)
        if info.consumer_count:
            raise DemoError(f"queue {queue} has a consumer: another demo is running on this broker")
        if info.message_count:
            channel.delete_queue(queue)
            channel.declare_queue(queue, arguments=arguments)
    for stream, key in plan.partitions.items():
        channel.bind_queue(stream, EXCHANGE, key)
    MILLISECONDS.declare_blocking(channel)
    MILLISECONDS.bind_destination_blocking(channel, NOTICES_QUEUE)
    properties = connection.server_properties
    if own := properties.get("leveret_version"):
        return f"leveret {own!s}"
    return f"{properties.get('product', 'broker')!s} {properties.get('version', '')!s}".strip()


def _remove(plan: DemoPlan) -> None:
    with BlockingConnection(plan.url, reconnect=False) as connection:
        channel = connection.channel()
        for queue in plan.queues:
            channel.delete_queue(queue)
        channel.delete_exchange(EXCHANGE)
