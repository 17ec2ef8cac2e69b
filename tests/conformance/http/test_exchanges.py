"""Exchanges: declaring, inspecting, deleting."""

from __future__ import annotations

import pytest

from .api import segment
from .pair import Pair


def test_life_of_an_exchange(both: Pair, vhost: str) -> None:
    path = f"/api/exchanges/{vhost}/e"
    both.get(path, 404)
    both.put(path, {"type": "topic", "arguments": {"alternate-exchange": "amq.fanout"}})
    both.get(path)
    both.get(f"/api/exchanges/{vhost}")
    both.get(f"{path}/bindings/source", exact=True)
    both.get(f"{path}/bindings/destination", exact=True)
    both.put(path, {"type": "topic", "arguments": {"alternate-exchange": "amq.fanout"}}, 204)
    both.put(path, {"type": "direct"}, 400)
    both.put(path, {"type": "topic"}, 400)
    both.delete(path)
    both.delete(path, 404)
    both.get(path, 404)


@pytest.mark.parametrize(
    "body",
    [
        {"type": "fanout", "durable": False},
        {"type": "headers", "auto_delete": True},
        {"type": "direct", "internal": True},
        {"type": "direct", "internal": "true"},
        {"type": "direct", "durable": 1},
        {"type": "nonsense"},
        {"type": ""},
        {"type": 5},
        {"type": "direct", "arguments": {"alternate-exchange": 5}},
        {"type": "direct", "arguments": {"any": ["thing", 1, True, 2.5]}},
        {"type": "direct", "arguments": []},
        {"type": "direct", "arguments": 5},
        {"type": "direct", "name": "other", "vhost": "elsewhere"},
        {},
        [],
        None,
        b"",
        b"{",
    ],
    ids=repr,
)
def test_what_an_exchange_may_be_made_of(both: Pair, vhost: str, body: object) -> None:
    both.call("PUT", f"/api/exchanges/{vhost}/e", body)
    both.call("GET", f"/api/exchanges/{vhost}/e")


@pytest.mark.parametrize("name", ["ä ö", "a/b", "%", "日本", "x" * 255, "amq.mine", "amq.default", "?#"])
def test_any_name_will_do(both: Pair, vhost: str, name: str) -> None:
    path = f"/api/exchanges/{vhost}/{segment(name)}"
    both.call("PUT", path, {"type": "direct"})
    both.call("GET", path)
    both.call("DELETE", path)
    both.call("GET", path)


def test_predeclared_exchanges(both: Pair, vhost: str) -> None:
    for name in ("amq.default", "amq.direct", "amq.topic", "amq.match", "amq.rabbitmq.trace", ""):
        path = f"/api/exchanges/{vhost}/{name}"
        both.call("GET", path)
        both.call("PUT", path, {"type": "direct"})
        both.call("DELETE", path)
        both.call("GET", f"{path}/bindings/source")


def test_conditional_deletion(both: Pair, vhost: str) -> None:
    both.put(f"/api/exchanges/{vhost}/e", {"type": "direct"})
    both.put(f"/api/queues/{vhost}/q", {})
    both.post(f"/api/bindings/{vhost}/e/e/q/q", {}, 201)
    both.delete(f"/api/exchanges/{vhost}/e?if-unused=true", 400)
    both.delete(f"/api/bindings/{vhost}/e/e/q/q/~")
    both.delete(f"/api/exchanges/{vhost}/e?if-unused=true")


def test_unknown_virtual_hosts(both: Pair) -> None:
    for path in ("", "/e", "/e/bindings/source", "/e/bindings/destination"):
        both.call("GET", f"/api/exchanges/nowhere{path}")
    both.call("PUT", "/api/exchanges/nowhere/e", {"type": "direct"})
    both.call("DELETE", "/api/exchanges/nowhere/e")
