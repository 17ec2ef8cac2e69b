"""Two calls of RabbitMQ's HTTP API, in front of a broker that has none: amqpstorm's tests tidy up with them.

DELETE /api/queues/VHOST/NAME and DELETE /api/exchanges/VHOST/NAME become queue.delete and exchange.delete. Tests of the
HTTP API itself do not run against it.
"""

from contextlib import AbstractContextManager
from urllib.parse import unquote

from leveret.client import BlockingConnection

from .listener import listening

__all__ = ["deletions"]


def deletions(url: str, port: int) -> AbstractContextManager[None]:
    """Serves on a port of 127.0.0.1, for the broker at an AMQP URL."""

    def answer(method: str, path: str) -> int:
        return 204 if method == "DELETE" and delete(url, path) else 404

    return listening(port, answer)


def delete(url: str, path: str) -> bool:
    """Does what a path asks for; False if it asks for something else. A queue that is not there is gone already."""
    match path.split("/")[1:]:
        case ["api", "queues" | "exchanges" as kind, _, name]:
            with BlockingConnection(url) as connection:
                channel = connection.channel()
                (channel.delete_queue if kind == "queues" else channel.delete_exchange)(unquote(name))
            return True
    return False
