"""Definitions: export, import, and transfer from one broker to the other."""

from __future__ import annotations

import json
from typing import Any

from .pair import Pair

HASH = "AQIDBDB9kM21iEUzN1lZ+6VReCsdNqS0sERdAQTcY6Xs3PMz"


def fill(both: Pair, vhost: str) -> None:
    """Make objects of each kind."""
    both.put(f"/api/queues/{vhost}/q", {"durable": True, "arguments": {"x-max-length": 5, "x-overflow": "drop-head"}})
    both.put(f"/api/queues/{vhost}/transient", {"durable": False})
    both.put(f"/api/queues/{vhost}/ä b", {"durable": True, "arguments": {"x-queue-type": "quorum"}})
    both.put(f"/api/exchanges/{vhost}/e", {"type": "headers", "arguments": {"alternate-exchange": "amq.fanout"}})
    both.put(f"/api/exchanges/{vhost}/d", {"type": "topic", "durable": True})
    both.post(f"/api/bindings/{vhost}/e/d/q/q", {"routing_key": "a.#", "arguments": {"n": 1.5, "t": [True]}}, 201)
    both.post(f"/api/bindings/{vhost}/e/amq.fanout/e/d", {}, 201)
    both.put(f"/api/policies/{vhost}/p", {"pattern": "^q", "definition": {"max-length": 7}, "apply-to": "queues"})
    both.put(f"/api/operator-policies/{vhost}/o", {"pattern": "^q", "definition": {"expires": 700000}})
    both.put(f"/api/parameters/federation-upstream/{vhost}/up", {"value": {"uri": "amqp://localhost"}})
    both.call("PUT", f"/api/vhost-limits/{vhost}/max-queues", {"value": 100})
    both.put(f"/api/users/{vhost}-user", {"password_hash": HASH, "tags": "monitoring"})
    both.put(f"/api/permissions/{vhost}/{vhost}-user", {"configure": "a", "write": "b", "read": "c"})
    both.put(f"/api/topic-permissions/{vhost}/{vhost}-user", {"exchange": "d", "write": "b", "read": "c"})


def of(definitions: Any, vhost: str) -> Any:
    """Return the part of an export that is about one virtual host."""
    own = {}
    for kind, items in definitions.items():
        if isinstance(items, list):
            own[kind] = sorted(
                (each for each in items if each.get("vhost") == vhost or str(each.get("name")).startswith(vhost)),
                key=lambda each: json.dumps(each, sort_keys=True),
            )
    return own


def test_export(both: Pair, vhost: str) -> None:
    fill(both, vhost)
    both.get("/api/definitions", select=lambda answer: of(answer, vhost), exact=True)
    both.get("/api/definitions", select=sorted)
    both.get(f"/api/definitions/{vhost}", select=lambda answer: of(answer, vhost))
    both.get(f"/api/definitions/{vhost}?download=of-a-test.json", select=lambda answer: of(answer, vhost))
    both.get("/api/definitions/nowhere", None)
    both.delete(f"/api/users/{vhost}-user")


def test_each_takes_what_the_other_gave(both: Pair, vhost: str) -> None:
    fill(both, vhost)
    before = both.get("/api/definitions", select=lambda answer: of(answer, vhost), exact=True)
    for api in both.apis:
        api.call("DELETE", f"/api/vhosts/{vhost}")
        api.call("DELETE", f"/api/users/{vhost}-user")
    for api, other in zip(reversed(both.apis), (before.rabbitmq, before.subject), strict=False):
        wanted = of(other.json, vhost)
        wanted["vhosts"] = [{"name": vhost}]
        answer = api.call("POST", "/api/definitions", wanted)
        assert answer.status == 204, answer
    after = both.get("/api/definitions", select=lambda answer: of(answer, vhost), exact=True)
    assert of(after.subject.json, vhost)["queues"] == of(before.subject.json, vhost)["queues"]
    both.as_user(f"{vhost}-user").get("/api/whoami", exact=True)
    both.delete(f"/api/users/{vhost}-user")


def test_into_one_virtual_host(both: Pair, vhost: str) -> None:
    definitions = {
        "queues": [{"name": "q", "durable": True, "auto_delete": False, "arguments": {}}],
        "exchanges": [
            {"name": "e", "type": "fanout", "durable": True, "auto_delete": False, "internal": False, "arguments": {}}
        ],
        "bindings": [
            {"source": "e", "destination": "q", "destination_type": "queue", "routing_key": "", "arguments": {}}
        ],
        "policies": [{"name": "p", "pattern": ".*", "definition": {"max-length": 5}, "priority": 0, "apply-to": "all"}],
    }  # fmt: skip
    both.post(f"/api/definitions/{vhost}", definitions, 204)
    both.get(f"/api/definitions/{vhost}", exact=True, select=lambda answer: {
        kind: answer[kind] for kind in definitions})
    both.post(f"/api/definitions/{vhost}", definitions, 204)
    both.post("/api/definitions/nowhere", definitions, None)


def test_an_upload_from_a_form(both: Pair, vhost: str) -> None:
    inner = json.dumps({"queues": [{"name": "q", "durable": True, "auto_delete": False, "arguments": {}}]})
    body = (
        f'--X\r\nContent-Disposition: form-data; name="file"; filename="a.json"\r\n'
        f"Content-Type: application/json\r\n\r\n{inner}\r\n--X--\r\n"
    ).encode()
    both.post(
        f"/api/definitions/{vhost}", body, None, headers={"content-type": "multipart/form-data; boundary=X"}
    )
    both.get(f"/api/queues/{vhost}/q", None)


def test_what_is_no_definition(both: Pair, vhost: str) -> None:
    for body in (
        {}, [], b"", b"{", 5, {"queues": 5}, {"queues": [{}]}, {"queues": [5]},
        {"queues": [{"name": "q", "vhost": "nowhere"}]},
        {"users": [{"name": "x"}]}, {"permissions": [{"user": "nobody", "vhost": vhost}]}, {"unknown": [1]},
        {"bindings": [{"source": "none", "vhost": vhost, "destination": "none", "destination_type": "queue",
                       "routing_key": "", "arguments": {}}]},
        {"policies": [{"name": "p", "vhost": vhost, "pattern": "(", "definition": {"max-length": 5}, "priority": 0}]},
        {"policies": [{"name": "p", "vhost": vhost, "pattern": "", "definition": {"nonsense": 5}, "priority": 0}]},
    ):  # fmt: skip
        both.call("POST", "/api/definitions", body)
