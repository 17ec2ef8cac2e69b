"""leveret serve: the broker as a process.

SIGHUP reads the TLS certificates again, and disk_free_limit and memory_high_watermark from the configuration file, if
there is one.

Exit codes: 0 stopped by SIGTERM or SIGINT; 1 an error of its own; 2 wrong options or configuration; 3 the data
directory is in use; 4 an address can't be listened on; 5 the journal failed (input/output error), or it had no room on
the disk when the broker started or stopped; 6 a newer leveret wrote the data directory.
"""

from __future__ import annotations

import asyncio
import difflib
import functools
import logging
import os
import signal
import socket
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from leveret import __version__, core
from leveret.broker.broker import Broker, Settings
from leveret.broker.ceilings import CEILINGS
from leveret.broker.records import RecordError
from leveret.cli import admin, logins, tls
from leveret.cli.data_dir import default_data_dir
from leveret.cli.parking import parked
from leveret.control.control import Control
from leveret.control.definitions.loading import load
from leveret.control.node import Node
from leveret.control.refusal import Refused
from leveret.control.socket import ControlSocket
from leveret.net.alarms import DISK_FREE_LIMIT_OCTETS, MEMORY_SHARE, Alarms, Limits
from leveret.net.certificates import CertificateError, Certificates, TlsSettings
from leveret.net.quantity import octets
from leveret.net.resources import gauges, machine_memory_octets
from leveret.net.server import Server
from leveret.net.tables import Tables
from leveret.store.data_directory import open_directory
from leveret.store.disk import RealDisk
from leveret.store.format import JournalVersionError
from leveret.store.journal import SPARE_FILES_DEFAULT, JournalFailed, JournalFull
from leveret.store.lock import DataDirectoryInUse, DirectoryLock

logger = logging.getLogger("leveret")

EXIT_OPTIONS: Final = 2
EXIT_IN_USE: Final = 3
EXIT_ADDRESS: Final = 4
EXIT_JOURNAL: Final = 5
EXIT_VERSION: Final = 6
PARKED: Final = -1  # it is no exit code: stop_app was called
LEVELS: Final = ("debug", "info", "warning", "error")

# key of the configuration file -> type
CONFIG: Final[dict[str, type]] = {
    "host": list, "port": object, "data_dir": str, "definitions": str, "log_level": str,
    "product": str, "version": str, "cluster_name": str, "frame_max": int, "channel_max": int, "heartbeat_s": int,
    "disk_free_limit": object, "memory_high_watermark": object,
    "max_message_octets": int, "consumer_timeout_ms": int, "journal_spare_files": int, "tables_dir": str, **tls.CONFIG,
    **admin.CONFIG, **logins.CONFIG,
    **dict.fromkeys(CEILINGS, int),
}  # fmt: skip

# settings that are amounts, see leveret.net.quantity
QUANTITIES: Final = ("disk_free_limit", "memory_high_watermark")


def read_config(path: Path) -> dict[str, object]:
    """The settings of a TOML file. click.UsageError for what is not TOML, an unknown key or a wrong type."""
    try:
        config = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from None
    for key, value in config.items():
        if key not in CONFIG:
            near = difflib.get_close_matches(key, CONFIG, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"{path}: unknown setting {key!r}{hint}")
        if key == "host" and isinstance(value, str):
            config[key] = [value]
        elif key in QUANTITIES:
            _check_quantity(f"{path}: {key}", value)
        elif key == "port" and value != tls.OFF and (not isinstance(value, int) or isinstance(value, bool)):
            raise click.UsageError(f"{path}: port must be of type int, or {tls.OFF!r}, not {value!r}")
        elif not isinstance(value, CONFIG[key]) or isinstance(value, bool):
            raise click.UsageError(f"{path}: {key} must be of type {CONFIG[key].__name__}, not {value!r}")
        elif key in ("journal_spare_files", "consumer_timeout_ms") and isinstance(value, int) and value < 0:
            raise click.UsageError(f"{path}: {key} must not be negative, it is {value}")
        elif key in CEILINGS and isinstance(value, int) and value < -1:
            raise click.UsageError(f"{path}: {key} must be a number, or -1 for any number, not {value}")
        try:
            tls.check(key, value)
        except ValueError as error:
            raise click.UsageError(f"{path}: {key} {error}") from None
    return config


def _check_quantity(name: str, value: object) -> None:
    try:
        octets(value, 0)
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from None


