"""What `leveret serve` does about the HTTP API: whether there is one, and where."""

from __future__ import annotations

import logging
import socket

from leveret.admin.process import HOST, PORT, AdminProcess, bind, is_installed
from leveret.net.listener import Listener
from leveret.net.server import Server

logger = logging.getLogger("leveret")

EXIT_OPTIONS = 2
EXIT_ADDRESS = 4


class AdminRefused(Exception):
    """The HTTP API that was asked for can't be had; status: what the broker ends with."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def admin_socket(host: str | None, port: int | None) -> socket.socket | None:
    """A socket that listens for the HTTP API; None: there is none. Without host and port it is offered, not asked for.

    AdminRefused if it was asked for and can't be had.
    """
    is_asked = host is not None or port is not None
    if port == 0:
        return None
    if not is_installed():
        if is_asked:
            raise AdminRefused(EXIT_OPTIONS, "the HTTP API is not installed: pip install 'leveret[admin]'")
        return None
    host, port = host or HOST, port or PORT
    try:
        return bind(host, port)
    except OSError as error:
        reason = f"can't listen on {host} port {port}: {error.strerror or error}"
        if is_asked:
            raise AdminRefused(EXIT_ADDRESS, reason) from None
        logger.warning("there is no HTTP API: %s; --admin-port chooses another port, or 0 for none", reason)
        return None


def start_admin(listener: socket.socket, server: Server, data_dir: str, origins: list[str]) -> AdminProcess:
    """Start the process that serves the socket; it is not waited for."""
    address, port = listener.getsockname()[:2]
    level = logging.getLevelName(logging.getLogger().getEffectiveLevel())
    options = ["--log-level", level, *(f"--cors-origin={origin}" for origin in origins)]
    admin = AdminProcess(listener, data_dir, tuple(options))
    admin.start()
    server.listeners.append(Listener("http", address, port))
    logger.info("the HTTP API is on http://%s:%d", f"[{address}]" if ":" in address else address, port)
    return admin
