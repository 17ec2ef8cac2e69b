"""Tells the broker of each query's progress, for its web page and metrics (docs/guides/spark/operating.md).

Spark gives a Python data source no metrics of its own, and its reader does not know its query. A listener in the
driver knows all queries, whatever their sources and sinks.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from leveret.client import BlockingConnection, ClientError
from leveret.client.protocol.url import parse_url
from leveret.client.stage import STAGE
from leveret.spark.options import URL_DEFAULT

TITLE_MAX: Final = 1000

_log = logging.getLogger("leveret.spark")


def report_queries(spark: SparkSession, url: str = URL_DEFAULT) -> StreamingQueryListener:
    """Report the progress of all streaming queries of a session to the broker: batch, rows, checkpoint, offsets.

    leveret shows them, with the messages that are not read yet, on its web page, by ``leveret ctl list_queries`` and in
    /metrics; other brokers drop the reports. A query never waits for them, and no error of them ends it.

    Args:
        spark: the session, also one of a Connect server; a Connect client does not know checkpoints.
        url: the broker; the user needs no permission beyond publishing to the default exchange.

    Returns:
        The listener, for ``spark.streams.removeListener``.

    Raises:
        ValueError: the URL is malformed.
    """
    parse_url(url)
    reporter = QueryReporter(spark, url)
    spark.streams.addListener(reporter)
    return reporter


class QueryReporter(StreamingQueryListener):
    """Publishes a report for each progress event."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._spark = spark
        self._url = url
        self._connection: BlockingConnection | None = None
        self._checkpoints: dict[str, str] = {}
        self._has_failed = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Look up the checkpoint: Spark waits for this call, and a short query has ended when its progress comes."""
        self._checkpoints[str(event.id)] = _checkpoint(self._spark, str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report the progress of a query."""
        progress = json.loads(event.progress.json)
        query = progress["id"]
        if query not in self._checkpoints:  # it was started before this listener
            self._checkpoints[query] = _checkpoint(self._spark, query)
        try:
            self._publish(report_body(progress, self._checkpoints[query]))
        except ClientError as error:
            self._close()
            if not self._has_failed:
                _log.warning("the progress of queries is not reported to the broker: %s", error)
            self._has_failed = True
        else:
            self._has_failed = False

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Close the connection, which the next report opens again; the broker keeps the last report."""
        self._close()

    def _publish(self, body: bytes) -> None:
        if self._connection is None or self._connection.is_closed:
            self._connection = BlockingConnection(self._url, name="progress of Spark queries", reconnect=False)
        with self._connection.channel() as channel:
            channel.publish(body, "", STAGE)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def report_body(progress: dict[str, Any], checkpoint: str) -> bytes:
    """Return the report of a query's progress, in the JSON form that Spark gives it.

    ``streams`` has the ends of the sources that are leveret's streams: their offsets name the next message.
    """
    streams: dict[str, int] = {}
    for source in progress["sources"]:
        end = source["endOffset"]
        if isinstance(end, str):  # as a Connect client gets it
            end = json.loads(end)
        for name, position in end.items() if isinstance(end, dict) else ():
            if isinstance(position, dict) and isinstance(position.get("next"), int):
                streams[name] = position["next"]
    return json.dumps(
        {
            "op": "report",
            "query": progress["id"],
            "title": (progress["name"] or "")[:TITLE_MAX],
            "checkpoint": checkpoint[:TITLE_MAX],
            "batch": progress["batchId"],
            "rows": sum(source["numInputRows"] for source in progress["sources"]),
            "streams": streams,
        }
    ).encode()


def _checkpoint(spark: SparkSession, query: str) -> str:
    """Return where a query keeps its offsets; "" if Spark does not tell, as through Connect."""
    found = spark.streams.get(query)
    java = getattr(found, "_jsq", None)
    return "" if java is None else str(java.streamingQuery().resolvedCheckpointRoot())
