"""One stream client, written with pika as applications write it, on RabbitMQ and on leveret: the same offset arguments
give the same messages with the same properties, and it may acknowledge, stop and resume in the same way."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pika
import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel

from ..waiting import until

pytestmark = pytest.mark.needs("rabbitmq")
COUNT = 40


@dataclass(frozen=True)
class Read:
    """A delivery, as an application sees it."""

    offset: int
    body: bytes
    key: str
    redelivered: bool
    properties: dict[str, Any]


class StreamClient:
    """Publishes to one stream with confirms, and reads it with a prefetch, acknowledging now and then."""

    def __init__(self, url: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._publisher = self._connection.channel()
        self._publisher.confirm_delivery()
        self.stream = f"t-{uuid.uuid4().hex[:12]}"
        arguments = {"x-queue-type": "stream", "x-max-length-bytes": 20_000_000_000, "x-max-age": "7D"}
        self._publisher.queue_declare(self.stream, durable=True, arguments=arguments)
        self._publisher.queue_bind(self.stream, "amq.topic", f"{self.stream}.#")
        self.before_s: list[float] = []  # wall clock before the publish, by offset
        self.after_s: list[float] = []  # wall clock after the confirm, by offset

    def publish(self, body: bytes, properties: BasicProperties | None = None) -> None:
        self.before_s.append(time.time())
        key = f"{self.stream}.{len(self.before_s) % 3}"
        self._publisher.basic_publish("amq.topic", key, body, properties, mandatory=True)
        self.after_s.append(time.time())

    def fill(self) -> None:
        """Publish COUNT messages at once, and a few for more than a second, so that timestamps differ."""
        began_s = time.time()
        while len(self.before_s) < COUNT or time.time() < began_s + 1.5:
            number = len(self.before_s)
            properties = BasicProperties(
                content_type="application/json", message_id=str(number), delivery_mode=1 + number % 2, type="row",
                timestamp=1_700_000_000 + number, headers={"number": number, "name": f"row {number}", "even": True},
            ) if number % 4 else None  # fmt: skip
            self.publish(b"%d" % number, properties)
            if number >= COUNT:
                time.sleep(0.05)  # each message more is read by each test

    def consume(self, *offset: Any, prefetch: int = 10, stop_at: int = 0) -> list[Read]:
        """Return what a consumer reads from an offset up to a message that is published once it consumes, or `stop_at`
        messages. It acknowledges each fifth, with multiple."""
        channel = self._connection.channel()
        found: list[Read] = []
        acked, end = 0, b"" if stop_at else b"the end of %d" % len(self.before_s)

        def take(_: BlockingChannel, method: Any, properties: BasicProperties, body: bytes) -> None:
            nonlocal acked
            said = {name: item for name, item in vars(properties).items() if name != "headers"}
            headers = dict(properties.headers or {})
            place = headers.pop("x-stream-offset")
            key = method.routing_key.removeprefix(self.stream)
            found.append(Read(place, body, key, method.redelivered, {**said, "headers": headers}))
            if len(found) % 5 == 0 and (len(found) < stop_at or not stop_at):
                channel.basic_ack(method.delivery_tag, multiple=True)
                acked = len(found)

        channel.basic_qos(prefetch_count=prefetch)
        arguments = {"x-stream-offset": offset[0]} if offset else {}
        channel.basic_consume(self.stream, take, arguments=arguments)
        if not stop_at:
            channel.basic_qos(prefetch_count=prefetch)  # the answer shows that the consumer exists
            self.publish(end)

        def is_all_there() -> bool:
            self._connection.process_data_events(0.05)
            return bool(found) and (found[-1].body == end if end else len(found) >= acked + prefetch)

        # on cancel, pika rejects messages that it has not handed on, which is an error on a stream: so wait for all
        # that the broker may send
        until(is_all_there, lambda: f"{found}")
        channel.close()
        return found[:stop_at] if stop_at else found

    def close(self) -> None:
        self._publisher.queue_delete(self.stream)
        self._connection.close()


@pytest.fixture(scope="module")
def clients(broker: str, rabbitmq: str) -> Iterator[tuple[StreamClient, StreamClient]]:
    """A client on leveret and one on RabbitMQ; both have published the same messages."""
    pair = StreamClient(broker), StreamClient(rabbitmq)
    for client in pair:
        client.fill()
    yield pair
    for client in pair:
        client.close()



@pytest.mark.parametrize("offset", [
    ("first",), (0,), (7,), (COUNT - 1,), (-3,), ("1h",), ("3D",), (datetime(2020, 1, 1, tzinfo=UTC),),
])
def test_from_the_beginning_on(clients: tuple[StreamClient, StreamClient], offset: tuple[object]) -> None:
    """RabbitMQ had time for more or fewer messages, so the first COUNT are compared."""
    ours, theirs = (client.consume(*offset, prefetch=8) for client in clients)
    first = max(offset[0], 0) if isinstance(offset[0], int) else 0
    assert ours[: COUNT - first] == theirs[: COUNT - first]
    for client, reads in zip(clients, (ours, theirs), strict=True):
        assert [each.offset for each in reads] == list(range(first, len(client.before_s)))
        assert not any(each.redelivered for each in reads)


@pytest.mark.parametrize("offset", [(), ("next",), (datetime(2100, 1, 1, tzinfo=UTC),)])
def test_from_now_on(clients: tuple[StreamClient, StreamClient], offset: tuple[object, ...]) -> None:
    for client in clients:
        reads = client.consume(*offset)
        assert [each.offset for each in reads] == [len(client.before_s) - 1]
        assert reads[0].body.startswith(b"the end")


def test_from_the_last_one_on(clients: tuple[StreamClient, StreamClient]) -> None:
    for client in clients:
        reads = client.consume("last")
        assert [each.offset for each in reads] == [len(client.before_s) - 2, len(client.before_s) - 1]


def test_from_a_time_on(clients: tuple[StreamClient, StreamClient]) -> None:
    """No message published before that time, and all published later."""
    for client in clients:
        boundary_s = int(client.before_s[0]) + 1
        first = client.consume(datetime.fromtimestamp(boundary_s, UTC))[0].offset
        assert client.after_s[first] >= boundary_s - 0.001  # RabbitMQ stores milliseconds
        assert client.before_s[first - 1] <= boundary_s + 0.001
        assert first > 0


def test_stopping_and_going_on(clients: tuple[StreamClient, StreamClient]) -> None:
    """An application that stores its own offset reads each message once."""
    found = []
    for client in clients:
        reads = client.consume("first", stop_at=12)
        reads += client.consume(reads[-1].offset + 1, stop_at=11, prefetch=7)
        found.append(reads)
    assert found[0] == found[1]
    assert [each.offset for each in found[0]] == list(range(23))
