"""Virtual hosts: creating, describing, deleting, tracing, and what is deleted with one."""

from __future__ import annotations

import pika
import pika.exceptions
import pytest

from .api import segment
from .conftest import serve, within
from .pair import Broker, Pair


def test_life_of_a_virtual_host(both: Pair, unique: str) -> None:
    path = f"/api/vhosts/{unique}"
    both.get(path, 404)
    both.put(path, {"description": "of a test", "tags": "one,two"})
    both.get(path)
    both.get(f"{path}/permissions", exact=True)
    both.get(f"{path}/topic-permissions", exact=True)
    both.get(f"{path}/connections")
    both.get(f"{path}/channels")
    both.get("/api/vhosts", select=lambda items: [each for each in items if each["name"] == unique])
    both.put(path, None, 204)
    both.delete(path)
    both.get(path, 404)
    both.delete(path, 404)
    for below in ("permissions", "topic-permissions", "connections", "channels"):
        both.call("GET", f"{path}/{below}")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"tags": 7},
        {"tags": ["a", "b"]},
        {"tags": ""},
        {"tracing": True},
        {"tracing": "true"},
        {"default_queue_type": "quorum"},
        {"default_queue_type": "nonsense"},
        {"unknown": 1},
        [],
        "text",
        b"{",
        b"null",
    ],
    ids=repr,
)
def test_what_a_virtual_host_may_be_made_of(both: Pair, unique: str, body: object) -> None:
    both.call("PUT", f"/api/vhosts/{unique}", body)
    both.call("GET", f"/api/vhosts/{unique}")
    both.call("DELETE", f"/api/vhosts/{unique}")


@pytest.mark.parametrize("name", ["/ä", "a b", "a%2Fb", "日本", "x" * 255, "x" * 300, "{}", "+&?"])
def test_any_name_will_do(both: Pair, unique: str, name: str) -> None:
    path = f"/api/vhosts/{segment(unique[:6] + name)}"
    both.call("PUT", path)
    both.call("GET", path)
    both.call("GET", f"/api/queues/{segment(unique[:6] + name)}")
    both.call("DELETE", path)
    both.call("GET", path)


def test_tracing_can_be_switched(both: Pair, vhost: str) -> None:
    both.put(f"/api/vhosts/{vhost}", {"tracing": True}, 204)
    both.get(f"/api/vhosts/{vhost}", until=lambda item: item["tracing"] is True)
    both.put(f"/api/vhosts/{vhost}", {"tracing": False}, 204)
    both.get(f"/api/vhosts/{vhost}", until=lambda item: item["tracing"] is False)


def test_what_is_in_it_goes_with_it(both: Pair, brokers: list[Broker], vhost: str) -> None:
    both.put(f"/api/queues/{vhost}/q", {})
    both.put(f"/api/exchanges/{vhost}/e", {"type": "topic"})
    both.put(f"/api/policies/{vhost}/p", {"pattern": ".*", "definition": {"max-length": 5}})
    connections = [pika.BlockingConnection(pika.URLParameters(within(each, vhost))) for each in brokers]
    both.delete(f"/api/vhosts/{vhost}")
    for connection in connections:
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            serve(connection)
    both.call("GET", f"/api/queues/{vhost}")
    both.call("GET", f"/api/queues/{vhost}/q")
    both.call("GET", f"/api/policies/{vhost}/p")
    both.put(f"/api/vhosts/{vhost}")
    both.get(f"/api/queues/{vhost}", exact=True)
    both.get(f"/api/exchanges/{vhost}")
    both.get(f"/api/policies/{vhost}", exact=True)


def test_starting_one_on_a_node(both: Pair, vhost: str) -> None:
    for api in both.apis:
        node = segment(api.call("GET", "/api/overview").json["node"])
        answer = api.call("POST", f"/api/vhosts/{vhost}/start/{node}")
        assert answer.status == 204, answer
