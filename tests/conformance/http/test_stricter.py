"""Requests that RabbitMQ accepts and leveret refuses.

Either their effect would not be what they ask for, or they need the permission to change something.
"""

from __future__ import annotations

import pytest

from .pair import Pair

MESSAGE = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
GET = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        # a routing key that is not a string
        ("POST", "bindings/{v}/e/amq.direct/q/q", {"routing_key": 5}),
        ("POST", "exchanges/{v}/amq.direct/publish", {**MESSAGE, "routing_key": 5}),
        # names and keys that no AMQP client could send
        ("POST", "exchanges/{v}/amq.direct/publish", {**MESSAGE, "routing_key": "x" * 256}),
        ("PUT", "exchanges/{v}/" + "x" * 256, {"type": "direct"}),
        # a fraction of a message
        ("POST", "queues/{v}/q/get", {**GET, "count": 1.5}),
        ("PUT", "vhosts/{v}-2", {"description": 5}),
    ],
    ids=repr,
)
def test_nonsense_is_refused(both: Pair, vhost: str, verb: str, path: str, body: object) -> None:
    for api in both.apis:
        assert api.call("PUT", f"/api/queues/{vhost}/q", {}).status == 201
    answer = both.subject.call(verb, "/api/" + path.format(v=vhost), body)
    assert answer.status == 400 or both.is_rabbitmq, answer
    for rabbitmq in both.apis[:-1]:
        assert rabbitmq.call(verb, "/api/" + path.format(v=vhost), body).status < 300
        rabbitmq.call("DELETE", f"/api/vhosts/{vhost}-2")


@pytest.mark.parametrize("path", ["federation-links/vhost/{v}/none/none/restart", "auth/attempts/none"])
def test_a_monitor_changes_nothing(both: Pair, vhost: str, path: str) -> None:
    """RabbitMQ lets a user with the tag monitoring restart links and reset the counts of logins."""
    user = f"{vhost}-user"
    for api in both.apis:
        api.call("PUT", f"/api/users/{user}", {"password": "secret", "tags": "monitoring"})
        status = api.as_user(user, "secret").call("DELETE", "/api/" + path.format(v=vhost)).status
        assert status == (404 if both.is_rabbitmq or api is not both.subject else 401)
        api.call("DELETE", f"/api/users/{user}")
