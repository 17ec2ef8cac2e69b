"""The jobs of spark_bench.py as one would write them with pika: a stream reader, and foreachPartition for writing."""

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

import pika
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

SCHEMA = "body binary, exchange string, routing_key string, headers map<string,string>, message_id string"


class PikaReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """A consumer in the driver, acknowledged at the next read: the same semantics as ours, with pika and tuples."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.url = options["url"]
        self.queue = options["queue"]
        self.rows_max = int(options["maxRowsPerTrigger"])
        self.remaining = 0
        self.channel: Any = None
        self.last_tag = 0

    def initialOffset(self) -> dict[str, int]:
        return {"messages": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        self.channel = pika.BlockingConnection(pika.URLParameters(self.url)).channel()
        self.remaining = self.channel.queue_declare(self.queue, passive=True).method.message_count
        self.channel.basic_qos(prefetch_count=min(65_535, 2 * self.rows_max))

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        if self.last_tag:
            self.channel.basic_ack(self.last_tag, multiple=True)
            self.last_tag = 0
        rows: list[tuple[Any, ...]] = []
        limit = min(self.rows_max, self.remaining)
        if limit:
            for method, properties, body in self.channel.consume(self.queue):
                headers = {name: str(value) for name, value in (properties.headers or {}).items()}
                rows.append((body, method.exchange, method.routing_key, headers, properties.message_id))
                if len(rows) == limit:
                    self.last_tag = method.delivery_tag
                    break
        self.remaining -= len(rows)
        return iter(rows), {"messages": start["messages"] + len(rows)}


class PikaDataSource(DataSource):
    """``format("pika_queue")``."""

    @classmethod
    def name(cls) -> str:
        return "pika_queue"

    def schema(self) -> str:
        return SCHEMA

    def simpleStreamReader(self, schema: StructType) -> PikaReader:
        return PikaReader(self.options)


class Publisher:
    """The function of ``foreachPartition``. pika's blocking channel waits for each confirm before the next publish."""

    def __init__(self, url: str, queue: str, confirms: bool) -> None:
        self.url = url
        self.queue = queue
        self.confirms = confirms

    def __call__(self, rows: Iterable[Row]) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        channel = connection.channel()
        if self.confirms:
            channel.confirm_delivery()
        for row in rows:
            properties = pika.BasicProperties(message_id=row.message_id, headers=row.headers, delivery_mode=2)
            channel.basic_publish("", self.queue, bytes(row.body), properties, mandatory=True)
        connection.close()
