"""The database table of an endpoint's timeouts, shared by all processes of that endpoint."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    inspect,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from leveret.endpoint.timeouts import database
from leveret.endpoint.timeouts.errors import TimeoutsUnavailable
from leveret.endpoint.timeouts.timeout import Clearing, Timeout

VERSION: Final = 1
"""Version of the tables; a store of another version is refused."""

CLAIM_US: Final = 60_000_000
"""How long a claim is valid; then any process may claim the row again if it was not sent."""

_CREATION_LOCK: Final = 0x6C657665  # key of a PostgreSQL advisory lock: "leve"

_registry = Table(
    "leveret_timeouts",
    MetaData(),
    Column("endpoint", String(255), primary_key=True),
    Column("table_name", String(63), nullable=False),
    Column("version", Integer, nullable=False),
    Column("store", String(32), nullable=False),
)


def _table(endpoint: str) -> Table:
    """Return the endpoint's table. ``ready_us`` is when a row can be claimed: it is due, or a claim or pause ends."""
    digest = hashlib.sha256(endpoint.encode()).hexdigest()[:8]
    name = f"timeouts_{re.sub(r'[^a-z0-9]', '_', endpoint.lower())[:32]}_{digest}"
    return Table(
        name,
        MetaData(),
        Column("id", String(64), primary_key=True),
        Column("destination", String(255), nullable=False),
        Column("due_us", BigInteger, nullable=False),
        Column("ready_us", BigInteger, nullable=False),
        Column("saga_id", String(255), nullable=False),
        Column("header", LargeBinary, nullable=False),
        Column("body", LargeBinary, nullable=False),
        Column("claim", String(64), nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("error", Text, nullable=False),
        Index(f"{name}_ready", "ready_us"),
        Index(f"{name}_saga", "saga_id"),
    )


@dataclass(frozen=True)
class Failing:
    """A destination with failed attempts, the number of its messages that failed, and one of their last errors."""

    destination: str
    count: int
    error: str


@dataclass(frozen=True)
class StoreCensus:
    """The content of a store.

    Attributes:
        pending: How many timeouts it holds.
        due: How many of them are due.
        claimed: How many of them are being sent.
        next_due_us: When the first is due, in microseconds since 1970; None if the store is empty.
        failing: The destinations with failed attempts.
    """

    pending: int
    due: int
    claimed: int
    next_due_us: int | None
    failing: list[Failing]


class TimeoutStore:
    """The timeouts of one endpoint. Every method blocks, and is one transaction that is on disk when it returns.

    Raises ``ValueError`` for a URL that is not of SQLite or PostgreSQL. Raises ``TimeoutsUnavailable`` if a driver is
    missing, and from every method if the database fails.
    """

    def __init__(self, endpoint: str, url: str) -> None:
        self.endpoint = endpoint
        self._url = database.parse(url)
        self._engine = database.open_engine(self._url)
        self._table = _table(endpoint)
        self.identity = ""
        """Id of the store, the same in all processes; set by :meth:`create`."""

    @property
    def place(self) -> str:
        """The URL of the database, without its password."""
        return self._url.render_as_string(hide_password=True)

    @property
    def file(self) -> Path | None:
        """The file of an SQLite database, None for PostgreSQL."""
        return database.file_of(self._url)

    def create(self) -> None:
        """Create the tables if they are missing. Raises ``TimeoutsUnavailable`` for tables of another version."""
        with self._transaction() as connection:
            if connection.dialect.name == "postgresql":  # two processes may start at the same time
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})"))
            _registry.metadata.create_all(connection)
            found = connection.execute(select(_registry).where(self._registered())).mappings().one_or_none()
            if found is None:
                self._table.metadata.create_all(connection)
                self.identity = uuid.uuid4().hex
                row = (self.endpoint, self._table.name, VERSION, self.identity)
                connection.execute(insert(_registry).values(row))
                return
            if found["version"] != VERSION:
                raise TimeoutsUnavailable(
                    f"the timeouts of {self.endpoint!r} in {self.place} have the layout {found['version']}, not "
                    f"{VERSION}: they were stored by another version of this program"
                )
            self.identity = str(found["store"])

    def exists(self) -> bool:
        """Whether the endpoint's table exists. Creates nothing."""
        if self.file is not None and not self.file.exists():
            return False
        with self._transaction() as connection:
            return inspect(connection).has_table(self._table.name)

    def drop(self) -> None:
        """Delete the endpoint's table; with the last table also the registry, and an SQLite file that is then empty."""
        with self._transaction() as connection:
            self._table.metadata.drop_all(connection)
            if inspect(connection).has_table(_registry.name):
                connection.execute(delete(_registry).where(self._registered()))
                if not connection.scalar(select(func.count()).select_from(_registry)):
                    _registry.metadata.drop_all(connection)
            is_empty = not inspect(connection).get_table_names()
        if self.file is not None and is_empty:
            self._engine.dispose()
            for ending in ("", "-wal", "-shm"):
                self.file.with_name(self.file.name + ending).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    def apply(self, requests: Iterable[Timeout | Clearing]) -> None:
        """Store and clear timeouts in this order, in one transaction. A timeout that is stored already is ignored."""
        with self._transaction() as connection:
            adding: list[Timeout] = []
            for request in requests:
                if isinstance(request, Timeout):
                    adding.append(request)
                else:
                    self._add(connection, adding)
                    adding = []
                    connection.execute(delete(self._table).where(self._table.c.saga_id == request.saga_id))
            self._add(connection, adding)

    def claim(self, claim: str, now_us: int, limit: int, undue: bool = False) -> list[str]:
        """Claim up to limit ready rows for CLAIM_US, in the order of ready_us, and return their ids.

        With undue also rows that are not due yet and not claimed. Processes that claim at the same time get different
        rows.
        """
        table = self._table
        ready: ColumnElement[bool] = table.c.ready_us <= now_us
        if undue:
            ready = or_(ready, table.c.claim == "")
        chosen = select(table.c.id).where(ready).order_by(table.c.ready_us).limit(limit)
        chosen = chosen.with_for_update(skip_locked=True)  # PostgreSQL; SQLite has one writer at a time
        with self._transaction() as connection:
            ids = list(connection.scalars(chosen))
            if ids:
                values = {"claim": claim, "ready_us": now_us + CLAIM_US}
                connection.execute(update(table).where(table.c.id.in_(ids)).values(values))
        return ids

    def load(self, ids: Sequence[str]) -> list[Timeout]:
        """Return the rows with these ids, as far as they exist, in the order of their due times."""
        table = self._table
        names = (table.c[name] for name in Timeout.__dataclass_fields__)
        with self._transaction() as connection:
            rows = connection.execute(select(*names).where(table.c.id.in_(ids)).order_by(table.c.due_us)).mappings()
            return [Timeout(**row) for row in rows]

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows whose messages were sent and confirmed."""
        if ids:
            with self._transaction() as connection:
                connection.execute(delete(self._table).where(self._table.c.id.in_(ids)))

    def postpone(self, id: str, ready_us: int, error: str) -> None:
        """Release a row after a failed attempt, count the attempt, and make the row ready again at ready_us."""
        table = self._table
        values = {"claim": "", "ready_us": ready_us, "attempts": table.c.attempts + 1, "error": error}
        with self._transaction() as connection:
            connection.execute(update(table).where(table.c.id == id).values(values))

    def release(self, claim: str, ids: Sequence[str] | None = None) -> None:
        """Release all rows of this claim, or those with these ids; they are ready when they are due."""
        table = self._table
        chosen = update(table).where(table.c.claim == claim)
        if ids is not None:
            chosen = chosen.where(table.c.id.in_(ids))
        with self._transaction() as connection:
            connection.execute(chosen.values(claim="", ready_us=table.c.due_us))

    def next_ready_us(self) -> int | None:
        """Return when :meth:`claim` finds the next row, in microseconds since 1970; None if the store is empty."""
        with self._transaction() as connection:
            ready_us: int | None = connection.scalar(select(func.min(self._table.c.ready_us)))
            return ready_us

    def next_lapse_us(self, claim: str) -> int | None:
        """Return when the first claim of another process lapses, in microseconds since 1970; None without claims."""
        table = self._table
        others = select(func.min(table.c.ready_us)).where(table.c.claim != "", table.c.claim != claim)
        with self._transaction() as connection:
            lapse_us: int | None = connection.scalar(others)
            return lapse_us

    def census(self, now_us: int) -> StoreCensus:
        """Count the content of the store."""
        table = self._table
        with self._transaction() as connection:
            pending, next_due_us = connection.execute(select(func.count(), func.min(table.c.due_us))).one()
            due = connection.scalar(select(func.count()).where(table.c.due_us <= now_us)) or 0
            claimed = connection.scalar(select(func.count()).where(table.c.claim != "", table.c.ready_us > now_us)) or 0
            failing = connection.execute(
                select(table.c.destination, func.count(), func.max(table.c.error))
                .where(table.c.attempts > 0)
                .group_by(table.c.destination)
                .order_by(table.c.destination)
            )
            return StoreCensus(pending, due, claimed, next_due_us, [Failing(*row) for row in failing])

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).strip()
            raise TimeoutsUnavailable(f"the database of the timeouts, {self.place}: {reason}") from error

    def _add(self, connection: Connection, timeouts: Sequence[Timeout]) -> None:
        if not timeouts:
            return
        rows = [asdict(timeout) | {"ready_us": timeout.due_us, "error": ""} for timeout in timeouts]
        dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
        connection.execute(dialect.insert(self._table).on_conflict_do_nothing(), rows)

    def _registered(self) -> ColumnElement[bool]:
        return _registry.c.endpoint == self.endpoint
