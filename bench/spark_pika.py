"""The jobs of spark_bench.py as one would write them with pika: two readers, and foreachPartition for writing."""

from collections import deque
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import suppress
from typing import Any

import pika
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

SCHEMA = "body binary, exchange string, routing_key string, headers map<string,string>, message_id string"
ACK_EVERY = 500

Tuple = tuple[Any, ...]


def row_of(method: Any, properties: Any, body: bytes) -> Tuple:
    headers = {name: str(value) for name, value in (properties.headers or {}).items()}
    return body, method.exchange, method.routing_key, headers, properties.message_id


class PikaQueueReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """A consumer in the driver that acknowledges at the next read: the semantics of leveret's source, with tuples."""

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

    def read(self, start: dict[str, int]) -> tuple[Iterator[Tuple], dict[str, int]]:
        if self.last_tag:
            self.channel.basic_ack(self.last_tag, multiple=True)
            self.last_tag = 0
        rows: list[Tuple] = []
        limit = min(self.rows_max, self.remaining)
        if limit:
            for method, properties, body in self.channel.consume(self.queue):
                rows.append(row_of(method, properties, body))
                if len(rows) == limit:
                    self.last_tag = method.delivery_tag
                    break
        self.remaining -= len(rows)
        return iter(rows), {"messages": start["messages"] + len(rows)}


class PikaStreamReader(DataSourceReader):
    """Reads `count` messages of a stream, from its first one, in one task."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.url = options["url"]
        self.stream = options["stream"]
        self.count = int(options["count"])

    def read(self, partition: InputPartition) -> Iterator[Tuple]:
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        channel = connection.channel()
        channel.basic_qos(prefetch_count=4 * ACK_EVERY)
        rows: deque[Tuple] = deque()

        def take(_: Any, method: Any, properties: Any, body: bytes) -> None:
            rows.append(row_of(method, properties, body))
            if method.delivery_tag % ACK_EVERY == 0:
                channel.basic_ack(method.delivery_tag, multiple=True)

        channel.basic_consume(self.stream, take, arguments={"x-stream-offset": "first"})
        left = self.count
        while left:
            connection.process_data_events(time_limit=None)
            while rows and left:
                yield rows.popleft()
                left -= 1
        # pika returns prefetched messages with basic.nack, which streams do not implement (540)
        with suppress(pika.exceptions.ConnectionClosedByBroker):
            connection.close()


class PikaDataSource(DataSource):
    """``format("pika")``, with option ``queue`` or ``stream``."""

    @classmethod
    def name(cls) -> str:
        return "pika"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> PikaStreamReader:
        return PikaStreamReader(self.options)

    def simpleStreamReader(self, schema: StructType) -> PikaQueueReader:
        return PikaQueueReader(self.options)


class Publisher:
    """The function of ``foreachPartition``. pika's blocking channel awaits each confirm before the next publish."""

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
