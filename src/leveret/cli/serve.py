"""leveret serve: the broker as a process.

\b
SIGHUP   reloads the settings and the TLS certificates (docs/guides/production.md)
SIGTERM  stops cleanly, after --drain-timeout-ms; a second SIGTERM stops at once

Exit codes: 0 stopped by SIGTERM or SIGINT; 1 internal error; 2 invalid options or configuration; 3 the data directory
is in use; 4 cannot listen on an address; 5 the journal failed (input/output error), or the disk was full when the
broker started or stopped; 6 the data directory was written by a newer leveret.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final

import click

from leveret import __version__, core, core_reason
from leveret.broker.broker import Broker
from leveret.broker.peer import Peer
from leveret.broker.storage.records import RecordError
from leveret.cli import admin, logins
from leveret.cli.configuration.chosen import Chosen, choose, given, misspelt
from leveret.cli.configuration.chosen import options as add_options
from leveret.cli.configuration.kinds import OFF
from leveret.cli.configuration.reload import Reload
from leveret.cli.configuration.settings import SECTIONS
from leveret.cli.configuration.wanted import ConvertedSettings, wanted
from leveret.cli.data_dir import default_data_dir
from leveret.control.awaited import Awaited
from leveret.control.calls.socket import ControlSocket
from leveret.control.refusal import Refused
from leveret.net import logs
from leveret.net.alarms import Alarms
from leveret.net.connections.certificates import CertificateError, Certificates, make_context
from leveret.net.descriptors import take_room
from leveret.net.disk.tables import Tables, are_possible
from leveret.net.logs import about
from leveret.net.malloc import keep_freed_memory
from leveret.net.notify import Notifier
from leveret.net.poller import Poller
from leveret.net.resources import gauges
from leveret.net.server import Server
from leveret.store.data_directory import check_directory, check_place, open_directory
from leveret.store.disk import RealDisk
from leveret.store.format import JournalVersionError
from leveret.store.journal import JournalFailed, JournalFull
from leveret.store.lock import DataDirectoryInUse, DirectoryLock
from leveret.wire.errors import quoted

logger = logging.getLogger("leveret")

EXIT_OPTIONS: Final = 2
EXIT_IN_USE: Final = 3
EXIT_ADDRESS: Final = 4
EXIT_JOURNAL: Final = 5
EXIT_VERSION: Final = 6
APP_STOPPED: Final = -1  # not an exit code: stop_app was called
# how long the event loop may wait for a thread that builds pages or files; Python's default of 5 ms is noticeable
SWITCH_S: Final = 0.0005


class ServeCommand(click.Command):
    """A command whose options are the settings, grouped by sections in its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        for title, settings in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([row for each in settings if (row := shown.pop(each.name, None)) is not None])
        with formatter.section("Configuration"):
            formatter.write_dl([row for row in shown.values() if row is not None])


@click.command(
    name="serve",
    cls=ServeCommand,
    help="Run the broker until SIGTERM or SIGINT.\n\n" + "\n".join(__doc__.split("\n")[2:]),
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    envvar="LEVERET_CONFIG",
    help="TOML file of settings; $LEVERET_CONFIG.",
)
@click.option("--print-config", is_flag=True, help="Print an example file with all settings explained, and exit.")
@click.option("--check-config", is_flag=True, help="Print the settings in effect and the source of each, and exit.")
def command(config: str | None, print_config: bool, check_config: bool, **parameters: object) -> None:
    if print_config:
        from leveret.cli.configuration.printing import example_file

        click.echo(example_file(), nl=False)
        return
    options = given(parameters)

    def choose_now() -> Chosen:
        return choose(options, config, os.environ)

    begun = wanted(choose_now())
    if check_config:
        _check(begun)
        return
    chosen = begun.chosen
    logs.configure(chosen["log_level"], chosen["log_format"])
    for warning in misspelt(os.environ):
        logger.warning("%s", warning)
    directory = str(chosen["data_dir"] or default_data_dir())
    try:
        check_place(directory)
        lock = DirectoryLock(directory)
    except DataDirectoryInUse as error:
        logger.critical("%s", error)
        sys.exit(EXIT_IN_USE)
    except OSError as error:
        logger.critical("cannot use the data directory %s: %s", directory, error.strerror or error)
        sys.exit(EXIT_OPTIONS)
    notifier = Notifier(os.environ)
    keep_freed_memory()
    take_room()
    with lock:
        status = _life(begun, directory, choose_now, notifier)
        while status == APP_STOPPED and _is_to_serve_again(directory, notifier):
            status = _life(_again(begun, choose_now), directory, choose_now, notifier)
        sys.exit(max(status, 0))


