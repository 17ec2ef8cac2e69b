"""A table of timeouts as NServiceBus' SQL persistence creates it in PostgreSQL, and its rows."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import create_engine, text

from leveret.endpoint.timeouts.database import parse

DUE = datetime(2030, 1, 31, 13, 59, 26, 479745, UTC)
HEADERS = {
    "NServiceBus.MessageId": "m-1",
    "NServiceBus.ContentType": "text/xml",
    "NServiceBus.CorrelationId": "c-1",
    "NServiceBus.ReplyToAddress": "Shipping",
    "NServiceBus.EnclosedMessageTypes": "Sales.Remind, Sales, Version=1.0.0.0",
    "NServiceBus.Timeout.Expire": "2030-01-31 13:59:26:479745 Z",
}


def row(**changes: Any) -> dict[str, Any]:
    """Return a row; keyword arguments replace values of columns."""
    return {
        "Id": uuid.uuid4(),
        "Destination": "Sales",
        "SagaId": uuid.UUID(int=0),
        "State": b"<Remind/>",
        "Time": DUE.replace(tzinfo=None),
        "Headers": json.dumps(HEADERS),
        "PersistenceVersion": "4.6.0.0",
    } | changes


def create(url: str, table: str, rows: Sequence[dict[str, Any]]) -> None:
    engine = create_engine(parse(url))
    with engine.begin() as connection:
        connection.execute(
            text(
                f'CREATE TABLE "{table}" ("Id" uuid NOT NULL PRIMARY KEY, "Destination" varchar(200), "SagaId" uuid,'
                ' "State" bytea, "Time" timestamp, "Headers" text, "PersistenceVersion" varchar(23))'
            )
        )
        columns = ", ".join(f'"{name}"' for name in rows[0])
        values = ", ".join(f":{name}" for name in rows[0])
        connection.execute(text(f'INSERT INTO "{table}" ({columns}) VALUES ({values})'), list(rows))
    engine.dispose()
