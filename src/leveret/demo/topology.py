"""What the demo needs in the broker: the exchange, three queues and the delay levels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from leveret.client import BlockingConnection, ChannelClosed, ConnectionClosed
from leveret.delay import MILLISECONDS
from leveret.demo.errors import DemoError
from leveret.demo.plan import AIRPORTS, EXCHANGE, FLIGHTS_QUEUE, NOTICES_QUEUE, Plan

_TROUBLE = (OSError, ConnectionClosed, ChannelClosed)


@contextmanager
def declared(plan: Plan) -> Iterator[str]:
    """Declares everything and empties the queues of an earlier run; takes exchange and queues away at the end.

    The delay levels stay: they are the same for everybody, and others may be using them.

    Yields:
        The broker's name and version.

    Raises:
        DemoError: the broker can't be reached or refuses, or another demo is using it right now.
    """
    try:
        with BlockingConnection(plan.url) as connection:
            server = _declare(connection, plan)
    except _TROUBLE as error:
        raise DemoError(f"the broker can't be used: {error}") from error
    try:
        yield server
    except BaseException:
        # The failure of the run is the news; that its broker is perhaps gone too is not.
        with suppress(*_TROUBLE):
            _remove(plan)
        raise
    try:
        _remove(plan)
    except _TROUBLE as error:
        raise DemoError(f"the demo's queues can't be removed: {error}") from error


def _declare(connection: BlockingConnection, plan: Plan) -> str:
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


def _remove(plan: Plan) -> None:
    with BlockingConnection(plan.url) as connection:
        channel = connection.channel()
        for queue in plan.queues:
            channel.delete_queue(queue)
        channel.delete_exchange(EXCHANGE)


class Depth:
    """Asks how many flights wait to be read."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._connection = BlockingConnection(plan.url)
        self._channel = self._connection.channel()

    def waiting(self, read: int) -> int:
        """Messages that are ready in the flights' queue, without those on their way to the source; in their streams,
        which keep what is read, those beyond the ``read`` first ones."""
        there = [self._channel.declare_queue(name, passive=True).message_count for name in self._plan.partitions]
        return sum(there) - read if self._plan.cluster else sum(there)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()