add_options(command)


def _is_to_serve_again(directory: str, notifier: Notifier) -> bool:
    from leveret.cli.stopped_app import wait_for_start

    try:
        return asyncio.run(wait_for_start(directory, notifier))
    except OSError as error:
        logger.critical("cannot create the control socket in %s, which start_app needs: %s", directory, error)
        sys.exit(EXIT_ADDRESS)


def _check(begun: ConvertedSettings) -> None:
    """Check the settings and the certificate's files, and print the values in effect."""
    from leveret.cli.configuration.printing import in_effect

    if begun.security is not None:
        try:
            make_context(begun.security)
        except CertificateError as error:
            raise click.UsageError(f"cannot serve TLS on --tls-port: {error}") from None
    click.echo(in_effect(begun.chosen), nl=False)


def _again(begun: ConvertedSettings, choose_now: Callable[[], Chosen]) -> ConvertedSettings:
    """Return the current settings at start_app, or the previous ones if the current are invalid."""
    try:
        return wanted(choose_now())
    except click.UsageError as error:
        logger.error("the settings were not reloaded, the previous ones stay in effect: %s", error.message)
        return begun


def _told(broker: Broker) -> Callable[[str], None]:
    """Return a function that logs events of the broker's connections."""

    def tell(event: str) -> None:
        subject = broker.subject
        logger.info("%s", event, extra=about(subject) if isinstance(subject, Peer) else None)

    return tell


def _import(broker: Broker, path: str, now_us: int) -> bool:
    """Import the definitions of a file; return whether that succeeded."""
    from leveret.control.definitions.loading import load

    try:
        warnings = load(broker, path, now_us)
    except (OSError, Refused) as error:
        logger.critical("cannot import the definitions in %s: %s", path, error)
        return False
    for line in warnings:
        logger.warning("%s: %s", path, line)
    logger.info("definitions imported from %s", path)
    return True


def _life(begun: ConvertedSettings, directory: str, choose_now: Callable[[], Chosen], notifier: Notifier) -> int:
    sys.setswitchinterval(SWITCH_S)
    poller = Poller(begun.chosen["busy_poll_us"])
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(poller)) as runner:
        return runner.run(_serve(begun, directory, choose_now, notifier, poller))


