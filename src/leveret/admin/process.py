"""The HTTP API's process, from the broker's side: it gets listening sockets and lives as long as the broker.

The broker binds the sockets, so that an address in use is reported at once, and clients wait in the backlog while the
process starts, or restarts after a crash. The process ends when the pipe at its standard input is closed, which happens
however the broker ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

logger = logging.getLogger("leveret")

PORT: Final = 15672
HOST: Final = "127.0.0.1"
BACKLOG: Final = 1024
# how long to wait before a crashed process is restarted; doubled each time, unless it ran for LIVED_S
PAUSE_S_MIN: Final = 0.2
PAUSE_S_MAX: Final = 30.0
LIVED_S: Final = 60.0
STOP_S_MAX: Final = 2.0
# environment variable with the password of the certificate's key
KEY_PASSWORD: Final = "LEVERET_TLS_KEY_PASSWORD"
NEEDED: Final = ("starlette", "uvicorn")


def missing() -> str:
    """Return which packages of the HTTP API are not installed, and how to install them; "" if all are."""
    names = [module for module in NEEDED if importlib.util.find_spec(module) is None]
    if not names:
        return ""
    verb = "is" if len(names) == 1 else "are"
    command = f"{sys.executable} -m pip install {' '.join(names)}"
    return f"{' and '.join(names)} {verb} not installed; install with: {command}"


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises OSError if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


class AdminProcess:
    """Keeps a process alive that serves the sockets.

    `arguments` are those of leveret.admin; `secrets` are passed as environment variables.
    """

    def __init__(self, sockets: Sequence[socket.socket], arguments: Sequence[str], secrets: Mapping[str, str]) -> None:
        self._sockets = sockets
        self._command = [sys.executable, "-m", "leveret.admin", *arguments]
        self._environment = {**os.environ, **secrets}
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._watch = -1
        self._started_s = 0.0
        self._pause_s = PAUSE_S_MIN
        self._again: asyncio.TimerHandle | None = None
        self._gone = asyncio.Event()
        self._is_stopping = False

    @property
    def pid(self) -> int | None:
        """The id of the process, if it runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process, without waiting until it serves."""
        self._again = None
        self._gone.clear()
        self._started_s = time.monotonic()
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                env=self._environment,
                pass_fds=[each.fileno() for each in self._sockets],
            )
        except OSError as error:
            logger.warning("the HTTP API can't be started: %s", error)
            self._start_later()
            return
        self._process = process
        self._watch = os.pidfd_open(process.pid)
        self._loop.add_reader(self._watch, self._ended)

    def _ended(self) -> None:
        assert self._process is not None
        self._loop.remove_reader(self._watch)
        os.close(self._watch)
        status = self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process = None
        self._gone.set()
        if self._is_stopping:
            return
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        if time.monotonic() - self._started_s > LIVED_S:
            self._pause_s = PAUSE_S_MIN
        logger.warning("the HTTP API's process ended %s; restarting in %.1f s", how, self._pause_s)
        self._start_later()

    def _start_later(self) -> None:
        self._again = self._loop.call_later(self._pause_s, self.start)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    async def stop(self) -> None:
        """End the process and wait until it has ended."""
        self._is_stopping = True
        for each in self._sockets:
            each.close()
        if self._again is not None:
            self._again.cancel()
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._gone.wait(), STOP_S_MAX)
        except TimeoutError:
            self._process.kill()
            await self._gone.wait()
