"""The state of a stream for readers other than consumers: which offsets exist, and which are sealed in tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.wire.body_schema import SCHEMA
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.streams.stream import Stream


def facts_of(stream: Stream) -> dict[str, Value]:
    """Return the offsets and names that docs/guides/streams.md describes; consumers get messages below next_offset.

    tables_dir: the directory of its Parquet files on this machine, None until it has been asked for; sealed_offset: the
    messages below it are known to be in these files, 0 = none.
    """
    history, schema = stream.history, stream.arguments.get(SCHEMA)
    return {
        "name": stream.name,
        "vhost": stream.vhost.name,
        "creation": stream.creation,
        "first_offset": int(stream.first),
        "next_offset": int(stream.committed),
        "sealed_offset": int(min(history.sealed, stream.committed)),
        "schema": schema if isinstance(schema, str) else None,
        "tables_dir": history.tables or None,
    }
