"""A stream and its files, for external readers. Times are wall clock times in ms since 1970."""

from __future__ import annotations

from leveret.broker.streams.leases import Lease
from leveret.broker.streams.stream import Stream
from leveret.control.node import BrokerNode
from leveret.control.tables import sayable
from leveret.control.views.view import View


def files_view(node: BrokerNode, stream: Stream) -> View:
    """Return an item of list_stream_files.

    `directory` has the native files, `tables` the Parquet files, both on this machine. Native files are (first offset,
    offset after the last message, size in bytes); the newest one grows.
    """
    streams = node.host.streams
    archive = streams.archives[int(stream.number)]
    schema = stream.arguments.get("x-leveret-schema")
    now_us = node.host.now_us()
    return {
        "vhost": stream.vhost.name,
        "name": sayable(stream.name),
        "creation": stream.creation,
        "schema": sayable(schema) if isinstance(schema, str) else None,
        "first_offset": int(stream.first),
        "retained_from_offset": streams.retained_from(archive),
        "written_offset": int(stream.history.end),
        "committed_offset": int(stream.committed),
        "directory": archive.files.directory,
        "tables": streams.tables_directory(stream),
        "native": [(each.first, each.end, each.size) for each in archive.files.segments],
        "leases": [lease_view(node, lease) for lease in stream.leases.living(now_us)],
    }


def lease_view(node: BrokerNode, lease: Lease) -> View:
    """Return a lease as its holder sees it."""
    expires_ms = int(node.broker.timeline.wall_us(lease.expires_us)) // 1000
    return {"id": lease.id, "name": sayable(lease.name), "first_offset": int(lease.first), "expires_ms": expires_ms}
