"""Two calls of RabbitMQ's HTTP API, in front of a broker that has none: amqpstorm's tests tidy up with them.

DELETE /api/queues/VHOST/NAME and DELETE /api/exchanges/VHOST/NAME become queue.delete and exchange.delete. Tests of the
HTTP API itself do not run against it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from leveret.client import BlockingConnection

__all__ = ["deletions"]


@contextmanager
def deletions(url: str, port: int) -> Iterator[None]:
    """Serves on a port of 127.0.0.1, for the broker at an AMQP URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            self.send_response(204 if delete(url, self.path) else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="deletions")
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def delete(url: str, path: str) -> bool:
    """Does what a path asks for; False if it asks for something else. A queue that is not there is gone already."""
    match path.split("/")[1:]:
        case ["api", "queues" | "exchanges" as kind, _, name]:
            with BlockingConnection(url) as connection:
                channel = connection.channel()
                (channel.delete_queue if kind == "queues" else channel.delete_exchange)(unquote(name))
            return True
    return False
