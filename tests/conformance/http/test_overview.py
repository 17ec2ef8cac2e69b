"""The broker as a whole: overview, nodes, health checks, features."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pika
import pika.exceptions
import pytest

from .api import segment
from .pair import Broker, Pair


def test_overview(both: Pair, vhost: str) -> None:
    both.put(f"/api/queues/{vhost}/q", {})
    message = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
    both.post(f"/api/exchanges/{vhost}/amq.default/publish", message)
    both.get(
        "/api/overview",
        until=lambda item: item["message_stats"]["publish"] and "messages" in item["queue_totals"]
        and "queue_declared" in item["churn_rates"],
        select=lambda item: item | {"cluster_name": "same"},
    )


def test_nodes(both: Pair) -> None:
    found = both.get("/api/nodes", until=lambda items: "mem_used" in items[0] and "uptime" in items[0])
    one, other = (f"/api/nodes/{segment(each.json[0]['name'])}" for each in (found.rabbitmq, found.subject))
    both.get_each(one, other, until=lambda item: "mem_used" in item and "uptime" in item)
    both.get_each(f"{one}?memory=true", f"{other}?memory=true", until=lambda item: "mem_used" in item)
    both.get_each(f"{one}/memory", f"{other}/memory")
    both.get("/api/nodes/no-such-node", None)
    both.get("/api/cluster-name")
    both.call("PUT", "/api/cluster-name", {"name": "of-a-test"}, 204)
    both.get("/api/cluster-name", exact=True)
    for body in ({}, {"name": 5}, [], b"{"):
        both.call("PUT", "/api/cluster-name", body)


@pytest.mark.parametrize(
    "path",
    [
        "whoami", "auth", "feature-flags", "extensions", "federation-links", "federation-links/%2F", "vhost-limits",
        "user-limits", "parameters", "global-parameters", "policies", "operator-policies", "aliveness-test/%2F",
        "healthchecks/node", "health/checks/alarms", "health/checks/local-alarms", "health/checks/virtual-hosts",
        "health/checks/node-is-mirror-sync-critical", "health/checks/node-is-quorum-critical",
        "health/checks/protocol-listener/amqp", "health/checks/protocol-listener/amqp091",
        "health/checks/protocol-listener/http", "health/checks/protocol-listener/mqtt",
        "health/checks/protocol-listener/nonsense", "health/checks/port-listener/1", "health/checks/port-listener/x",
        "health/checks/certificate-expiration/1/months", "health/checks/certificate-expiration/2/weeks",
        "health/checks/certificate-expiration/x/weeks", "health/checks/certificate-expiration/1/moons",
        "health/checks/nonsense", "aliveness-test/nowhere",
        "nonsense", "", "federation-links/nowhere",
    ],
)  # fmt: skip
def test_small_answers(both: Pair, path: str) -> None:
    both.call("GET", f"/api/{path}")


def test_port_listeners(both: Pair, brokers: list[Broker]) -> None:
    for urls in ([each.url for each in brokers], [each.api for each in brokers]):
        paths = [f"/api/health/checks/port-listener/{urlsplit(url).port}" for url in urls]
        both.get_each(paths[0], paths[-1])


def test_failed_logins_are_counted(both: Pair, brokers: list[Broker], unique: str) -> None:
    def attempts(answer: Any) -> bool:
        return any(each["auth_attempts_failed"] for each in answer)

    for broker in brokers:
        parameters = pika.URLParameters(broker.url.replace("guest:guest", f"{unique}:wrong"))
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(parameters)
    for api in both.apis:
        node = segment(api.call("GET", "/api/overview").json["node"])
        answer = api.call("GET", f"/api/auth/attempts/{node}")
        assert answer.status == 200
        assert attempts(answer.json), answer.json
        assert set(answer.json[0]) >= {"protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded"}
        assert api.call("GET", f"/api/auth/attempts/{node}/source").status == 200
        assert api.call("DELETE", f"/api/auth/attempts/{node}/source").status == 204
        assert api.call("DELETE", f"/api/auth/attempts/{node}").status == 204


def test_rebalancing(both: Pair) -> None:
    both.call("POST", "/api/rebalance/queues")
    both.call("GET", "/api/rebalance/queues")


def test_resetting_statistics(both: Pair) -> None:
    both.call("DELETE", "/api/reset")
    both.call("DELETE", "/api/reset/no-such-node")
