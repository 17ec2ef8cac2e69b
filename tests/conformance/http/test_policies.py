"""Policies, operator policies, parameters and limits."""

from __future__ import annotations

import pytest

from .api import segment
from .pair import Pair


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_life_of_a_policy(both: Pair, vhost: str, kind: str) -> None:
    path = f"/api/{kind}/{vhost}/p"
    both.put(f"/api/queues/{vhost}/q", {"arguments": {"x-max-length": 50}})
    both.get(path, 404)
    both.put(path, {"pattern": "^q", "definition": {"max-length": 5}, "priority": 2, "apply-to": "queues"})
    both.get(path, exact=True)
    both.get(f"/api/{kind}/{vhost}", exact=True)
    both.get(f"/api/queues/{vhost}/q", until=lambda item: item["effective_policy_definition"] == {"max-length": 5})
    both.put(path, {"pattern": "^q", "definition": {"max-length": 6}, "apply-to": "all"}, None)
    both.put(path, {"pattern": "^q", "definition": {"max-length": 6}, "apply-to": "queues"}, 204)
    both.get(path, exact=True)
    both.delete(path)
    both.delete(path, 404)
    both.get(f"/api/{kind}/{vhost}", exact=True)


P = {"pattern": ".*", "definition": {"max-length": 5}}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"pattern": ".*"},
        {"definition": {"max-length": 5}},
        {**P, "definition": {}},
        {**P, "definition": {"nonsense": 1}},
        {**P, "definition": {"max-length": "x"}},
        {**P, "definition": {"max-length": -1}},
        {**P, "definition": {"max-length": 5, "nonsense": 1}},
        {**P, "definition": []},
        {**P, "definition": 5},
        {**P, "definition": {"message-ttl": 100, "expires": 5000, "dead-letter-exchange": "x"}},
        {**P, "definition": {"overflow": "nonsense"}},
        {**P, "definition": {"alternate-exchange": "x"}},
        {**P, "definition": {"alternate-exchange": 5}},
        {**P, "definition": {"expires": 0}},
        {**P, "definition": {"delivery-limit": 5, "max-in-memory-length": 5}},
        {**P, "definition": {"federation-upstream-set": "all"}},
        {**P, "definition": {"federation-upstream": "x", "federation-upstream-set": "all"}},
        {**P, "definition": {"queue-mode": "lazy"}},
        {**P, "definition": {"dead-letter-strategy": "at-least-once", "max-length-bytes": 5}},
        {**P, "pattern": "("},
        {**P, "pattern": 5},
        {**P, "pattern": "*"},
        {**P, "priority": "high"},
        {**P, "priority": "5"},
        {**P, "priority": 1.5},
        {**P, "priority": -5},
        {**P, "apply-to": "exchanges"},
        {**P, "apply-to": "nonsense"},
        {**P, "apply-to": 5},
        {**P, "name": "other", "vhost": "elsewhere", "unknown": 1},
        [],
        b"",
        b"{",
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_what_a_policy_may_be_made_of(both: Pair, vhost: str, kind: str, body: object) -> None:
    both.call("PUT", f"/api/{kind}/{vhost}/p", body)
    both.call("GET", f"/api/{kind}/{vhost}/p", exact=True)


@pytest.mark.parametrize("name", ["a/b", "ä", " ", "%", "x" * 300])
def test_any_name_will_do(both: Pair, vhost: str, name: str) -> None:
    path = f"/api/policies/{vhost}/{segment(name)}"
    both.call("PUT", path, P)
    both.call("GET", path)
    both.call("DELETE", path)


