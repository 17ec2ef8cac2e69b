"""The output of a flow, and the batch of each row: Parquet by the log of Spark's file sink, or messages from a
queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from leveret.client import BlockingChannel, BlockingConnection, ClientError


class Row(NamedTuple):
    """One row of output; ``batch`` is None if the sink does not record it."""

    message_id: str
    batch: int | None = None
    redelivered: bool = False


class ParquetOutput:
    """Files that Spark's file sink has written. Those of failed attempts remain, too; only its log tells them apart."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rows: dict[str, list[Row]] = {}

    def rows(self) -> list[Row]:
        """Return all rows of committed batches; each file is read once."""
        for batch, path in self._committed():
            if path not in self._rows:
                table = pq.read_table(path).to_pydict()
                redelivered = table.get("redelivered") or [False] * len(table["message_id"])
                self._rows[path] = [
                    Row(*row) for row in zip(table["message_id"], [batch] * len(redelivered), redelivered, strict=True)
                ]
        return [row for rows in self._rows.values() for row in rows]

    def count(self) -> int:
        """Return the number of different messages; counting duplicates would end the wait too early."""
        return len({row.message_id for row in self.rows()})

    def _committed(self) -> list[tuple[int, str]]:
        logs = {}
        for path in (self._directory / "_spark_metadata").glob("[0-9]*"):
            # every tenth log is "9.compact" and begins with all entries before it
            logs[int(path.name.partition(".")[0])] = path
        found: dict[str, int] = {}
        for batch in sorted(logs):
            version, *entries = logs[batch].read_text().splitlines()
            assert version == "v1", f"the file sink's log has another format: {version}"
            for entry in entries:
                found.setdefault(unquote(urlsplit(json.loads(entry)["path"]).path), batch)
        return [(batch, path) for path, batch in found.items()]


class QueueOutput:
    """Messages in a queue. They stay there: messages that were read are requeued when the connection is closed."""

    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self._queue = queue
        self._count = 0
        self._connection: BlockingConnection | None = None
        self._channel: BlockingChannel | None = None

    def count(self) -> int:
        """Return how many messages are ready; while the broker is down, the last known number."""
        try:
            if self._channel is None:
                self._connection = BlockingConnection(self._url, reconnect=False)
                self._channel = self._connection.channel()
            self._count = self._channel.declare_queue(self._queue, passive=True).message_count
        except ClientError:
            self.close()
        return self._count

    def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            connection.close()

    def rows(self) -> list[Row]:
        with BlockingConnection(self._url, reconnect=False) as connection:
            channel = connection.channel()
            count = channel.declare_queue(self._queue, passive=True).message_count
            channel.consume(self._queue)
            found: list[Row] = []
            while len(found) < count:
                more = channel.deliveries(count - len(found), 10.0)
                assert more, f"only {len(found)} of {count} messages are delivered"
                found += [Row(delivery.body.decode()) for delivery in more]
            return found
