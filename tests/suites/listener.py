"""A small HTTP server on 127.0.0.1 that replaces a service which a suite expects beside the broker."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["listening"]


@contextmanager
def listening(port: int, answer: Callable[[str, str], int]) -> Iterator[None]:
    """Serve until the end of the block.

    Args:
        port: On 127.0.0.1.
        answer: Called with a request's method and path, on a thread of its own; returns the status of the response.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            self.send_response(answer(self.command, self.path))
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_DELETE

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="listener")
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