def test_parameters(both: Pair, vhost: str) -> None:
    path = f"/api/parameters/federation-upstream/{vhost}/up"
    both.get(path, 404)
    both.put(path, {"value": {"uri": "amqp://localhost", "max-hops": 2}})
    both.get(path, exact=True)
    both.get(f"/api/parameters/federation-upstream/{vhost}", exact=True)
    both.get("/api/parameters/federation-upstream", select=lambda items: [i for i in items if i["vhost"] == vhost])
    both.get("/api/parameters", select=lambda items: [i for i in items if i["vhost"] == vhost])
    both.put(path, {"value": {"uri": "amqp://localhost"}}, 204)
    both.delete(path)
    both.delete(path, 404)
    for body in ({}, {"value": 5}, {"value": {}}, {"value": {"uri": 5}}, {"value": {"uri": "x", "no": 1}}, [], b"{"):
        both.call("PUT", path, body)
    for component in ("nonsense", "policy", "vhost-limits"):
        both.call("GET", f"/api/parameters/{component}")
        both.call("GET", f"/api/parameters/{component}/{vhost}")
        both.call("GET", f"/api/parameters/{component}/{vhost}/x")
        both.call("PUT", f"/api/parameters/{component}/{vhost}/x", {"value": {"a": 1}})
    both.call("GET", "/api/parameters/federation-upstream/nowhere")
    both.call("PUT", "/api/parameters/federation-upstream/nowhere/up", {"value": {"uri": "amqp://"}})


def test_global_parameters(both: Pair, unique: str) -> None:
    path = f"/api/global-parameters/{unique}"
    both.get(path, 404)
    for value in ({"a": [1, "x", None, True]}, 5, "text", [], 1.5, False):
        both.put(path, {"value": value}, None)
        both.get(path, exact=True)
    both.get("/api/global-parameters", select=lambda items: [i for i in items if i["name"] == unique])
    both.delete(path)
    both.delete(path, 404)
    for body in ({}, [], b"", b"{"):
        both.call("PUT", path, body)


@pytest.mark.parametrize("limit", ["max-queues", "max-connections", "nonsense"])
def test_vhost_limits(both: Pair, vhost: str, limit: str) -> None:
    path = f"/api/vhost-limits/{vhost}/{limit}"
    both.get(f"/api/vhost-limits/{vhost}", exact=True)
    for body in ({"value": 5}, {"value": -1}, {"value": 0}, {"value": "7"}, {"value": 1.5}, {}, [], b"{"):
        both.call("PUT", path, body)
        both.call("GET", f"/api/vhost-limits/{vhost}", exact=True)
    both.get("/api/vhost-limits", select=lambda items: [i for i in items if i["vhost"] == vhost])
    both.call("DELETE", path)
    both.get(f"/api/vhost-limits/{vhost}", exact=True)
    both.call("DELETE", path)
    both.call("GET", "/api/vhost-limits/nowhere")
    both.call("PUT", f"/api/vhost-limits/nowhere/{limit}", {"value": 5})


def test_a_limit_holds(both: Pair, vhost: str) -> None:
    both.call("PUT", f"/api/vhost-limits/{vhost}/max-queues", {"value": 1})
    both.put(f"/api/queues/{vhost}/one", {})
    both.call("PUT", f"/api/queues/{vhost}/two", {})
    both.call("DELETE", f"/api/vhost-limits/{vhost}/max-queues")
    both.put(f"/api/queues/{vhost}/two", {})


@pytest.mark.parametrize("limit", ["max-channels", "max-connections", "nonsense"])
def test_user_limits(both: Pair, unique: str, limit: str) -> None:
    both.put(f"/api/users/{unique}", {"password": "secret", "tags": ""})
    path = f"/api/user-limits/{unique}/{limit}"
    both.get(f"/api/user-limits/{unique}", exact=True)
    for body in ({"value": 5}, {"value": -1}, {"value": 0}, {"value": "x"}, {}, [], b"{"):
        both.call("PUT", path, body)
        both.call("GET", f"/api/user-limits/{unique}", exact=True)
    both.get("/api/user-limits", select=lambda items: [i for i in items if i["user"] == unique])
    both.call("DELETE", path)
    both.call("DELETE", path)
    both.call("GET", "/api/user-limits/nobody")
    both.call("PUT", f"/api/user-limits/nobody/{limit}", {"value": 5})
    both.delete(f"/api/users/{unique}")
