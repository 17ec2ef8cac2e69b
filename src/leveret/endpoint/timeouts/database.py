"""Opens the database of the timeouts, SQLite or PostgreSQL, with SQLAlchemy."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from leveret.endpoint.timeouts.errors import TimeoutsUnavailable

_DRIVERS: Final = {
    "sqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
}
BUSY_MS: Final = 30_000
"""How long a process waits for the transaction of another process on the same SQLite file."""
RETRY_S: Final = 0.01


def default_url(endpoint: str, folder: Path) -> str:
    """Return the URL of the SQLite file ``<endpoint>.timeouts.sqlite`` in the endpoint's folder."""
    file = folder.absolute() / (quote(endpoint, safe=" ") + ".timeouts.sqlite")
    return f"sqlite:///{quote(str(file))}"


def parse(url: str) -> URL:
    """Parse a URL and set the driver. Raises ``ValueError`` if it is not a ``sqlite:`` or ``postgresql:`` URL."""
    parsed = with_driver(url)
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ValueError(f"timeouts are kept in sqlite or postgresql, not in {parsed.drivername}")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ValueError("timeouts need a file: a database in memory would lose them")
    return parsed


def with_driver(url: str) -> URL:
    """Parse the URL of any database; SQLite and PostgreSQL get the default driver if the URL has none.

    Raises ``ValueError`` if it is not a URL.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ValueError(f"not the URL of a database, like sqlite:///file or postgresql://host/name: {url!r}") from None
    return parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))


def file_of(url: URL) -> Path | None:
    """Return the file of an SQLite database, None for any other."""
    return Path(str(url.database)) if url.get_backend_name() == "sqlite" else None


def open_engine(url: URL) -> Engine:
    """Create the engine without connecting. Raises ``TimeoutsUnavailable`` if the driver is missing."""
    try:
        if url.get_backend_name() != "sqlite":
            return create_engine(url, pool_pre_ping=True, pool_size=1)
        engine = create_engine(url, pool_size=1)
    except ModuleNotFoundError as error:
        raise TimeoutsUnavailable(
            f"the database of the timeouts needs the package {error.name}: pip install '{error.name}[binary]'"
        ) from error
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    return engine


def _set_up(connection: Any, _record: object) -> None:
    """Set SQLite up: commits are on disk when they return; readers and one writer at a time, in any processes."""
    connection.isolation_level = None  # _begin starts transactions, not the sqlite3 module
    until_s = time.monotonic() + BUSY_MS / 1000
    for pragma in (f"busy_timeout={BUSY_MS}", "journal_mode=WAL", "synchronous=FULL"):
        while not _is_set(connection, pragma, until_s):
            time.sleep(RETRY_S)


def _is_set(connection: Any, pragma: str, until_s: float) -> bool:
    """Set a pragma; False if another process does the same, which fails at once in SQLite whatever the timeout."""
    try:
        connection.execute(f"PRAGMA {pragma}")
    except sqlite3.OperationalError:
        if time.monotonic() > until_s:
            raise
        return False
    return True


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
