"""Publishing and getting messages by HTTP, compared with AMQP."""

from __future__ import annotations

import base64
from typing import Any

import pika
import pytest

from .conftest import within
from .pair import Broker, Pair

GET = {"count": 10, "ackmode": "ack_requeue_true", "encoding": "auto"}


def message(payload: str = "text", **more: object) -> dict[str, object]:
    return {"properties": {}, "routing_key": "q", "payload": payload, "payload_encoding": "string", **more}


def test_a_message_comes_back(both: Pair, vhost: str) -> None:
    publish, get = f"/api/exchanges/{vhost}/amq.default/publish", f"/api/queues/{vhost}/q/get"
    both.post(publish, message(), exact=True)  # not routed
    both.put(f"/api/queues/{vhost}/q", {})
    both.post(get, GET, exact=True)
    both.post(publish, message("one"), exact=True)
    both.post(publish, message("ä 日本 \n\0", properties={"delivery_mode": 2, "headers": {"a": 1}}), exact=True)
    both.post(publish, message(base64.b64encode(b"\xff\xfe\0").decode(), payload_encoding="base64"), exact=True)
    both.post(publish, message(""), exact=True)
    both.post(get, GET, exact=True)
    both.post(get, {**GET, "encoding": "base64"}, exact=True)
    both.post(get, {**GET, "truncate": 2}, exact=True)
    both.post(get, {**GET, "ackmode": "reject_requeue_true", "count": 1}, exact=True)
    both.post(get, {**GET, "ackmode": "ack_requeue_false", "count": 1}, exact=True)
    both.post(get, {**GET, "ackmode": "reject_requeue_false", "count": "1"}, None, exact=True)
    both.post(get, {**GET, "ackmode": "ack_requeue_false"}, exact=True)
    both.post(get, GET, exact=True)


PROPERTIES: list[Any] = [
    {
        "content_type": "text/plain", "content_encoding": "gzip", "delivery_mode": 2, "priority": 3,
        "correlation_id": "c", "reply_to": "r", "expiration": "60000", "message_id": "m", "timestamp": 1700000000,
        "type": "t", "user_id": "guest", "app_id": "a", "cluster_id": "x",
        "headers": {"s": "ä", "i": 5, "big": 2**40, "f": 1.5, "b": True, "l": [1, "x", {"y": False}], "t": {"u": "v"}},
    },
    {"user_id": "somebody-else"},
    {"delivery_mode": "2"},
    {"delivery_mode": 300},
    {"priority": "high"},
    {"timestamp": "now"},
    {"expiration": 60000},
    {"expiration": "never"},
    {"headers": []},
    {"headers": "x"},
    {"headers": {"a": None}},
    {"unknown": 1},
    {"content_type": 5},
    "x",
    None,
]  # fmt: skip


@pytest.mark.parametrize("properties", PROPERTIES, ids=repr)
def test_properties(both: Pair, brokers: list[Broker], vhost: str, properties: object) -> None:
    both.put(f"/api/queues/{vhost}/q", {})
    sent = both.call("POST", f"/api/exchanges/{vhost}/amq.default/publish", message(properties=properties))
    both.post(f"/api/queues/{vhost}/q/get", GET, exact=True)
    if sent.rabbitmq.status != 200 or sent.subject.status != 200:
        return
    seen = []
    for broker in brokers:
        with pika.BlockingConnection(pika.URLParameters(within(broker, vhost))) as connection:
            _, found, body = connection.channel().basic_get("q", auto_ack=True)
            seen.append([repr(vars(found)), repr(body)])
    both.alike("by AMQP", seen)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"properties": {}, "routing_key": "q", "payload": "x"},
        {"routing_key": "q", "payload": "x", "payload_encoding": "string"},
        {"properties": {}, "payload": "x", "payload_encoding": "string"},
        message(payload_encoding="rot13"),
        message("not base64!", payload_encoding="base64"),
        {**message(), "payload": 5},
        {**message(), "payload": None},
        {**message(), "more": 1},
        [],
        b"",
        b"{",
    ],
    ids=lambda body: repr(body)[:60],
)
def test_what_may_be_published(both: Pair, vhost: str, body: object) -> None:
    both.put(f"/api/queues/{vhost}/q", {})
    both.call("POST", f"/api/exchanges/{vhost}/amq.default/publish", body)
    both.post(f"/api/queues/{vhost}/q/get", GET, exact=True)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"count": 1},
        {"count": 1, "ackmode": "ack_requeue_true"},
        {"count": 1, "encoding": "auto"},
        {**GET, "count": 0},
        {**GET, "count": -1},
        {**GET, "count": "x"},
        {**GET, "ackmode": "nonsense"},
        {**GET, "encoding": "nonsense"},
        {**GET, "truncate": "x"},
        {**GET, "truncate": 0},
        {"count": 1, "requeue": True, "encoding": "auto"},
        {"count": 1, "requeue": "false", "encoding": "auto"},
        [],
        b"",
    ],
    ids=repr,
)
def test_how_messages_may_be_asked_for(both: Pair, vhost: str, body: object) -> None:
    both.put(f"/api/queues/{vhost}/q", {})
    both.post(f"/api/exchanges/{vhost}/amq.default/publish", message("one"))
    both.post(f"/api/exchanges/{vhost}/amq.default/publish", message("two"))
    both.call("POST", f"/api/queues/{vhost}/q/get", body, exact=True)
    both.post(f"/api/queues/{vhost}/q/get", GET, exact=True)


def test_what_a_stream_has_cannot_be_got(both: Pair, vhost: str) -> None:
    both.put(f"/api/queues/{vhost}/s", {"durable": True, "arguments": {"x-queue-type": "stream"}})
    both.call("POST", f"/api/queues/{vhost}/s/get", GET, exact=True)


def test_where_there_is_nothing(both: Pair, vhost: str) -> None:
    both.call("POST", f"/api/exchanges/{vhost}/none/publish", message())
    both.call("POST", "/api/exchanges/nowhere/amq.direct/publish", message())
    both.call("POST", f"/api/queues/{vhost}/none/get", GET)
    both.call("POST", "/api/queues/nowhere/none/get", GET)
    both.call("GET", f"/api/queues/{vhost}/none/get")
    both.call("GET", f"/api/exchanges/{vhost}/amq.direct/publish")


def test_internal_exchanges_take_none(both: Pair, vhost: str) -> None:
    both.put(f"/api/exchanges/{vhost}/e", {"type": "fanout", "internal": True})
    both.call("POST", f"/api/exchanges/{vhost}/e/publish", message())
