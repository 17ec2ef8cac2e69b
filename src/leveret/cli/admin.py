"""The HTTP API in `leveret serve`: its options, sockets and process."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import click

from leveret.admin.process import HOST, KEY_PASSWORD, PORT, AdminProcess, bind, missing
from leveret.cli.configuration.chosen import Chosen
from leveret.net import logs
from leveret.net.connections.certificates import TlsSettings
from leveret.net.connections.listener import Listener
from leveret.net.server import Server

logger = logging.getLogger("leveret")

EXIT_OPTIONS: Final = 2
EXIT_ADDRESS: Final = 4

# after a broker was killed, its HTTP API's process may hold the address for a moment: how often, and how long, to retry
WAITS_MAX: Final = 200
WAIT_S: Final = 0.05

# protocol -> the option that passes the socket to the process, and the subject of the log line
LISTENERS: Final[dict[str, tuple[str, str]]] = {
    "http": ("--fd", "the HTTP API is"),
    "https": ("--tls-fd", "the HTTP API is"),
    "http/prometheus": ("--metrics-fd", "metrics without login are"),
}


class AdminSettings(NamedTuple):
    """Settings of the HTTP API.

    Attributes:
        host, port: None if not given.
        tls_port: None for no HTTPS.
        security: the certificate.
        cors_origins: origins that CORS allows.
        metrics_host, metrics_port: the address of metrics without a login; port 0 for none.
    """

    host: str | None
    port: int | None
    tls_port: int | None
    security: TlsSettings | None
    cors_origins: tuple[str, ...]
    metrics_host: str = HOST
    metrics_port: int = 0


class AdminRefused(Exception):
    """The requested HTTP API is unavailable; `status` is the broker's exit code."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def settings(chosen: Chosen, security: TlsSettings | None) -> AdminSettings:
    """Return the chosen settings. `security` is the broker's certificate. Raises click.UsageError."""
    if chosen["admin_tls_port"] is not None and security is None:
        raise click.UsageError("--admin-tls-port needs --tls-port, --tls-cert and --tls-key")
    return AdminSettings(
        chosen["admin_host"], chosen["admin_port"], chosen["admin_tls_port"], security, tuple(chosen["cors_origins"]),
        chosen["metrics_host"], chosen["metrics_port"],
    )  # fmt: skip


async def _pause() -> None:
    await asyncio.sleep(WAIT_S)


async def admin_sockets(
    settings: AdminSettings, was_killed: bool, pause: Callable[[], Awaitable[None]] = _pause
) -> dict[str, socket.socket]:
    """Return the listening sockets for the HTTP API, by protocol.

    Without an explicit host and port the HTTP API is optional: if it is unavailable, only a warning is logged. If the
    previous broker was killed (`was_killed`), an address in use is retried, as the old HTTP API may still be ending.

    Raises AdminRefused if the API was requested explicitly and is unavailable.
    """
    is_asked = settings.host is not None or bool(settings.port)
    host, port = settings.host or HOST, PORT if settings.port is None else settings.port
    if what := missing():
        if asking := _asking(settings):
            doing = f"the broker did not start: {asking} requires the HTTP API, which is not available: {what}"
            raise AdminRefused(EXIT_OPTIONS, f"{doing}. To start without it, set only --admin-port 0, not {asking}")
        if port:
            logger.warning("HTTP API and web page are disabled: %s. --admin-port 0 disables them on purpose", what)
        return {}

    async def listen(host: str, port: int) -> socket.socket:
        for count in range(WAITS_MAX if was_killed else 0):
            try:
                return bind(host, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            if count == 0:
                logger.info("%s port %d is in use, probably still by the previous broker process: waiting", host, port)
            await pause()
        return bind(host, port)

    async def asked_for(host: str, port: int) -> socket.socket:
        try:
            return await listen(host, port)
        except OSError as error:
            raise AdminRefused(EXIT_ADDRESS, f"can't listen on {host} port {port}: {error.strerror or error}") from None

    found = {}
    if settings.metrics_port:
        found["http/prometheus"] = await asked_for(settings.metrics_host, settings.metrics_port)
    if settings.tls_port is not None:
        found["https"] = await asked_for(host, settings.tls_port)
    if port and is_asked:
        found["http"] = await asked_for(host, port)
    elif port:
        try:
            found["http"] = await listen(host, port)
        except OSError as error:
            reason = f"can't listen on {host} port {port}: {error.strerror or error}"
            logger.warning("HTTP API is disabled: %s. Choose another port with --admin-port, or disable it with "
                           "--admin-port 0", reason)
    return found


def _asking(settings: AdminSettings) -> str:
    """Return the given options that request the HTTP API or its metrics."""
    said = {
        "--admin-port": settings.port, "--admin-host": settings.host, "--admin-tls-port": settings.tls_port,
        "--metrics-port": settings.metrics_port,
    }  # fmt: skip
    return " and ".join(option for option, value in said.items() if value)


def start_admin(
    sockets: dict[str, socket.socket], settings: AdminSettings, server: Server, data_dir: str
) -> AdminProcess:
    """Start the process that serves the sockets, without waiting for it."""
    level = logging.getLevelName(logging.getLogger().getEffectiveLevel())
    arguments = [data_dir, f"--log-level={level}", f"--log-format={logs.form()}"]
    arguments += [f"--cors-origin={origin}" for origin in settings.cors_origins]
    secrets = {}
    for protocol, listener in sockets.items():
        option, what = LISTENERS[protocol]
        arguments.append(f"{option}={listener.fileno()}")
        address, port = listener.getsockname()[:2]
        server.listeners.append(Listener(protocol, address, port))
        host, scheme = f"[{address}]" if ":" in address else address, protocol.partition("/")[0]
        logger.info("%s on %s://%s:%d", what, scheme, host, port)
    if "https" in sockets and settings.security is not None:
        security = settings.security
        arguments += [f"--tls-cert={os.path.abspath(security.cert)}", f"--tls-key={os.path.abspath(security.key)}"]
        secrets = {KEY_PASSWORD: security.key_password} if security.key_password is not None else {}
    admin = AdminProcess(list(sockets.values()), arguments, secrets)
    admin.start()
    return admin
