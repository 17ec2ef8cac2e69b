"""Firehose events made by hand: rows as in a recorded stream, with one call for each event."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

BEGAN = datetime(2013, 1, 1, 6, tzinfo=UTC)
SCHEMA = (
    "exchange STRING, routing_key STRING, headers MAP<STRING, STRING>, message_id STRING, source STRING, "
    "offset BIGINT, arrived TIMESTAMP, body BINARY"
)


class Firehose:
    """The events of one broker. `is_plain`: like RabbitMQ's, without numbers, confirms and times."""

    def __init__(self, broker: str, is_plain: bool = False) -> None:
        self.broker = broker
        self.is_plain = is_plain
        self.rows: list[tuple[Any, ...]] = []
        self._tags: dict[str, int] = {}

    def publish(
        self, message_id: str | None, exchange: str = "", key: str = "q", queues: tuple[str, ...] = ("q",),
        ms: float = 0, connection: str = "c1", confirmed: bool | None = True, properties: dict[str, Any] | None = None,
        hops: tuple[tuple[str, str], ...] = (), headers: dict[str, Any] | None = None, body: bytes = b"",
        **more: str,
    ) -> None:  # fmt: skip
        """`hops` has pairs of cluster and exchange, the newest first."""
        event = self._event(message_id, exchange, key, connection, properties, hops, headers)
        event["routed_queues"] = json.dumps(list(queues))
        event |= more
        if self.is_plain or confirmed is None:
            self._tell(f"publish.{exchange}", event, ms, body)
        else:
            tag = self._tags[connection] = self._tags.get(connection, 0) + 1
            self._tell(f"publish.{exchange}", {**event, "publish_seq_no": str(tag)}, ms, body)
            answer = {"node": f"node-{self.broker}", "connection": connection, "channel": "1"}
            answer |= {"first_seq_no": str(tag), "last_seq_no": str(tag)}
            self._tell(f"confirm.{'ack' if confirmed else 'nack'}", answer, ms, b"")

    def deliver(
        self, message_id: str | None, queue: str = "q", exchange: str = "", key: str = "q", ms: float = 1,
        redelivered: bool = False, properties: dict[str, Any] | None = None, hops: tuple[tuple[str, str], ...] = (),
        headers: dict[str, Any] | None = None, body: bytes = b"",
    ) -> None:  # fmt: skip
        event = self._event(message_id, exchange, key, "consumer", properties, hops, headers)
        event["redelivered"] = "1" if redelivered else "0"
        self._tell(f"deliver.{queue}", event, ms, body)

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame(self.rows, SCHEMA)

    def _event(
        self, message_id: str | None, exchange: str, key: str, connection: str, properties: dict[str, Any] | None,
        hops: tuple[tuple[str, str], ...], headers: dict[str, Any] | None,
    ) -> dict[str, str]:  # fmt: skip
        told: dict[str, Any] = {"message_id": message_id} if message_id is not None else {}
        told |= properties or {}
        more = dict(headers or {})
        if hops:
            more["x-received-from"] = [
                {"uri": "amqp://x", "exchange": name, "redelivered": False, "cluster-name": cluster}
                for cluster, name in hops
            ]
        if more:
            told["headers"] = more
        return {
            "exchange_name": exchange, "routing_keys": json.dumps([key]), "properties": json.dumps(told),
            "node": f"node-{self.broker}", "vhost": "/", "connection": connection, "channel": "1", "user": "guest",
        }  # fmt: skip

    def _tell(self, key: str, event: dict[str, str], ms: float, body: bytes) -> None:
        if not self.is_plain:
            time = BEGAN + timedelta(milliseconds=ms)
            event["timestamp_in_us"] = str(round(time.timestamp() * 1e6))
        self.rows.append(("amq.rabbitmq.trace", key, event, None, "audit", len(self.rows), None, body))
