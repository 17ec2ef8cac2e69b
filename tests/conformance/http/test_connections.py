"""Connections, channels and consumers as the API shows them, and closing them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from ...waiting import until
from .api import segment
from .conftest import serve, within
from .pair import Broker, Pair


@pytest.fixture
def clients(both: Pair, brokers: list[Broker], vhost: str) -> Iterator[list[BlockingChannel]]:
    """A consuming client of each broker, with the same name."""
    found = []
    for broker in brokers:
        parameters = pika.URLParameters(within(broker, vhost))
        parameters.client_properties = {"connection_name": vhost, "purpose": "test", "platform": "Python"}
        channel = pika.BlockingConnection(parameters).channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=7)
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"hello")
        channel.basic_publish("", "q", b"hello", pika.BasicProperties(delivery_mode=2))
        channel.basic_consume("q", lambda *_: None, consumer_tag="mine", arguments={"x-priority": 3})
        channel.connection.process_data_events(0)
        found.append(channel)
    yield found
    for channel in found:
        if channel.connection.is_open:
            channel.connection.close()


def complete(connection: Any) -> bool:
    """Return whether RabbitMQ's statistics of a connection have arrived."""
    return connection["state"] == "running" and "recv_oct" in connection and connection["channels"] == 1


def names(both: Pair, vhost: str) -> list[str]:
    """Return each broker's name of the only connection to a virtual host, escaped."""
    answers = both.get(f"/api/vhosts/{vhost}/connections", until=lambda items: complete(items[0]))
    return [segment(answer.json[0]["name"]) for answer in (answers.rabbitmq, answers.subject)]


def test_a_connection(both: Pair, vhost: str, clients: list[BlockingChannel]) -> None:
    def mine(items: list[Any]) -> list[Any]:
        return [each for each in items if each.get("vhost") == vhost]

    both.get("/api/connections", until=lambda items: complete(mine(items)[0]), select=mine)
    both.get("/api/connections/username/guest", until=mine, select=mine)
    one, other = names(both, vhost)
    both.get_each(f"/api/connections/{one}", f"/api/connections/{other}", until=complete)
    both.get_each(f"/api/connections/{one}/channels", f"/api/connections/{other}/channels", until=lambda items: items)
    both.get("/api/connections/no-such-connection", 404)
    both.get("/api/connections/no-such-connection/channels", None)
    both.get("/api/connections/username/nobody")


def test_a_channel(both: Pair, vhost: str, clients: list[BlockingChannel]) -> None:
    def settled(channel: Any) -> bool:
        delivered = channel["messages_unacknowledged"] == 2 and channel["message_stats"]["deliver"] == 2
        return delivered and bool(channel["connection_details"])

    def mine(items: list[Any]) -> list[Any]:
        return [each for each in items if each.get("vhost") == vhost]

    both.get("/api/channels", until=lambda items: settled(mine(items)[0]), select=mine)
    answers = both.get(f"/api/vhosts/{vhost}/channels", until=lambda items: settled(items[0]))
    one, other = (segment(answer.json[0]["name"]) for answer in (answers.rabbitmq, answers.subject))
    both.get_each(f"/api/channels/{one}", f"/api/channels/{other}", until=settled)
    both.get("/api/channels/no-such-channel", 404)


def test_a_consumer(both: Pair, vhost: str, clients: list[BlockingChannel]) -> None:
    def mine(items: list[Any]) -> list[Any]:
        return [each for each in items if each["queue"]["vhost"] == vhost]

    both.get("/api/consumers", until=lambda items: mine(items)[0]["channel_details"], select=mine)
    both.get(f"/api/consumers/{vhost}", until=lambda items: items[0]["channel_details"])
    both.get("/api/consumers/nowhere", 404)
    both.get(
        f"/api/queues/{vhost}/q",
        until=lambda item: item["message_stats"]["deliver"] == 2
        and item["consumer_details"][0]["channel_details"]
        and item["message_bytes_unacknowledged"] == 10,
    )
    both.get(f"/api/exchanges/{vhost}/amq.default", until=lambda item: item["message_stats"])


def test_closing_a_connection(both: Pair, vhost: str, clients: list[BlockingChannel]) -> None:
    both.get("/api/connections/x", 404)
    paths = [f"/api/connections/{name}" for name in names(both, vhost)]
    for api, path, channel in zip(both.apis, paths[-len(clients):], clients, strict=True):
        assert api.call("DELETE", path, headers={"x-reason": "of a test"}).status == 204
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            serve(channel.connection)
        assert caught.value.reply_code == 320
        assert caught.value.reply_text == "CONNECTION_FORCED - of a test"
        until(lambda api=api, path=path: api.call("DELETE", path).status == 404)  # RabbitMQ's lists are a little behind
    both.get(f"/api/vhosts/{vhost}/connections", until=lambda items: not items)


def test_closing_all_of_a_user(both: Pair, brokers: list[Broker], vhost: str) -> None:
    user = f"{vhost}-user"
    both.put(f"/api/users/{user}", {"password": "secret", "tags": ""})
    both.put(f"/api/permissions/{vhost}/{user}", {"configure": "", "write": "", "read": ""})
    connections = []
    for broker in brokers:
        url = within(broker, vhost).replace("guest:guest", f"{user}:secret")
        connections.append(pika.BlockingConnection(pika.URLParameters(url)))
    both.get(f"/api/connections/username/{user}", until=lambda items: items)
    both.delete(f"/api/connections/username/{user}")
    for connection in connections:
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            serve(connection)
    both.delete(f"/api/connections/username/{user}")
    both.delete("/api/connections/username/nobody", None)
    both.delete(f"/api/users/{user}")


def test_counters(both: Pair, vhost: str, clients: list[BlockingChannel]) -> None:
    for channel in clients:
        channel.exchange_declare("e", "fanout")
        channel.queue_bind("q", "e")
        for _ in range(5):
            channel.basic_publish("e", "k", b"x")
        channel.basic_ack(2, multiple=True)
        channel.queue_declare("other")
        channel.basic_publish("", "other", b"12345")
        method, _, body = channel.basic_get("other")
        assert body == b"12345"
        channel.basic_nack(method.delivery_tag)
        assert channel.basic_get("other", auto_ack=True)[0].redelivered
        assert channel.basic_get("other")[0] is None
    # RabbitMQ learns of consumers and of messages at different times
    both.get(f"/api/queues/{vhost}/q", until=lambda q: q["message_stats"]["ack"] == 2 and q["consumer_details"])
    for path, key, count in (
        (f"/api/queues/{vhost}/other", "get_empty", 1),
        (f"/api/exchanges/{vhost}/e", "publish_in", 5),
        (f"/api/vhosts/{vhost}", "ack", 2),
    ):
        both.get(path, until=lambda item, key=key, count=count: item["message_stats"][key] == count)
