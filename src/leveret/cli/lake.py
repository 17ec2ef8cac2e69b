"""leveret lake register: registers the tables of streams in an Apache Iceberg catalogue.

Exit codes: 0 done; 1 some files do not fit into their table; 2 wrong options, or a requirement is missing.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import click

from leveret.cli.data_dir import default_data_dir
from leveret.cli.options import CommandGroup
from leveret.control.calls.blocking import ControlClient
from leveret.control.calls.line import Caller
from leveret.control.refusal import Refused
from leveret.net.logs import TextFormatter
from leveret.store.tables import TABLES_DIRECTORY

EXIT_LEFT: Final = 1
POLL_S: Final = 1.0
HOLDER: Final = "iceberg"
CALLER: Final = Caller(interface="lake")


@click.group("lake", cls=CommandGroup)
def command() -> None:
    """Tables of streams (docs/guides/streams-as-tables.md)."""


class BrokerStreams:
    """The streams of the broker that serves a data directory. Methods raise OSError if none does."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir

    def files(self) -> Sequence[dict[str, Any]]:
        with ControlClient(self._data_dir, CALLER) as client:
            found: list[dict[str, Any]] = client.call("list_stream_files")
            return found

    def hold(self, vhost: str, stream: str, lease: str, first: int, duration_ms: int) -> str:
        fields: dict[str, Any] = {"vhost": vhost, "name": stream, "first": first, "duration_ms": duration_ms}
        with ControlClient(self._data_dir, CALLER) as client:
            try:
                if lease:
                    return str(client.call("renew_stream_lease", id=lease, **fields)["id"])
            except Refused:
                pass  # the lease has expired: the broker was down for long
            try:
                return str(client.call("grant_stream_lease", holder=HOLDER, **fields)["id"])
            except Refused:
                return ""  # the stream has just been deleted


@command.command("register")
@click.option("--data-dir", help="Data directory of the broker.  [default: $LEVERET_DATA_DIR, else "
                                 "~/.local/share/leveret]")
@click.option("--tables-dir", help="Directory of the tables.  [default: tables/ in the data directory]")
@click.option("--catalog", help="URI of the catalogue.  [default: sqlite:///DATA_DIR/iceberg/catalog.db]")
@click.option("--warehouse", help="URI for the metadata of tables.  [default: file://DATA_DIR/iceberg]")
@click.option("--follow", is_flag=True, help="Run until SIGINT or SIGTERM; retention waits meanwhile.")
@click.option("--every-files", type=click.IntRange(1), default=100, show_default=True, help="Files per commit.")
@click.option("--every-s", type=click.IntRange(0), default=60, show_default=True, help="Commit fewer files after "
                                                                                       "this time.")
@click.option(
    "--grace-s", type=click.IntRange(0, 3600), default=300, show_default=True,
    help="How long files removed from a table are kept for readers of older versions.",
)  # fmt: skip
@click.option("--keep-s", type=click.IntRange(0), default=86400, show_default=True, help="How long table versions "
                                                                                         "are kept.")
def register(
    data_dir: str | None, tables_dir: str | None, catalog: str | None, warehouse: str | None, follow: bool,
    every_files: int, every_s: int, grace_s: int, keep_s: int,
) -> None:  # fmt: skip
    """Register Parquet files of all streams in an Iceberg catalogue, and remove deleted ones.

    It is safe to run at any time, also after a crash: each file is registered once. The broker need not be running.
    """
    if importlib.util.find_spec("pyiceberg") is None:
        raise click.UsageError("this command needs pyiceberg: pip install 'leveret[iceberg]'")
    from leveret.lake.iceberg import open_catalog
    from leveret.lake.registrar import SECOND_US, CommitPolicy, Registrar

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    logging.getLogger().handlers[0].setFormatter(TextFormatter("%(message)s"))
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it logs a line for each column without statistics
    home = os.path.abspath(data_dir or default_data_dir())
    tables = os.path.abspath(tables_dir or os.path.join(home, TABLES_DIRECTORY))
    if catalog is None or warehouse is None:
        _make_directory(os.path.join(home, "iceberg"))
    try:
        opened = open_catalog(catalog or f"sqlite:///{home}/iceberg/catalog.db", warehouse or f"file://{home}/iceberg")
    except Exception as error:
        raise click.UsageError(f"cannot open the catalogue: {error}") from None
    policy = CommitPolicy(every_files, every_s * SECOND_US, grace_s * SECOND_US, timedelta(seconds=keep_s))
    registrar = Registrar(opened, tables, BrokerStreams(home), policy, holds=follow)
    end = threading.Event()
    if follow:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: end.set())
    is_whole = _step(registrar, at_once=not follow)
    while follow and not end.wait(POLL_S):
        is_whole = _step(registrar, at_once=False)
    sys.exit(0 if is_whole else EXIT_LEFT)


def _make_directory(path: str) -> None:
    try:
        os.makedirs(path, 0o700, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None


def _step(registrar: Any, at_once: bool) -> bool:
    """Register new files and report them. Returns False if some could not be registered."""
    from leveret.lake.iceberg import Registered

    is_whole = True
    for name, result in registrar.step(time.time_ns() // 1000, at_once):
        if not isinstance(result, Registered):
            click.echo(f"{name}: {result}", err=True)
            is_whole = False
        elif result.added or result.removed:
            click.echo(f"{name}: {result.added} files added, {result.removed} removed")
    return is_whole
