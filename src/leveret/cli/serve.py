"""leveret serve: the broker as a process.

\b
SIGHUP   reads the settings and the TLS certificates again (docs/guides/production.md)
SIGTERM  stops in order, after --drain-timeout-ms; a second one hurries

Exit codes: 0 stopped by SIGTERM or SIGINT; 1 an error of its own; 2 wrong options or configuration; 3 the data
directory is in use; 4 an address can't be listened on; 5 the journal failed (input/output error), or it had no room on
the disk when the broker started or stopped; 6 a newer leveret wrote the data directory.
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
from leveret.broker.records import RecordError
from leveret.cli import admin, logins
from leveret.cli.configuration.chosen import Chosen, choose, given, misspelt
from leveret.cli.configuration.chosen import options as add_options
from leveret.cli.configuration.kinds import OFF
from leveret.cli.configuration.reload import Reload
from leveret.cli.configuration.settings import SECTIONS
from leveret.cli.configuration.wanted import Wanted, wanted
from leveret.cli.data_dir import default_data_dir
from leveret.control.awaited import Awaited
from leveret.control.refusal import Refused
from leveret.control.socket import ControlSocket
from leveret.net import logs
from leveret.net.alarms import Alarms
from leveret.net.certificates import CertificateError, Certificates, make_context
from leveret.net.descriptors import take_room
from leveret.net.logs import about
from leveret.net.malloc import keep_freed_memory
from leveret.net.notify import Notifier
from leveret.net.poller import Poller
from leveret.net.resources import gauges
from leveret.net.server import Server
from leveret.net.tables import Tables, are_possible
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
APP_STOPPED: Final = -1  # it is no exit code: stop_app was called
# how long the event loop may wait for a thread that builds pages or files; Python's own 5 ms would be felt
SWITCH_S: Final = 0.0005


class ServeCommand(click.Command):
    """Its options are the settings, and its help has them by what they are about."""

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
@click.option("--print-config", is_flag=True, help="Print a file with all settings, explained, and end.")
@click.option("--check-config", is_flag=True, help="Print the settings in effect, and where each comes from, and end.")
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
        logger.critical("the data directory %s can't be used: %s", directory, error.strerror or error)
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
        logger.critical("the control socket in %s can't be made, so nobody could say start_app: %s", directory, error)
        sys.exit(EXIT_ADDRESS)


def _check(begun: Wanted) -> None:
    """The settings fit together; so do the files of the certificate."""
    from leveret.cli.configuration.printing import in_effect

    if begun.security is not None:
        try:
            make_context(begun.security)
        except CertificateError as error:
            raise click.UsageError(f"--tls-port can't be served: {error}") from None
    click.echo(in_effect(begun.chosen), nl=False)


def _again(begun: Wanted, choose_now: Callable[[], Chosen]) -> Wanted:
    """The settings at start_app: those of now, or of before if they are wrong now."""
    try:
        return wanted(choose_now())
    except click.UsageError as error:
        logger.error("the settings are those of before: %s", error.message)
        return begun


def _told(broker: Broker) -> Callable[[str], None]:
    """What makes a line of the log of what happens to the broker's connections."""

    def tell(event: str) -> None:
        subject = broker.subject
        logger.info("%s", event, extra=about(subject) if isinstance(subject, Peer) else None)

    return tell


def _import(broker: Broker, path: str, now_us: int) -> bool:
    """Whether the definitions of a file could be imported."""
    from leveret.control.definitions.loading import load

    try:
        warnings = load(broker, path, now_us)
    except (OSError, Refused) as error:
        logger.critical("the definitions in %s can't be imported: %s", path, error)
        return False
    for line in warnings:
        logger.warning("%s: %s", path, line)
    logger.info("definitions imported from %s", path)
    return True


def _life(begun: Wanted, directory: str, choose_now: Callable[[], Chosen], notifier: Notifier) -> int:
    sys.setswitchinterval(SWITCH_S)
    poller = Poller(begun.chosen["busy_poll_us"])
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(poller)) as runner:
        return runner.run(_serve(begun, directory, choose_now, notifier, poller))


async def _serve(
    begun: Wanted, directory: str, choose_now: Callable[[], Chosen], notifier: Notifier, poller: Poller
) -> int:
    chosen = begun.chosen
    try:
        certificates = Certificates(begun.security) if begun.security is not None else None
    except CertificateError as error:
        logger.critical("--tls-port can't be served: %s", error)
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
        logger.critical("the data directory %s can't be served: %s", directory, error)
        return EXIT_VERSION
    except (JournalFailed, JournalFull, OSError) as error:
        logger.critical("the data directory %s can't be served: %s", directory, error)
        return EXIT_JOURNAL
    server.shutdown.drain_timeout_ms = chosen["drain_timeout_ms"]
    if not _prepare(broker, server, chosen):
        return EXIT_OPTIONS
    logger.info("leveret %s (%s core), %d messages recovered from %s", __version__, core(), count, directory)
    if core() == "interpreted":
        logger.warning("the core is interpreted, and two to ten times as slow as the compiled one: %s", core_reason())
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
    """What makes tables of streams, unless that is off or not possible, which the log then says."""
    if chosen["tables_dir"] == OFF:
        return None
    if not are_possible():
        packages = "pyarrow and fastavro are not installed: pip install 'leveret[lake]' brings them"
        logger.info("streams have no tables: %s, --tables-dir off does without", packages)
        return None
    return Tables(server, directory)


def _leave(server: Server, notifier: Notifier) -> None:
    notifier.stopping()
    server.shutdown.leave()


def _prepare(broker: Broker, server: Server, chosen: Chosen) -> bool:
    """Definitions, firehoses, and whether anybody can log in; False if that can't be."""
    if broker.imports.begun:
        from leveret.control.definitions.loading import finish

        for line in finish(broker, server.now_us()):
            logger.warning("%s", line)
    if chosen["definitions"] is not None and not _import(broker, chosen["definitions"], server.now_us()):
        return False
    for name in chosen["trace"]:
        if name not in broker.vhosts:
            logger.critical("--trace: there is no virtual host %s", quoted(name))
            return False
        broker.trace(name, True)
        logger.info("the firehose of virtual host %s is on", quoted(name))
    if reason := logins.nobody_from_afar(broker, chosen["host"]):
        logger.log(logging.CRITICAL if chosen["remote_user_required"] else logging.WARNING, "%s", reason)
        return not chosen["remote_user_required"]
    return True


async def _listen(server: Server, chosen: Chosen, certificates: Certificates | None) -> bool:
    """Listen on all addresses, and only then say so; False if one can't be had."""
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
