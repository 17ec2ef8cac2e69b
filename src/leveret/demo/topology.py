"""What the demo needs in the broker: the exchange, three queues and the delay levels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from leveret.client import BlockingConnection, ChannelClosed, ConnectionClosed
from leveret.delay import MILLISECONDS
from leveret.demo.errors import DemoError
from leveret.demo.plan import EXCHANGE, FLIGHTS_QUEUE, NOTICES_QUEUE, QUEUES

_TROUBLE = (OSError, ConnectionClosed, ChannelClosed)


@contextmanager
def declared(url: str) -> Iterator[str]:
    """Declares everything and empties the queues of an earlier run; takes exchange and queues away at the end.

    The delay levels stay: they are the same for everybody, and others may be using them.

    Yields:
        The broker's name and version.

    Raises:
        DemoError: the broker can't be reached or refuses, or another demo is using it right now.
    """
    try:
        with BlockingConnection(url) as connection:
            server = _declare(connection)
    except _TROUBLE as error:
        raise DemoError(f"the broker can't be used: {error}") from error
    try:
        yield server
    except BaseException:
        # The failure of the run is the news; that its broker is perhaps gone too is not.
        with suppress(*_TROUBLE):
            _remove(url)
        raise
    try:
        _remove(url)
    except _TROUBLE as error:
        raise DemoError(f"the demo's queues can't be removed: {error}") from error


def _declare(connection: BlockingConnection) -> str:
    channel = connection.channel()
    channel.declare_exchange(EXCHANGE, kind="topic", durable=True)
    for queue in QUEUES:
        info = channel.declare_queue(queue, durable=True)
        if info.consumer_count:
            raise DemoError(f"queue {queue} has a consumer: another demo is running on this broker")
        if info.message_count:
            channel.purge_queue(queue)
    channel.bind_queue(FLIGHTS_QUEUE, EXCHANGE, "flight.#")
    MILLISECONDS.declare_blocking(channel)
    MILLISECONDS.bind_destination_blocking(channel, NOTICES_QUEUE)
    properties = connection.server_properties
    return f"{properties.get('product', 'broker')!s} {properties.get('version', '')!s}".strip()


def _remove(url: str) -> None:
    with BlockingConnection(url) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            channel.delete_queue(queue)
        channel.delete_exchange(EXCHANGE)


class Depth:
    """Asks how many flights wait in their queue."""

    def __init__(self, url: str) -> None:
        self._connection = BlockingConnection(url)
        self._channel = self._connection.channel()

    def flights(self) -> int:
        """Messages that are ready in the flights' queue; those on their way to the source do not count."""
        return self._channel.declare_queue(FLIGHTS_QUEUE, passive=True).message_count

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()
