"""The process of the HTTP API: python -m leveret.admin DATA_DIR --fd N [--tls-fd N] [--metrics-fd N].

`leveret serve` starts it. --fd, --tls-fd and --metrics-fd are listening sockets to serve. Standard input is a pipe; the
process ends when it is closed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Iterator

import uvicorn

from leveret.admin.api import Api
from leveret.admin.cors import Cors
from leveret.admin.handshake import Loop
from leveret.admin.idle_timeout import IdleTimeout
from leveret.admin.paths.examined import FILE_NAME, Examiner
from leveret.admin.paths.metrics import OPEN
from leveret.admin.process import KEY_PASSWORD
from leveret.control.calls.client import AsyncControlClient
from leveret.net import logs
from leveret.net.connections.certificates import Certificates, TlsSettings
from leveret.net.descriptors import room_for_sockets

# messages have priority: requests do not take the processor from the broker and its clients
NICENESS = 5
# commands in progress at the broker; further requests wait in this process, where they do not block other calls
COMMANDS_MAX = 16
# the number of connections stays below this, and below the limit of open files; for new ones, idle ones are closed
CONNECTIONS_MAX = 4000
# how often the certificate's files are checked for changes
LOOK_S = 1.0
# longer than clients keep an unused connection: else one may send a request just when it is closed
KEEP_ALIVE_S = 75


class AdminServer(uvicorn.Server):
    """Serves until its process ends; without uvicorn's signal handlers, as the broker decides when that is."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _end_with_the_broker() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="leveret.admin", description=__doc__)
    parser.add_argument("data_dir")
    parser.add_argument("--fd", type=int)
    parser.add_argument("--tls-fd", type=int)
    parser.add_argument("--metrics-fd", type=int)
    parser.add_argument("--tls-cert")
    parser.add_argument("--tls-key")
    parser.add_argument("--log-level", default="INFO")
    parser.add_argument("--log-format", default="text", choices=logs.FORMATS)
    parser.add_argument("--cors-origin", action="append", default=[])
    return parser.parse_args()


def _server(api: Api, certificates: Certificates | None) -> AdminServer:
    config = uvicorn.Config(
        api, http=IdleTimeout, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
        proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_S, limit_concurrency=CONNECTIONS_MAX,
        ssl_context_factory=None if certificates is None else lambda config, default: context_of(certificates),
    )  # fmt: skip
    return AdminServer(config)


def context_of(certificates: Certificates) -> ssl.SSLContext:
    """Return a context whose handshakes use the present certificate."""

    def choose(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = certificates.context

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sni_callback = choose
    return context


async def _look(certificates: Certificates) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        certificates.look()


async def _serve(options: argparse.Namespace) -> None:
    examiner = Examiner(os.path.join(options.data_dir, FILE_NAME))
    control, cors = AsyncControlClient(options.data_dir, COMMANDS_MAX), Cors(options.cors_origin)
    api = Api(control, cors, examiner)
    async with asyncio.TaskGroup() as tasks:
        if options.fd is not None:
            tasks.create_task(_server(api, None).serve([socket.socket(fileno=options.fd)]))
        if options.metrics_fd is not None:
            open_api = Api(control, cors, routes=OPEN)
            tasks.create_task(_server(open_api, None).serve([socket.socket(fileno=options.metrics_fd)]))
        if options.tls_fd is not None:
            settings = TlsSettings(options.tls_cert, options.tls_key, key_password=os.environ.get(KEY_PASSWORD))
            certificates = Certificates(settings)
            tasks.create_task(_look(certificates))
            tasks.create_task(_server(api, certificates).serve([socket.socket(fileno=options.tls_fd)]))


def main() -> None:
    """Serve. The process ends with status 0 when standard input is closed."""
    options = _arguments()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker; this process ends after it
    threading.Thread(target=_end_with_the_broker, daemon=True).start()
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.nice(NICENESS)
    logs.configure(options.log_level, options.log_format)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    IdleTimeout.connections_max = min(CONNECTIONS_MAX, room_for_sockets())
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(_serve(options))


if __name__ == "__main__":
    main()
