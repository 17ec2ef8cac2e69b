"""Round trips with kombu, the client library of Celery."""

from __future__ import annotations

from collections.abc import Iterator

import kombu
import pytest
from kombu.pools import connections

from ..waiting import until


@pytest.fixture
def connection(url: str) -> Iterator[kombu.Connection]:
    # kombu uses the path after the slash unchanged as virtual host; py-amqp is the transport that Celery uses.
    with kombu.Connection(url, transport="pyamqp", connect_timeout=60) as connection:
        yield connection


def collect(connection: kombu.Connection, queue: kombu.Queue, count: int) -> list[object]:
    seen: list[object] = []

    def take(body: object, message: kombu.Message) -> None:
        seen.append(body)
        message.ack()

    with connection.Consumer(queue, callbacks=[take], accept=["json", "pickle"], prefetch_count=4):
        while len(seen) < count:
            connection.drain_events(timeout=60)
    return seen


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_publish_and_consume(connection: kombu.Connection, unique: str, compression: str | None) -> None:
    exchange = kombu.Exchange(unique, "topic", durable=False, auto_delete=True)
    queue = kombu.Queue(unique, exchange, routing_key="task.#", durable=False, auto_delete=True)
    with connection.Producer() as producer:
        for number in range(50):
            producer.publish({"number": number, "text": "ü"}, exchange=exchange, routing_key=f"task.{number}",
                             declare=[queue], compression=compression, retry=False)
    assert collect(connection, queue, 50) == [{"number": number, "text": "ü"} for number in range(50)]


def test_confirmed_publish(url: str, unique: str) -> None:
    with kombu.Connection(url, transport="pyamqp", transport_options={"confirm_publish": True}) as connection:
        queue = kombu.Queue(unique, durable=True)
        with connection.Producer() as producer:
            producer.publish({"kept": True}, routing_key=unique, declare=[queue], delivery_mode=2)
        bound = queue(connection.default_channel)
        assert bound.get(accept=["json"], no_ack=True).payload == {"kept": True}
        bound.delete()


def test_simple_queue(connection: kombu.Connection, unique: str) -> None:
    with connection.SimpleQueue(unique, queue_opts={"durable": False}) as queue:
        for number in range(3):
            queue.put({"number": number})
        until(lambda: queue.qsize() == 3)
        for number in range(3):
            message = queue.get(block=True, timeout=60)
            assert message.payload == {"number": number}
            message.ack()
    kombu.Queue(unique)(connection.default_channel).delete()
    kombu.Exchange(unique)(connection.default_channel).delete()


def test_reject_and_requeue(connection: kombu.Connection, unique: str) -> None:
    queue = kombu.Queue(unique, durable=False, auto_delete=False)(connection.default_channel)
    queue.declare()
    connection.Producer().publish({"word": "again"}, routing_key=unique)
    first = until(lambda: queue.get(accept=["json"]))
    first.requeue()
    second = until(lambda: queue.get(accept=["json"]))
    assert (second.payload, second.delivery_info["redelivered"]) == ({"word": "again"}, True)
    second.reject()
    assert queue.get() is None
    queue.delete()


def test_rpc_over_direct_reply_to(connection: kombu.Connection, unique: str) -> None:
    server, client = connection.channel(), connection.channel()
    queue = kombu.Queue(unique, durable=False, auto_delete=True)
    answers: list[object] = []

    def serve(body: dict[str, str], message: kombu.Message) -> None:
        kombu.Producer(server).publish({"word": body["word"].upper()}, routing_key=message.properties["reply_to"],
                                       correlation_id=message.properties["correlation_id"])

    def answered(body: object, _: kombu.Message) -> None:
        answers.append(body)

    replies = kombu.Queue("amq.rabbitmq.reply-to", no_ack=True)
    responder = kombu.Consumer(server, [queue], callbacks=[serve], no_ack=True, accept=["json"])
    requester = kombu.Consumer(client, [replies], callbacks=[answered], no_ack=True, accept=["json"],
                               auto_declare=False)
    with responder, requester:
        kombu.Producer(client).publish(
            {"word": "hello"}, routing_key=unique, reply_to="amq.rabbitmq.reply-to", correlation_id="1")
        while not answers:
            connection.drain_events(timeout=60)
    assert answers == [{"word": "HELLO"}]


def test_pools(url: str) -> None:
    """The pool hands out a live connection again."""
    pool = connections[kombu.Connection(url, transport="pyamqp")]
    for _ in range(2):
        with pool.acquire(block=True) as pooled:
            assert pooled.ensure_connection(max_retries=1).connected
