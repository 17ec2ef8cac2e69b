"""Which tag may send which request: each tag on each path and verb, as RabbitMQ answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .pair import Pair

TAGS = [
    "", "management", "policymaker", "monitoring", "administrator", "impersonator", "nonsense",
    "management,policymaker",
]  # fmt: skip
TOPIC = {"exchange": "amq.topic", "write": ".*", "read": ".*"}
ALL = {"configure": ".*", "write": ".*", "read": ".*"}
MESSAGE = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
POLICY = {"pattern": "^x", "definition": {"max-length": 5}}
GET = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}

# {v} is a virtual host of the user, {o} one of another user, {u} the user's name
REQUESTS: list[tuple[str, str, object]] = [
    *(("GET", path, None) for path in (
        "overview", "nodes", "cluster-name", "extensions", "whoami", "auth", "feature-flags", "vhosts", "users",
        "users/without-permissions", "permissions", "topic-permissions", "parameters", "global-parameters", "policies",
        "operator-policies", "vhost-limits", "user-limits", "definitions", "connections", "channels", "consumers",
        "exchanges", "queues", "bindings", "health/checks/alarms", "federation-links", "auth/attempts/none",
        "users/{u}", "users/guest", "users/{u}/permissions", "users/{u}/topic-permissions", "user-limits/{u}",
        "connections/username/{u}", "connections/username/guest", "global-parameters/none",
        "federation-links/state/down", "nodes/none", "connections/none", "channels/none", "nonsense",
    )),
    *(("GET", f"{path}/{v}", None) for v in ("{v}", "{o}", "nowhere") for path in (
        "vhosts", "exchanges", "queues", "bindings", "consumers", "policies", "operator-policies", "vhost-limits",
        "definitions", "parameters/federation-upstream", "federation-links",
    )),
    *((verb, path.format(v=v), None) for v in ("{v}", "{o}", "nowhere") for verb, path in (
        ("GET", "federation-links/{v}/state/down"), ("GET", "federation-links/vhost/{v}/none/none/restart"),
    )),
    *(("GET", path.replace("v", v), None) for v in ("{v}", "{o}") for path in (
        "queues/v/q", "exchanges/v/amq.direct", "queues/v/q/bindings", "exchanges/v/amq.direct/bindings/source",
        "bindings/v/e/amq.direct/q/q",
    )),
    *(("GET", f"vhosts/{v}/{path}", None) for v in ("{v}", "{o}") for path in (
        "permissions", "topic-permissions", "connections", "channels",
    )),
    *((verb, path.format(v=v, u="{u}"), body) for v in ("{v}", "{o}") for verb, path, body in (
        ("PUT", "queues/{v}/new", {}), ("PUT", "queues/{v}/q", {}), ("DELETE", "queues/{v}/q/contents", None),
        ("PUT", "exchanges/{v}/new", {"type": "direct"}), ("POST", "exchanges/{v}/amq.default/publish", MESSAGE),
        ("POST", "queues/{v}/q/get", GET), ("POST", "bindings/{v}/e/amq.direct/q/q", {"routing_key": "k"}),
        ("DELETE", "bindings/{v}/e/amq.direct/q/q/k", None), ("DELETE", "exchanges/{v}/new", None),
        ("DELETE", "queues/{v}/new", None), ("POST", "queues/{v}/q/actions", {"action": "sync"}),
        ("PUT", "policies/{v}/p", POLICY), ("GET", "policies/{v}/p", None), ("DELETE", "policies/{v}/p", None),
        ("PUT", "operator-policies/{v}/p", POLICY), ("DELETE", "operator-policies/{v}/p", None),
        ("PUT", "parameters/federation-upstream/{v}/p", {"value": {"uri": "amqp://"}}),
        ("GET", "parameters/federation-upstream/{v}/p", None),
        ("DELETE", "parameters/federation-upstream/{v}/p", None),
        ("PUT", "vhost-limits/{v}/max-queues", {"value": 100}), ("DELETE", "vhost-limits/{v}/max-queues", None),
        ("PUT", "topic-permissions/{v}/{u}-other", TOPIC), ("DELETE", "topic-permissions/{v}/{u}-other", None),
        ("PUT", "permissions/{v}/{u}-other", ALL), ("GET", "permissions/{v}/{u}-other", None),
        ("DELETE", "permissions/{v}/{u}-other", None), ("POST", "definitions/{v}", {}),
        ("PUT", "vhosts/{v}", {}),
    )),
    ("PUT", "users/{u}-new", {"password": "x", "tags": ""}),
    ("DELETE", "users/{u}-new", None),
    ("POST", "users/bulk-delete", {"users": []}),
    ("PUT", "vhosts/{u}-new", {}),
    ("DELETE", "vhosts/{u}-new", None),
    ("PUT", "global-parameters/{u}", {"value": 1}),
    ("DELETE", "global-parameters/{u}", None),
    ("PUT", "user-limits/{u}/max-channels", {"value": 100}),
    ("DELETE", "user-limits/{u}/max-channels", None),
    ("POST", "definitions", {}),
    ("DELETE", "connections/none", None),
    ("DELETE", "connections/username/nobody", None),
    ("POST", "rebalance/queues", None),
]  # fmt: skip


@pytest.fixture
def other(both: Pair, vhost: str) -> Iterator[str]:
    """A virtual host in which only guest has permissions."""
    name = f"{vhost}-other"
    both.put(f"/api/vhosts/{name}")
    yield name
    for api in both.apis:
        api.call("DELETE", f"/api/vhosts/{name}")


@pytest.mark.parametrize("tags", TAGS)
def test_tags(both: Pair, vhost: str, other: str, tags: str) -> None:
    user = f"{vhost}-user"
    for name in (user, f"{user}-other"):
        both.put(f"/api/users/{name}", {"password": "secret", "tags": tags})
    both.put(f"/api/permissions/{vhost}/{user}", ALL)
    for each in (vhost, other):
        both.put(f"/api/queues/{each}/q", {})
    asked = both.as_user(user)
    for verb, path, body in REQUESTS:
        asked.call(
            verb, "/api/" + path.format(v=vhost, o=other, u=user), body,
            select=lambda answer: mine(answer, user, vhost, other),
        )  # fmt: skip
    for name in (user, f"{user}-other"):
        both.delete(f"/api/users/{name}")


def mine(answer: object, user: str, vhost: str, other: str) -> object:
    """Return the items of a list that the test made, because the brokers may have others."""
    if not isinstance(answer, list):
        return None  # the status is enough; other tests check the keys
    own = {user, f"{user}-other", vhost, other, "guest"}
    return sorted(
        (str({key: each[key] for key in ("name", "user", "vhost") if key in each}) for each in answer
         if isinstance(each, dict) and each.get("vhost", each.get("name")) in own),
    )  # fmt: skip


@pytest.mark.parametrize(
    "rights", [("", "", ""), ("^q", "", ""), ("", "^q|^amq", ""), ("", "", "^q"), (".*", "", ".*")], ids=str
)
def test_permissions_hold_for_what_is_done(both: Pair, vhost: str, rights: tuple[str, str, str]) -> None:
    user = f"{vhost}-user"
    both.put(f"/api/users/{user}", {"password": "secret", "tags": "management"})
    both.put(f"/api/permissions/{vhost}/{user}", dict(zip(("configure", "write", "read"), rights, strict=True)))
    both.put(f"/api/queues/{vhost}/q", {})
    asked = both.as_user(user)
    for verb, path, body in (
        ("PUT", "queues/{v}/q2", {}),
        ("PUT", "queues/{v}/other", {}),
        ("PUT", "exchanges/{v}/q-exchange", {"type": "direct"}),
        ("POST", "bindings/{v}/e/amq.direct/q/q", {"routing_key": "k"}),
        ("POST", "exchanges/{v}/amq.default/publish", MESSAGE),
        ("POST", "exchanges/{v}/amq.direct/publish", MESSAGE),
        ("POST", "queues/{v}/q/get", GET),
        ("DELETE", "queues/{v}/q/contents", None),
        ("DELETE", "bindings/{v}/e/amq.direct/q/q/k", None),
        ("GET", "queues/{v}/q", None),
        ("DELETE", "exchanges/{v}/q-exchange", None),
        ("DELETE", "queues/{v}/q", None),
    ):
        asked.call(verb, "/api/" + path.format(v=vhost), body, select=lambda _: None)
    both.delete(f"/api/users/{user}")