@click.command(name="serve", help="Run the broker until SIGTERM or SIGINT.\n\n" + "\n".join(__doc__.split("\n")[2:]))
@click.option("--host", multiple=True, help="Address to listen on; repeat it for several.  [default: 127.0.0.1]")
@click.option("--port", type=tls.Port(), help="Port; 0 takes a free one, off: none, for TLS only.  [default: 5672]")
@tls.options
@click.option("--data-dir", help="Directory of the journal.  [default: $LEVERET_DATA_DIR, else ~/.local/share/leveret]")
@click.option("--tables-dir", help="Directory of the streams' tables; off: none are made.  [default: tables/ there]")
@click.option("--log-level", type=click.Choice(LEVELS), help="Least severity that is logged.  [default: info]")
@click.option("--disk-free-limit", help="Publishers are blocked when the disk has less free.  [default: 50MB]")
@click.option("--memory-high-watermark", help="Publishers are blocked when more memory is in use.  [default: 0.4]")
@click.option(
    "--consumer-timeout-ms",
    type=click.IntRange(0),
    help="Channels with a delivery that is unacknowledged for longer are closed; 0: never.  [default: 1800000]",
)
@admin.admin_options
@click.option("--trace", multiple=True, help="Virtual host whose firehose is on; repeat it for several.")
@click.option(
    "--definitions",
    type=click.Path(exists=True, dir_okay=False),
    help="File of definitions, as RabbitMQ exports them; imported at each start.",
)
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML file of settings.")
def command(
    host: tuple[str, ...],
    port: int | str | None,
    data_dir: str | None,
    tables_dir: str | None,
    log_level: str | None,
    disk_free_limit: str | None,
    memory_high_watermark: str | None,
    consumer_timeout_ms: int | None,
    trace: tuple[str, ...],
    definitions: str | None,
    config: Path | None,
    **secured: object,
) -> None:
    given: dict[str, object] = {"host": list(host) or None, "port": port, "data_dir": data_dir, "log_level": log_level}
    given |= {"definitions": definitions, "tables_dir": tables_dir}
    given |= secured
    given["consumer_timeout_ms"] = consumer_timeout_ms  # RabbitMQ's consumer_timeout
    for key, value in zip(QUANTITIES, (disk_free_limit, memory_high_watermark), strict=True):
        if value is not None:
            _check_quantity(f"--{key.replace('_', '-')}", value)
            given[key] = value
    defaults: dict[str, object] = {"host": ["127.0.0.1"], "port": 5672, "log_level": "info"}
    defaults |= {"data_dir": default_data_dir(), "disk_free_limit": DISK_FREE_LIMIT_OCTETS}
    defaults["memory_high_watermark"] = MEMORY_SHARE

    def choose() -> dict[str, object]:
        return defaults | (read_config(config) if config else {}) | {k: v for k, v in given.items() if v is not None}

    chosen = choose()
    logins.settings(chosen)
    security = tls.settings(chosen)
    admin.settings(chosen, security)
    if chosen["port"] == tls.OFF and security is None:
        raise click.UsageError("--port off needs --tls-port")
    logging.basicConfig(
        level=str(chosen["log_level"]).upper(), format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    directory = str(chosen["data_dir"])
    try:
        lock = DirectoryLock(directory)
    except DataDirectoryInUse as error:
        logger.critical("%s", error)
        sys.exit(EXIT_IN_USE)
    except OSError as error:
        logger.critical("the data directory %s can't be used: %s", directory, error.strerror or error)
        sys.exit(2)
    with lock:
        status = asyncio.run(_serve(chosen, trace, security, choose))
        while status == PARKED and asyncio.run(parked(directory)):
            status = asyncio.run(_serve(chosen, trace, security, choose))
        sys.exit(max(status, 0))


def _limits(chosen: dict[str, object]) -> Limits:
    memory = machine_memory_octets()
    return Limits(octets(chosen["disk_free_limit"], memory), octets(chosen["memory_high_watermark"], memory))


def _reload(server: Server, certificates: Certificates | None, choose_again: Callable[[], dict[str, object]]) -> None:
    try:
        chosen = choose_again()
        security = tls.settings(chosen)
        server.limit(_limits(chosen))
    except click.UsageError as error:
        logger.error("nothing was changed: %s", error.message)
        return
    if certificates is not None and security is not None:
        certificates.reload(security)


def _note(event: str) -> None:
    """One line for each event, whatever is in the names that clients give to things."""
    logger.info("%s", event.replace("\r", "\\r").replace("\n", "\\n"))


def _import(broker: Broker, path: str, now_us: int) -> bool:
    """Whether the definitions of a file could be imported."""
    try:
        warnings = load(broker, Path(path), now_us)
    except (OSError, Refused) as error:
        logger.critical("the definitions in %s can't be imported: %s", path, error)
        return False
    for line in warnings:
        logger.warning("%s: %s", path, line)
    logger.info("definitions imported from %s", path)
    return True


async def _serve(
    chosen: dict[str, object],
    traced: tuple[str, ...],
    security: TlsSettings | None,
    choose_again: Callable[[], dict[str, object]],
) -> int:
    try:
        certificates = Certificates(security) if security is not None else None
    except CertificateError as error:
        logger.critical("--tls-port can't be served: %s", error)
        return EXIT_OPTIONS
    names = (
        "product", "version", "cluster_name", "frame_max", "channel_max", "heartbeat_s", "max_message_octets",
        "consumer_timeout_ms", "connection_max",
    )  # fmt: skip
    options = {"host": socket.gethostname()} | {n: chosen[n] for n in names if n in chosen}
    options |= logins.settings(chosen)
    options["ceilings"] = {name: chosen[name] for name in CEILINGS if name in chosen}
    broker = Broker(Settings(own_version=__version__, **options), os.urandom)  # type: ignore[arg-type]
    broker.on_event = _note
    disk, directory = RealDisk(), str(chosen["data_dir"])
    spare_files = chosen.get("journal_spare_files", SPARE_FILES_DEFAULT)
    assert isinstance(spare_files, int)
    try:
        parts = open_directory(disk, directory, spare_files, _tables_dir(chosen))
        server = Server(broker, *parts, Alarms(_limits(chosen), gauges(directory)))
        count = server.recover()
    except (JournalVersionError, RecordError) as error:
        logger.critical("the data directory %s can't be served: %s", directory, error)
        return EXIT_VERSION
    except (JournalFailed, JournalFull, OSError) as error:
        logger.critical("the data directory %s can't be served: %s", directory, error)
        return EXIT_JOURNAL
    if "definitions" in chosen and not _import(broker, str(chosen["definitions"]), server.now_us()):
        return EXIT_OPTIONS
    for name in traced:
        if name not in broker.vhosts:
            logger.critical("--trace: there is no virtual host %r", name)
            return EXIT_OPTIONS
        broker.trace(name, True)
        logger.info("the firehose of virtual host %r is on", name)
    logger.info("leveret %s (%s core), %d messages recovered from %s", __version__, core(), count, directory)
    for line in parts.journal.report.lines():
        logger.warning("%s", line)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stopping.set)
    loop.add_signal_handler(signal.SIGHUP, _reload, server, certificates, choose_again)
    node = Node(broker, server, f"leveret@{socket.gethostname()}", directory, __version__, core())
    control = ControlSocket(Control(node), directory)
    try:
        await control.listen()
    except OSError as error:
        logger.critical("can't listen on %s: %s", control.path, error.strerror or error)
        return EXIT_ADDRESS
    wanted = admin.settings(chosen, tls.settings(chosen))
    try:
        sockets = admin.admin_sockets(wanted)
    except admin.AdminRefused as refused:
        logger.critical("%s", refused)
        return refused.status
    if not await _listen(server, chosen, certificates):
        return EXIT_ADDRESS
    child = admin.start_admin(sockets, wanted, server, directory) if sockets else None
    tables = Tables(server, parts.streams.tables_dir) if chosen.get("tables_dir") != tls.OFF else None
    await server.run()
    if tables is not None:
        await tables.stop()
    if child is not None:
        await child.stop()
    await control.close()
    if server.failure is not None:
        return EXIT_JOURNAL
    if server.is_parking:
        return PARKED
    logger.info("stopped")
    return 0


def _tables_dir(chosen: dict[str, object]) -> str:
    """ "" for the default, which is where older tables are if none are made any more."""
    given = str(chosen.get("tables_dir", ""))
    return "" if given == tls.OFF else given


async def _listen(server: Server, chosen: dict[str, object], certificates: Certificates | None) -> bool:
    """Listen on all addresses, and only then say so; False if one can't be had."""
    hosts, ports, lines = chosen["host"], [], []
    assert isinstance(hosts, list)
    if isinstance(chosen["port"], int):
        ports.append((chosen["port"], server.listen, ""))
    if certificates is not None:
        tls_port = chosen["tls_port"]
        assert isinstance(tls_port, int)
        ports.append((tls_port, functools.partial(server.listen_tls, certificates=certificates), " with TLS"))
    for port, listen, how in ports:
        for host in hosts:
            try:
                address = await listen(host, port)
            except OSError as error:
                logger.critical("can't listen on %s port %d: %s", host, port, error.strerror or error)
                return False
            lines.append("listening on {}:{}{}".format(*address, how))
    for line in lines:
        logger.info("%s", line)
    return True
