"""Timeouts that NServiceBus itself stored: its SQL persistence's table ``<prefix>TimeoutData`` (versions 1 to 6)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, MetaData, Table, create_engine, delete, inspect, select
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from leveret.delay.instant import from_header
from leveret.endpoint.timeouts import database
from leveret.endpoint.timeouts.errors import NotATimeout, TimeoutsUnavailable
from leveret.endpoint.timeouts.store import TimeoutStore
from leveret.endpoint.timeouts.timeout import EXPIRE, Timeout, microseconds
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import Value

BATCH: Final = 128
_NO_SAGA: Final = "00000000-0000-0000-0000-000000000000"


@dataclass
class Imported:
    """What an import did. moved: how many are in the store now, and no more in the table; kept: id -> why it stays."""

    moved: int = 0
    kept: dict[str, str] = field(default_factory=dict)


class Source:
    """A table of NServiceBus. url: of any database that SQLAlchemy has a driver for; table: its name, by default the
    endpoint's as NServiceBus makes it.

    Raises ``ValueError`` for a wrong URL; ``TimeoutsUnavailable`` where a driver or the table is missing, and from
    every method where the database does not answer.
    """

    def __init__(self, endpoint: str, url: str, table: str | None = None) -> None:
        try:
            self._url = database.with_driver(url)
            self._engine = create_engine(self._url)
        except (ArgumentError, NoSuchModuleError) as error:
            raise ValueError(f"not the URL of a database: {error}") from error
        except ModuleNotFoundError as error:
            raise TimeoutsUnavailable(f"the database to import from needs the package {error.name}") from error
        name = table or f"{endpoint.replace('.', '_')}_TimeoutData"
        with self._transaction() as connection:
            # the scripts of some versions leave the name to PostgreSQL, which makes it lower case
            found = next((one for one in (name, name.lower()) if inspect(connection).has_table(one)), None)
            if found is None:
                raise TimeoutsUnavailable(f"there is no table {name} in {self._url.render_as_string()}")
            self._table = Table(found, MetaData(), autoload_with=connection)
        missing = {"Id", "Destination", "SagaId", "State", "Time", "Headers"} - set(self._table.c.keys())
        if missing:
            raise TimeoutsUnavailable(
                f"the table {found} is not an NServiceBus table: it lacks {', '.join(sorted(missing))}"
            )

    def rows(self) -> Iterator[list[Mapping[str, Any]]]:
        """All rows, some at a time; those that were read may be deleted meanwhile."""
        id, last = self._table.c.Id, None
        while True:
            chosen = select(self._table).order_by(id).limit(BATCH)
            with self._transaction() as connection:
                rows = list(connection.execute(chosen if last is None else chosen.where(id > last)).mappings())
            if not rows:
                return
            last = rows[-1]["Id"]
            yield [dict(row) for row in rows]

    def delete(self, ids: list[Any]) -> None:
        """Delete these rows."""
        if ids:
            with self._transaction() as connection:
                connection.execute(delete(self._table).where(self._table.c.Id.in_(ids)))

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).strip()
            raise TimeoutsUnavailable(f"the database {self._url.render_as_string()}: {reason}") from error


def move(source: Source, store: TimeoutStore) -> Imported:
    """Move the rows into the store: each is deleted in the table when it is on disk in the store.

    Its id goes with it, so that an import that was interrupted can be started again. What can not be read stays.
    """
    imported = Imported()
    for rows in source.rows():
        timeouts: list[Timeout] = []
        ids: list[Any] = []
        for row in rows:
            try:
                timeouts.append(timeout_of(row))
                ids.append(row["Id"])
            except NotATimeout as error:
                imported.kept[str(row["Id"])] = str(error)
        store.apply(timeouts)
        source.delete(ids)
        imported.moved += len(ids)
    return imported


def timeout_of(row: Mapping[str, Any]) -> Timeout:
    """A row as a timeout. Databases round times: where the header says later, it counts. ``NotATimeout``."""
    headers = _headers(row["Headers"])
    if not row["Destination"]:
        raise NotATimeout("it has no destination")
    if not isinstance(row["Time"], datetime):
        raise NotATimeout("it has no time")
    due = row["Time"] if row["Time"].tzinfo else row["Time"].replace(tzinfo=UTC)
    try:
        due = max(due, from_header(str(headers[EXPIRE])))
    except (KeyError, ValueError):
        pass  # the column is enough
    saga_id = "" if row["SagaId"] is None or str(row["SagaId"]) == _NO_SAGA else str(row["SagaId"]).lower()
    body = bytes(row["State"] or b"")
    header = encode_header(_properties(headers), len(body))
    id = str(row["Id"]).replace("-", "").lower()
    return Timeout(id, row["Destination"], microseconds(due), saga_id, header, body)


def _headers(text: str | None) -> dict[str, Value]:
    """A JSON object of strings."""
    try:
        headers = json.loads(text or "{}")
    except ValueError as error:
        raise NotATimeout(f"its headers are not JSON: {error}") from error
    if not isinstance(headers, dict):
        raise NotATimeout("its headers are not a JSON object")
    return {name: value for name, value in headers.items() if isinstance(value, str)}


def _properties(headers: dict[str, Value]) -> Properties:
    """The properties that the RabbitMQ transport makes of the headers."""

    def text(name: str) -> str | None:
        value = headers.get(f"NServiceBus.{name}")
        return value if isinstance(value, str) and value and len(value.encode()) <= 255 else None

    types = text("EnclosedMessageTypes")
    return Properties(
        content_type=text("ContentType") or "application/octet-stream",
        headers=headers,
        delivery_mode=2,
        correlation_id=text("CorrelationId"),
        reply_to=text("ReplyToAddress"),
        message_id=text("MessageId"),
        type=types.partition(",")[0] if types else None,
    )
