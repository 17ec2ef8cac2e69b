"""The requests of NServiceBus.RabbitMQ (transport 10 and 11), its command line and ServiceControl to the HTTP API.

An endpoint does not start if one of these answers is not as it expects. Paths and fields were read in its sources.
"""

from __future__ import annotations

import re
from typing import Any

import pika

from .api import segment
from .conftest import within
from .pair import Broker, Pair

ENDPOINT = "Sales.Orders"
FIELDS = ("name", "type", "arguments", "effective_policy_definition", "delivery_limit")
QUORUM = {"durable": True, "arguments": {"x-queue-type": "quorum"}}


def test_the_broker_is_good_enough(both: Pair) -> None:
    """At least version 3.10, numbers only, statistics on, and the feature flag that at-least-once delays need."""
    both.get("/api/overview", select=lambda overview: overview["disable_stats"])
    for api in both.apis:
        version = api.call("GET", "/api/overview").json["rabbitmq_version"].split("-")[0]
        assert re.fullmatch(r"\d+(\.\d+){1,3}", version)
        assert [int(part) for part in version.split(".")[:2]] >= [3, 10]
        flags = {flag["name"]: flag["state"] for flag in api.call("GET", "/api/feature-flags").json}
        assert (flags["stream_queue"], flags["quorum_queue"]) == ("enabled", "enabled")


def test_a_queue_has_no_delivery_limit(both: Pair, vhost: str) -> None:
    """The transport waits until the policy applies, and refuses to start if messages could be dropped after retries."""
    path = f"/api/queues/{vhost}/{segment(ENDPOINT)}"
    both.put(path, QUORUM)
    both.get(
        path,
        until=lambda queue: queue["effective_policy_definition"] is not None,
        select=lambda queue: {name: queue.get(name) for name in FIELDS},
    )
    both.get(f"/api/queues/{vhost}/missing", 404)
    limit = {"pattern": ENDPOINT, "apply-to": "queues", "definition": {"delivery-limit": 7}, "priority": 100}
    both.put(f"/api/policies/{vhost}/{segment(f'nsb.{ENDPOINT}.delivery-limit')}", limit)
    both.get(
        path,
        until=lambda queue: queue["effective_policy_definition"],
        select=lambda queue: (queue["policy"], queue["effective_policy_definition"]),
    )


def test_service_control_counts_queues_page_by_page(both: Pair, vhost: str, brokers: list[Broker]) -> None:
    """Its path ends in a slash before the query; it asks for the bindings of queues and of endpoints' exchanges."""
    both.put(f"/api/queues/{vhost}/{ENDPOINT}", QUORUM)
    both.put(f"/api/queues/{vhost}/other", QUORUM)
    for broker in brokers:
        with pika.BlockingConnection(pika.URLParameters(within(broker, vhost))) as connection:
            channel = connection.channel()
            channel.exchange_declare(ENDPOINT, "fanout", durable=True)
            channel.exchange_declare("nsb.v2.delay-delivery", "topic", durable=True)
            channel.queue_bind(ENDPOINT, ENDPOINT, "")
            channel.exchange_bind(ENDPOINT, "nsb.v2.delay-delivery", f"#.{ENDPOINT}")

    def page(found: Any) -> Any:
        names = [(item["name"], item["type"], item["arguments"]) for item in found["items"]]
        return names, found["page"], found["page_count"], found["page_size"], found["total_count"]

    for number in (1, 2):
        both.get(f"/api/queues/{vhost}/?page={number}&page_size=1", select=page)
    both.get(f"/api/queues/{vhost}/?page=1&page_size=500", select=page)
    both.get(f"/api/queues/{vhost}/{ENDPOINT}/bindings", exact=True)
    both.get(f"/api/exchanges/{vhost}/{ENDPOINT}/bindings/destination", exact=True)
