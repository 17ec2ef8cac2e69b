"""The broker's power switch, for suites whose tests stop and start their broker: POST /start, /stop, /kill."""

import threading
from contextlib import AbstractContextManager
from typing import Final

from leveret.testing.processes import ProcessFailed, ServerProcess

from .listener import listening

__all__ = ["switch"]

POSITIONS: Final = {"/start": True, "/stop": False, "/kill": False}


def switch(server: ServerProcess, port: int) -> AbstractContextManager[None]:
    """Serve on a port of 127.0.0.1. A request for the current state changes nothing; data and port are kept."""
    is_on = True
    lock = threading.Lock()  # a test that times out repeats its request while its broker starts

    def answer(method: str, path: str) -> int:
        nonlocal is_on
        wanted = POSITIONS.get(path)
        if method != "POST" or wanted is None:
            return 404
        with lock:
            try:
                if wanted != is_on:
                    getattr(server, path[1:])()
                is_on = wanted
            except ProcessFailed:
                return 500
        return 204

    return listening(port, answer)
