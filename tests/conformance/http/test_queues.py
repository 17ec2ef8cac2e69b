"""Queues: declaring, inspecting, deleting, purging; and that AMQP shows the same."""

from __future__ import annotations

from typing import Any

import pika
import pytest

from .api import segment
from .conftest import within
from .pair import Broker, Pair


def complete(queue: Any) -> bool:
    """Return whether RabbitMQ's statistics of a queue have arrived."""
    early = queue.get("garbage_collection", {}).get("minor_gcs") == -1  # RabbitMQ's value before it has statistics
    return queue.get("state") == "running" and "memory" in queue and "messages" in queue and not early


def test_life_of_a_queue(both: Pair, brokers: list[Broker], vhost: str) -> None:
    path = f"/api/queues/{vhost}/q"
    both.get(path, 404)
    both.put(path, {"durable": True, "arguments": {"x-max-length": 10}})
    both.get(path, until=complete)
    both.get(f"/api/queues/{vhost}", until=lambda items: complete(items[0]))
    both.get(f"{path}/bindings", exact=True)
    for broker in brokers:
        with pika.BlockingConnection(pika.URLParameters(within(broker, vhost))) as connection:
            assert connection.channel().queue_declare("q", passive=True).method.message_count == 0
    both.put(path, {"durable": True, "arguments": {"x-max-length": 10}}, 204)
    both.put(path, {"durable": True, "arguments": {"x-max-length": 11}}, 400)
    both.put(path, {"durable": True}, 400)
    both.delete(path)
    both.get(path, 404)
    both.delete(path, 404)


ARGUMENTS = [
    {"x-message-ttl": 60000, "x-expires": 120000, "x-max-priority": 5},
    {"x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "key"},
    {"x-max-length": 5, "x-overflow": "reject-publish"},
    {"x-max-length-bytes": 5000, "x-queue-mode": "lazy"},
    {"x-single-active-consumer": True},
    {"x-queue-type": "quorum", "x-delivery-limit": 3},
    {"x-queue-type": "classic"},
    {"x-queue-type": "stream", "x-max-age": "7D"},
    {"x-queue-master-locator": "client-local"},
    {"any": "thing", "n": 1.5, "list": [1, "two", {"three": 3}], "table": {"a": "b", "b": False}},
]


def test_arguments(both: Pair, vhost: str) -> None:
    for number, arguments in enumerate(ARGUMENTS):
        both.put(f"/api/queues/{vhost}/q{number}", {"durable": True, "arguments": arguments})
        both.put(f"/api/queues/{vhost}/q{number}", {"durable": True, "arguments": arguments}, 204)
    both.get(f"/api/queues/{vhost}", until=lambda items: all(complete(each) for each in items))


@pytest.mark.parametrize(
    "body",
    [
        {"durable": False},
        {"durable": "false"},
        {"durable": "x"},
        {"durable": 1},
        {"auto_delete": True},
        {"auto_delete": "true"},
        {"exclusive": True},
        {"arguments": {"deep": {"nothing": None}}},
        {"arguments": []},
        {"arguments": 7},
        {"arguments": "text"},
        {"arguments": {"x-message-ttl": -1}},
        {"arguments": {"x-message-ttl": "60"}},
        {"arguments": {"x-max-priority": 500}},
        {"arguments": {"x-overflow": "nonsense"}},
        {"arguments": {"x-queue-type": "nonsense"}},
        {"arguments": {"x-queue-type": "quorum"}, "durable": False},
        {"arguments": {"x-dead-letter-exchange": 5}},
        {"vhost": "elsewhere", "name": "other"},
        {"queue_type": "x"},
        [],
        "text",
        5,
        None,
        b"",
        b"{",
        b"null",
        b"\xff",
        b'{"durable": true',
        b'{"durable": true} more',
        b'{"a": 1, "a": 2}',
    ],
    ids=repr,
)
def test_what_a_queue_may_be_made_of(both: Pair, vhost: str, body: object) -> None:
    path = f"/api/queues/{vhost}/q"
    answers = both.call("PUT", path, body)
    if answers.rabbitmq.status < 300:
        both.get(path)
    else:
        both.get(path, 404)


@pytest.mark.parametrize(
    "name", ["ä ö", "a/b", "/", "a%b", "%2F", "日本", "x" * 255, "amq.mine", "?", "#", "+", "'\"\\"]
)
def test_any_name_will_do(both: Pair, vhost: str, name: str) -> None:
    path = f"/api/queues/{vhost}/{segment(name)}"
    made = both.call("PUT", path, {}).rabbitmq.status == 201
    both.call("GET", path)
    if made:
        both.get(f"{path}/bindings")
    both.call("DELETE", path)
    both.call("GET", path)


def test_a_server_named_queue_cannot_be_asked_for(both: Pair, vhost: str) -> None:
    both.call("PUT", f"/api/queues/{vhost}/", {})
    both.call("POST", f"/api/queues/{vhost}/", {})
    both.call("POST", f"/api/queues/{vhost}", {})


def test_unknown_virtual_hosts(both: Pair) -> None:
    for verb in ("GET", "PUT", "DELETE"):
        both.call(verb, "/api/queues/nowhere/q", {} if verb == "PUT" else None)
    both.call("GET", "/api/queues/nowhere")
    both.call("DELETE", "/api/queues/nowhere/q/contents")
    both.call("GET", "/api/queues/nowhere/q/bindings")


def test_conditional_deletion(both: Pair, brokers: list[Broker], vhost: str) -> None:
    path = f"/api/queues/{vhost}/q"
    both.put(path, {})
    message = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
    both.post(f"/api/exchanges/{vhost}/amq.default/publish", message)
    both.delete(f"{path}?if-empty=true", 400)
    both.get(path)
    both.delete(f"{path}/contents")
    both.delete(f"{path}?if-empty=true&if-unused=true")
    both.get(path, 404)
    both.put(path, {})
    connections = []
    for broker in brokers:
        connection = pika.BlockingConnection(pika.URLParameters(within(broker, vhost)))
        connection.channel().basic_consume("q", lambda *_: None)
        connections.append(connection)
    both.delete(f"{path}?if-unused=true", 400)
    both.delete(f"{path}?if-unused=nonsense", None)
    both.call("GET", path)
    both.call("DELETE", path)
    for connection in connections:
        connection.close()


def test_exclusive_queues_are_seen_and_not_deleted(both: Pair, brokers: list[Broker], vhost: str) -> None:
    path = f"/api/queues/{vhost}/q"
    connections = []
    for broker in brokers:
        connection = pika.BlockingConnection(pika.URLParameters(within(broker, vhost)))
        connection.channel().queue_declare("q", exclusive=True)
        connections.append(connection)
    both.get(path, until=complete)
    both.call("PUT", path, {})
    both.call("DELETE", path)
    both.call("DELETE", f"{path}/contents")
    both.call("POST", f"{path}/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"})
    for connection in connections:
        connection.close()
    both.call("GET", path, until_status=404)


def test_contents_and_actions(both: Pair, vhost: str) -> None:
    path = f"/api/queues/{vhost}/q"
    both.delete(f"{path}/contents", 404)
    both.put(path, {})
    both.delete(f"{path}/contents")
    both.get(f"{path}/contents", None)
    for body in ({"action": "sync"}, {"action": "cancel_sync"}, {"action": "nonsense"}, {}, [], b"{"):
        both.call("POST", f"{path}/actions", body)
    both.call("POST", f"/api/queues/{vhost}/none/actions", {"action": "sync"})
