"""Round trips with pika's blocking and asynchronous interfaces, as an application would write them."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, UnroutableError

from ..waiting import until
from .support import declare, drain, empty, ready

REPLY = "amq.rabbitmq.reply-to"


def test_publish_and_consume(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "topic", auto_delete=True)
    queue = declare(channel)
    channel.queue_bind(queue, unique, "order.#")
    channel.confirm_delivery()
    for number in range(200):
        channel.basic_publish(unique, f"order.{number}", b"%d" % number, BasicProperties(
            delivery_mode=2, message_id=f"m-{number}", headers={"number": number}), mandatory=True)
    channel.basic_qos(prefetch_count=20)
    seen = []
    for method, properties, body in channel.consume(queue):
        assert (properties.message_id, properties.headers) == (f"m-{int(body)}", {"number": int(body)})
        seen.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(seen) == 200:
            break
    assert channel.cancel() == 0
    assert seen == list(range(200))


def test_rpc_over_direct_reply_to(url: str, channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique, auto_delete=True)

    def serve(server: BlockingChannel, _: object, properties: BasicProperties, body: bytes) -> None:
        server.basic_publish("", properties.reply_to, body.upper(),
                             BasicProperties(correlation_id=properties.correlation_id))

    channel.basic_consume(unique, serve, auto_ack=True)
    answers: dict[str, bytes] = {}
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        client = connection.channel()
        client.basic_consume(
            REPLY, lambda _, __, properties, body: answers.update({properties.correlation_id: body}), auto_ack=True)
        for word in ("one", "two", "three"):
            client.basic_publish("", unique, word.encode(), BasicProperties(reply_to=REPLY, correlation_id=word))

        def answered() -> bool:
            channel.connection.process_data_events(0.01)
            connection.process_data_events(0.01)
            return len(answers) == 3

        until(answered)
    assert answers == {"one": b"ONE", "two": b"TWO", "three": b"THREE"}


def test_unroutable(channel: BlockingChannel, unique: str) -> None:
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as caught:
        channel.basic_publish("", unique, b"back", mandatory=True)
    [message] = caught.value.messages
    assert (message.method.reply_code, message.method.reply_text, message.body) == (312, "NO_ROUTE", b"back")


def test_errors_as_pika_reports_them(channel: BlockingChannel, unique: str) -> None:
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.queue_declare(unique, passive=True)
    assert (caught.value.reply_code, caught.value.reply_text) == (404, f"NOT_FOUND - no queue '{unique}' in vhost '/'")
    assert channel.connection.channel().is_open
    with pytest.raises(ConnectionClosedByBroker) as ended:
        channel.connection.channel().exchange_declare(unique, "nope")
    assert ended.value.reply_code == 503


def test_wrong_password(url: str) -> None:
    parameters = pika.URLParameters(url)
    parameters.credentials = pika.PlainCredentials("guest", "wrong")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(parameters)


def test_select_connection(url: str, unique: str) -> None:
    got: list[bytes] = []

    def opened(connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=declare_queue)

    def declare_queue(channel: Any) -> None:
        channel.queue_declare(unique, exclusive=True, callback=lambda _: consume(channel))

    def consume(channel: Any) -> None:
        channel.basic_consume(unique, deliver, auto_ack=True)
        channel.basic_publish("", unique, b"around")

    def deliver(channel: Any, _: object, __: object, body: bytes) -> None:
        got.append(body)
        channel.connection.close()

    connection = pika.SelectConnection(
        pika.URLParameters(url), on_open_callback=opened,
        on_close_callback=lambda closed, _: closed.ioloop.stop(),
        on_open_error_callback=lambda failed, error: failed.ioloop.stop())
    connection.ioloop.start()
    assert got == [b"around"]


def test_transactions(channel: BlockingChannel) -> None:
    """Moving a message from one queue to the next: both its ack and its publish take effect, or neither does."""
    source, sink = declare(channel), declare(channel)
    channel.basic_publish("", source, b"order")
    until(lambda: ready(channel, source))
    channel.tx_select()
    tag = channel.basic_get(source)[0].delivery_tag
    for end in (channel.tx_rollback, channel.tx_commit):
        channel.basic_publish("", sink, b"invoice", BasicProperties(delivery_mode=2), mandatory=True)
        channel.basic_ack(tag)
        assert ready(channel, sink) == 0
        end()
    assert drain(channel, sink) == [b"invoice"]
    assert empty(channel, source)
