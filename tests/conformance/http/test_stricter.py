"""What RabbitMQ takes without a word, and ours refuses: it would do something else than what was said."""

from __future__ import annotations

import pytest

from .pair import Pair

MESSAGE = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
GET = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        # a routing key that is no string
        ("POST", "bindings/{v}/e/amq.direct/q/q", {"routing_key": 5}),
        ("POST", "exchanges/{v}/amq.direct/publish", {**MESSAGE, "routing_key": 5}),
        # names and keys that no AMQP client could say
        ("POST", "exchanges/{v}/amq.direct/publish", {**MESSAGE, "routing_key": "x" * 256}),
        ("PUT", "exchanges/{v}/" + "x" * 256, {"type": "direct"}),
        # half a message
        ("POST", "queues/{v}/q/get", {**GET, "count": 1.5}),
        ("PUT", "vhosts/{v}-2", {"description": 5}),
    ],
    ids=repr,
)
def test_nonsense_is_refused(both: Pair, vhost: str, verb: str, path: str, body: object) -> None:
    for api in (both.rabbitmq, both.subject):
        assert api.call("PUT", f"/api/queues/{vhost}/q", {}).status == 201
    answer = both.subject.call(verb, "/api/" + path.format(v=vhost), body)
    assert answer.status == 400 or both.is_rabbitmq, answer
    assert both.rabbitmq.call(verb, "/api/" + path.format(v=vhost), body).status < 300
    both.rabbitmq.call("DELETE", f"/api/vhosts/{vhost}-2")
