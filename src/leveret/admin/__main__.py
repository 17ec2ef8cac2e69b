"""The process of the HTTP API: python -m leveret.admin FD DATA_DIR. `leveret serve` starts it.

FD: the socket that it serves, listening already; standard input: a pipe whose end is its end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator

import uvicorn

from leveret.admin.api import Api
from leveret.admin.cors import Cors
from leveret.control.client import AsyncControlClient

# messages have the processor first: a request that comes does not take it from the broker or its clients
NICENESS = 5
# so many commands may be on their way to the broker; further requests wait here, where they hold up nobody else
COMMANDS_MAX = 16


class AdminServer(uvicorn.Server):
    """Serves until its process ends: signals are the broker's matter."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _end_with_the_broker() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def main() -> None:
    """Serve. Ends with status 0 when standard input does."""
    parser = argparse.ArgumentParser(prog="leveret.admin", description=__doc__)
    parser.add_argument("fd", type=int)
    parser.add_argument("data_dir")
    parser.add_argument("--log-level", default="INFO")
    parser.add_argument("--cors-origin", action="append", default=[])
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, and we end when it has
    threading.Thread(target=_end_with_the_broker, daemon=True).start()
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.nice(NICENESS)
    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    api = Api(AsyncControlClient(options.data_dir, COMMANDS_MAX), Cors(options.cors_origin))
    config = uvicorn.Config(
        api, http="h11", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
        proxy_headers=False,
    )  # fmt: skip
    asyncio.run(AdminServer(config).serve([socket.socket(fileno=options.fd)]))


if __name__ == "__main__":
    main()
