"""Imports timeouts that NServiceBus stored: table ``<prefix>TimeoutData`` of its SQL persistence (versions 1 to 6)."""

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
    """The result of an import.

    Attributes:
        moved: How many timeouts were moved from the table to the store.
        kept: The reasons why others stay in the table, by id.
    """

    moved: int = 0
    kept: dict[str, str] = field(default_factory=dict)


class TimeoutTable:
    """A timeout table of NServiceBus.

    Args:
        endpoint: Name of the endpoint.
        url: URL of any database for which SQLAlchemy has a driver.
        table: Name of the table; None = NServiceBus's name for this endpoint.

    Raises:
        ValueError: The URL is wrong.
        TimeoutsUnavailable: A driver or the table is missing. Every method raises it if the database fails.
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
            # the scripts of some versions do not quote the name, so PostgreSQL makes it lower case
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
        """Iterate over all rows in batches; rows that were read may be deleted meanwhile."""
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
        """Delete the rows with these ids."""
        if ids:
            with self._transaction() as connection:
                connection.execute(delete(self._table).where(self._table.c.Id.in_(ids)))

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).strip()
            raise TimeoutsUnavailable(f"the database {self._url.render_as_string()}: {reason}") from error


def move(source: TimeoutTable, store: TimeoutStore) -> Imported:
    """Move the rows to the store. Each is deleted from the table when it is on disk in the store.

    Rows keep their ids, so that an interrupted import can be started again. Rows that cannot be read stay.
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
    """Convert a row to a timeout. Databases round times, so a later time in the header is used instead.

    Raises ``NotATimeout`` if the row cannot be read.
    """
    headers = _headers(row["Headers"])
    if not row["Destination"]:
        raise NotATimeout("it has no destination")
    if not isinstance(row["Time"], datetime):
        raise NotATimeout("it has no time")
    due = row["Time"] if row["Time"].tzinfo else row["Time"].replace(tzinfo=UTC)
    try:
        due = max(due, from_header(str(headers[EXPIRE])))
    except (KeyError, ValueError):
        pass  # the time of the column is used
    saga_id = "" if row["SagaId"] is None or str(row["SagaId"]) == _NO_SAGA else str(row["SagaId"]).lower()
    body = bytes(row["State"] or b"")
    header = encode_header(_properties(headers), len(body))
    id = str(row["Id"]).replace("-", "").lower()
    return Timeout(id, row["Destination"], microseconds(due), saga_id, header, body)


def _headers(text: str | None) -> dict[str, Value]:
    """Decode a JSON object of strings; values that are not strings are dropped."""
    try:
        headers = json.loads(text or "{}")
    except ValueError as error:
        raise NotATimeout(f"its headers are not JSON: {error}") from error
    if not isinstance(headers, dict):
        raise NotATimeout("its headers are not a JSON object")
    return {name: value for name, value in headers.items() if isinstance(value, str)}


def _properties(headers: dict[str, Value]) -> Properties:
    """Return the properties that the RabbitMQ transport derives from the headers."""

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