async def _serve(
    begun: ConvertedSettings, directory: str, choose_now: Callable[[], Chosen], notifier: Notifier, poller: Poller
) -> int:
    chosen = begun.chosen
    try:
        certificates = Certificates(begun.security) if begun.security is not None else None
    except CertificateError as error:
        logger.critical("cannot serve TLS on --tls-port: %s", error)
        return EXIT_OPTIONS
    broker = Broker(begun.broker, os.urandom)
    broker.on_event = _told(broker)
    disk = RealDisk()
    try:
        check_directory(directory)
        parts = open_directory(disk, directory, chosen["journal_spare_files"], begun.tables_dir)
        server = Server(broker, *parts, Alarms(begun.limits, gauges(directory)), poller=poller)
        count = server.recover()
    except (JournalVersionError, RecordError) as error:
        logger.critical("cannot serve the data directory %s: %s", directory, error)
        return EXIT_VERSION
    except (JournalFailed, JournalFull, OSError) as error:
        logger.critical("cannot serve the data directory %s: %s", directory, error)
        return EXIT_JOURNAL
    server.shutdown.drain_timeout_ms = chosen["drain_timeout_ms"]
    if not _prepare(broker, server, chosen):
        return EXIT_OPTIONS
    logger.info("leveret %s (%s core), %d messages recovered from %s", __version__, core(), count, directory)
    if core() == "interpreted":
        logger.warning("the core is interpreted, two to ten times slower than the compiled core: %s", core_reason())
    for line in parts.journal.report.lines():
        logger.warning("%s", line)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _leave, server, notifier)
    loop.add_signal_handler(signal.SIGHUP, Reload(begun, choose_now, server, certificates, notifier))
    facts = (f"leveret@{socket.gethostname()}", directory, __version__, core())
    control = ControlSocket(Awaited(broker, server, *facts), directory)
    try:
        await control.listen()
    except OSError as error:
        logger.critical("can't listen on %s: %s", control.path, error.strerror or error)
        return EXIT_ADDRESS
    try:
        sockets = await admin.admin_sockets(begun.admin, control.was_killed)
    except admin.AdminRefused as refused:
        logger.critical("%s", refused)
        return refused.status
    if not await _listen(server, chosen, certificates):
        return EXIT_ADDRESS
    child = admin.start_admin(sockets, begun.admin, server, directory) if sockets else None
    tables = _tables(server, chosen, parts.streams.tables_dir)
    notifier.ready(f"serving {directory}")
    notifier.watch(loop)
    await server.run()
    if not server.keeps_process:
        notifier.stopping()
    if tables is not None:
        await tables.stop()
    if child is not None:
        await child.stop()
    await control.close()
    if server.failure is not None:
        return EXIT_JOURNAL
    if server.keeps_process:
        return APP_STOPPED
    logger.info("stopped")
    return 0


def _tables(server: Server, chosen: Chosen, directory: str) -> Tables | None:
    """Return the builder of the streams' tables; None if it is off or packages are missing, which is logged."""
    if chosen["tables_dir"] == OFF:
        return None
    if not are_possible():
        packages = "pyarrow and fastavro are not installed: pip install 'leveret[lake]'"
        logger.info("no tables are written for streams: %s, or disable them with --tables-dir off", packages)
        return None
    return Tables(server, directory)


def _leave(server: Server, notifier: Notifier) -> None:
    notifier.stopping()
    server.shutdown.leave()


def _prepare(broker: Broker, server: Server, chosen: Chosen) -> bool:
    """Load definitions, turn firehoses on, and check that somebody can log in; False if something fails."""
    if broker.imports.begun:
        from leveret.control.definitions.loading import finish

        for line in finish(broker, server.now_us()):
            logger.warning("%s", line)
    if chosen["definitions"] is not None and not _import(broker, chosen["definitions"], server.now_us()):
        return False
    for name in chosen["trace"]:
        if name not in broker.vhosts:
            logger.critical("--trace: virtual host %s does not exist", quoted(name))
            return False
        broker.trace(name, True)
        logger.info("the firehose of virtual host %s is on", quoted(name))
    if reason := logins.nobody_from_afar(broker, chosen["host"]):
        logger.log(logging.CRITICAL if chosen["remote_user_required"] else logging.WARNING, "%s", reason)
        return not chosen["remote_user_required"]
    return True


async def _listen(server: Server, chosen: Chosen, certificates: Certificates | None) -> bool:
    """Listen on all addresses, and log that only when all succeeded; False if one fails."""
    hosts, ports, lines = chosen["host"], [], []
    if chosen["port"] != OFF:
        ports.append((chosen["port"], server.listen, ""))
    if certificates is not None:
        ports.append((chosen["tls_port"], functools.partial(server.listen_tls, certificates=certificates), " with TLS"))
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
