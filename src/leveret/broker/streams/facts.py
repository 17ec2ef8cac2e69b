"""Where a stream stands, for readers that do not only consume: which offsets there are, and what of them is sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.wire.body_schema import SCHEMA
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.streams.stream import Stream


def facts_of(stream: Stream) -> dict[str, Value]:
    """Offsets as docs/guides/streams.md says; next_offset: consumers get what is below it.

    tables_dir: the directory of its Parquet files on this machine, None while nobody has looked for any;
    sealed_offset: the messages below stand there, 0 = none, as far as is known.
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
