"""The demo's topology: an exchange, the queues and the delay levels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from leveret.client import BlockingConnection, ChannelClosed, ConnectionClosed
from leveret.delay import MILLISECONDS
from leveret.demo.errors import DemoError
from leveret.demo.plan import AIRPORTS, EXCHANGE, FLIGHTS_QUEUE, NOTICES_QUEUE, DemoPlan

_TROUBLE = (OSError, ConnectionClosed, ChannelClosed)


@contextmanager
def declared(plan: DemoPlan) -> Iterator[str]:
    """Declare everything and purge the queues of an earlier run; delete exchange and queues at the end.

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
        is_stream = plan.cluster and queue in plan.partitions
        info = channel.declare_queue(queue, arguments={"x-queue-type": "stream"} if is_stream else None)
        if info.consumer_count:
            raise DemoError(f"queue {queue} has a consumer: another demo is running on this broker")
        if info.message_count:
            channel.purge_queue(queue)
    if plan.cluster:
        for airport, stream in zip(AIRPORTS, plan.partitions, strict=True):
            channel.bind_queue(stream, EXCHANGE, f"flight.{airport}.#")
    else:
        channel.bind_queue(FLIGHTS_QUEUE, EXCHANGE, "flight.#")
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


class Depth:
    """A counter of the flights that wait to be read."""

    def __init__(self, plan: DemoPlan) -> None:
        self._plan = plan
        self._connection = BlockingConnection(plan.url, reconnect=False)
        self._channel = self._connection.channel()

    def waiting(self, read: int) -> int:
        """Return the number of ready messages in the flights' queue, without those prefetched by the source.

        Streams keep what is read, so there the `read` first messages are subtracted.
        """
        there = [self._channel.declare_queue(name, passive=True).message_count for name in self._plan.partitions]
        return sum(there) - read if self._plan.cluster else sum(there)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
