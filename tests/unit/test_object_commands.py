"""Commands that act as a client: same checks, same error texts as RabbitMQ's (measured on its HTTP API, 3.10.8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

import leveret.control.commands  # noqa: F401  (makes them known)
from leveret.broker.exchanges.binding import count_to
from leveret.control.command import COMMANDS
from leveret.control.host import Host
from leveret.control.node import BrokerNode
from leveret.control.refusal import BAD_REQUEST, NOT_AUTHORISED, NOT_FOUND, Refused
from leveret.wire import grammar

from .support import Bench, recovered


class Clock:
    """The part of a host that these commands use."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def now_us(self) -> int:
        return self._bench.now_us


class Operator:
    """Runs commands. Queue q rejects more than two messages; user u has permissions for names that begin with u."""

    def __init__(self) -> None:
        self.bench = Bench()
        broker = self.bench.broker
        self.node = BrokerNode(broker, cast(Host, Clock(self.bench)), "leveret@test", "/data", "1", "interpreted")
        self.do("declare_queue", name="q", durable=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
        broker.definitions.put("user", {"name": "u", "tags": []})
        patterns: dict[str, Any] = {"configure": "^u", "write": "^u", "read": "^u"}
        broker.definitions.put("permission", {"user": "u", "vhost": "/", **patterns})

    def do(self, command: str, **fields: Any) -> Any:
        call = {"command": command, "vhost": "/", **fields}
        result = msgspec.convert(call, COMMANDS[command]).run(self.node)
        answer = list(result) if isinstance(result, Iterator) else result
        assert not self.bench.broker.nowhere.channels
        return msgspec.json.decode(msgspec.json.encode(answer))

    def refusal(self, command: str, **fields: Any) -> tuple[str, str]:
        before = self.bench.broker.log.size()
        with pytest.raises(Refused) as refused:
            self.do(command, **fields)
        assert self.bench.broker.log.size() == before
        return refused.value.kind, refused.value.reason

    def publish(self, payload: str = "hello", key: str = "q", exchange: str = "amq.default", **fields: Any) -> Any:
        return self.do("publish", exchange=exchange, routing_key=key, payload=payload, **fields)["routed"]

    def get(self, ackmode: str = "ack_requeue_false", count: int = 5, **fields: Any) -> Any:
        return self.do("get_messages", **{"queue": "q", "ackmode": ackmode, "count": count} | fields)


@pytest.fixture
def operator() -> Operator:
    return Operator()


def test_declared_again_and_differently(operator: Operator) -> None:
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    assert operator.do("declare_queue", name="q", durable=True, arguments=arguments) is None
    assert operator.refusal("declare_queue", name="q", arguments=arguments) == (
        BAD_REQUEST,
        "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'",
    )
    assert operator.do("declare_exchange", name="x", type="fanout") is None
    assert operator.refusal("declare_exchange", name="x") == (
        BAD_REQUEST,
        "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'direct' but current is 'fanout'",
    )


@pytest.mark.parametrize(
    ("command", "fields", "kind", "reason"),
    [
        ("declare_queue", {"name": "amq.x"}, NOT_AUTHORISED, "Access refused."),
        ("declare_exchange", {"name": "amq.x"}, NOT_AUTHORISED, "Access refused."),
        ("delete_exchange", {"name": "amq.direct"}, NOT_AUTHORISED, "Access refused."),
        ("declare_exchange", {"name": "y", "type": "no"}, BAD_REQUEST, "unknown exchange type 'no'"),
        ("declare_queue", {"name": "y", "arguments": {"a": None}}, BAD_REQUEST, "null_not_allowed"),
        (
            "declare_queue", {"name": "y", "arguments": {"x-max-length": -1}}, BAD_REQUEST,
            "invalid arg 'x-max-length' for queue 'y' in vhost '/': {value_negative,-1}",
        ),
        (
            "declare_queue", {"name": "n" * 256}, BAD_REQUEST,
            "queue should be less than 255 bytes, actually was 256",
        ),
        ("declare_queue", {"name": "y", "vhost": "no"}, NOT_FOUND, "vhost_not_found"),
        ("declare_exchange", {"name": ""}, NOT_AUTHORISED, "Access refused."),
        ("delete_exchange", {"name": ""}, NOT_AUTHORISED, "Access refused."),
        ("bind", {"source": "", "destination": "q"}, NOT_AUTHORISED, "Access refused."),
        ("unbind", {"source": "", "destination": "q", "properties_key": "q"}, NOT_AUTHORISED, "Access refused."),
        (
            "publish", {"vhost": "no", "exchange": "", "routing_key": "", "payload": ""}, NOT_AUTHORISED,
            "Access refused.",
        ),
        (
            "get_messages", {"vhost": "no", "queue": "q", "ackmode": "ack_requeue_true", "count": 1}, NOT_AUTHORISED,
            "Access refused.",
        ),
        (
            "get_messages", {"queue": "q", "ackmode": "ack_requeue_true", "count": 1, "truncate": -5}, BAD_REQUEST,
            "truncate must not be negative, but is -5",
        ),
        ("delete_exchange", {"name": "no"}, NOT_FOUND, "no exchange 'no' in vhost '/'"),
        ("bind", {"source": "no", "destination": "q"}, NOT_FOUND, "no exchange 'no' in vhost '/'"),
        ("bind", {"source": "amq.topic", "destination": "no"}, NOT_FOUND, "no queue 'no' in vhost '/'"),
        (
            "bind", {"source": "amq.headers", "destination": "q", "arguments": {"x-match": "foo"}}, BAD_REQUEST,
            'Invalid x-match field value <<"foo">>; expected all, any, all-with-x, or any-with-x',
        ),
    ],
)  # fmt: skip
def test_refused_as_on_amqp(operator: Operator, command: str, fields: dict[str, Any], kind: str, reason: str) -> None:
    assert operator.refusal(command, **fields) == (kind, reason)


def test_a_user_may_do_what_its_permissions_say_and_an_operator_everything(operator: Operator) -> None:
    refused = (NOT_AUTHORISED, "Access refused.")
    operator.publish()
    assert operator.refusal("declare_queue", name="a", user="u") == refused
    assert operator.refusal("declare_exchange", name="a", user="u") == refused
    assert operator.refusal("delete_queue", name="q", user="u") == refused
    assert operator.refusal("purge_queue", name="q", user="u") == refused
    assert operator.refusal("bind", source="amq.topic", destination="q", user="u") == refused
    fields = {"exchange": "", "routing_key": "q", "payload": "", "user": "u"}
    text = "403 ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'u'"
    assert operator.refusal("publish", **fields) == (BAD_REQUEST, text)
    with pytest.raises(Refused) as denied:
        operator.get(user="u")
    assert denied.value.kind == NOT_AUTHORISED
    assert denied.value.reason == "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'u'"
    operator.do("declare_queue", name="u1", user="u")
    operator.do("declare_exchange", name="ux", user="u")
    operator.do("bind", source="ux", destination="u1", user="u")
    assert operator.publish(exchange="ux", key="", user="u")
    assert len(operator.get(queue="u1", user="u")) == 1
    assert operator.do("delete_queue", name="u1", user="u") == {"message_count": 0}
    operator.do("delete_exchange", name="ux", user="u")


@pytest.mark.parametrize(
    ("key", "arguments", "properties_key"),
    [
        ("", {}, "~"),
        ("k", {}, "k"),
        ("a b+c~d.e_f-g/h*é", {}, "a+b%2Bc%7Ed.e_f-g%2Fh%2A%C3%A9"),
        ("k", {"b": 1, "a": "x"}, None),
    ],
)
def test_a_binding_is_found_again_by_its_properties_key(
    operator: Operator, key: str, arguments: dict[str, Any], properties_key: str | None
) -> None:
    ends = {"source": "amq.topic", "destination": "q"}
    operator.do("bind", **ends, routing_key="other")
    operator.do("bind", **ends, routing_key="k", arguments={"c": 1})
    found = operator.do("bind", **ends, routing_key=key, arguments=arguments)["properties_key"]
    assert found == properties_key if properties_key else found.startswith("k~")
    assert count_to(operator.bench.broker.vhosts["/"].queues["q"]) == 3
    operator.do("unbind", **ends, properties_key=found)
    assert count_to(operator.bench.broker.vhosts["/"].queues["q"]) == 2
    assert operator.refusal("unbind", **ends, properties_key=found)[0] == NOT_FOUND
    assert operator.refusal("unbind", source="no", destination="q", properties_key="k")[0] == NOT_FOUND


def test_exchanges_are_bound_to_exchanges(operator: Operator) -> None:
    ends = {"source": "amq.topic", "destination": "amq.fanout", "destination_type": "exchange"}
    operator.do("bind", source="amq.fanout", destination="q")
    assert operator.do("bind", **ends, routing_key="a.#") == {"properties_key": "a.%23"}
    assert operator.publish(exchange="amq.topic", key="a.b")
    operator.do("unbind", **ends, properties_key="a.%23")
    assert not operator.publish(exchange="amq.topic", key="a.b")


PROPERTIES = {
    "cluster_id": "c", "app_id": "a", "type": "ty", "timestamp": 12345, "message_id": "m", "expiration": "100000",
    "reply_to": "r", "correlation_id": "co", "priority": 3, "delivery_mode": 2,
    "headers": {"a": 1, "b": "x", "c": [1, {"d": True}], "e": 1.5}, "content_encoding": "ce", "content_type": "t",
}  # fmt: skip


def test_a_message_comes_out_as_it_went_in(operator: Operator) -> None:
    assert operator.publish()
    assert operator.publish("/wDh", payload_encoding="base64", properties=PROPERTIES | {"unknown": 1})
    first = {
        "payload_bytes": 5, "redelivered": False, "exchange": "", "routing_key": "q", "message_count": 1,
        "properties": [], "payload": "hello", "payload_encoding": "string",
    }  # fmt: skip
    second = first | {
        "payload_bytes": 3, "message_count": 0, "properties": PROPERTIES, "payload": "/wDh",
        "payload_encoding": "base64",
    }  # fmt: skip
    assert operator.get("ack_requeue_true") == [first, second]
    again = [message | {"redelivered": True} for message in (first, second)]
    assert operator.get("reject_requeue_true", count=-1) == again
    short = operator.get("ack_requeue_true", truncate=2)
    assert [message["payload"] for message in short] == ["he", "/wA="]
    assert [message["payload_encoding"] for message in short] == ["string", "base64"]
    assert operator.get("ack_requeue_true", count=1, encoding="base64")[0]["payload"] == "aGVsbG8="
    assert operator.get("ack_requeue_true", count=0) == []
    assert len(operator.get("reject_requeue_false", count=1)) == 1
    assert [message["payload"] for message in operator.get("ack_requeue_false")] == ["/wDh"]
    assert operator.get() == []


def test_headers_are_those_that_rabbitmq_makes(operator: Operator) -> None:
    operator.publish(properties={"headers": {"c": {"z": 1, "y": 2}, "a": 1, "b": 2}})
    client = operator.bench.connect()
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    header = next(frame.payload for frame in client.frames() if frame.kind == 2)
    assert b"\x01al" + (1).to_bytes(8, "big") + b"\x01bl" in header
    assert header.index(b"\x01y") < header.index(b"\x01z")


def test_messages_that_were_got_to_be_removed_stay_away_after_a_crash(operator: Operator) -> None:
    for ackmode in ("ack_requeue_false", "reject_requeue_false"):
        operator.publish(properties={"delivery_mode": 2})
        assert len(operator.get(ackmode)) == 1
    operator.publish(properties={"delivery_mode": 2})
    assert len(operator.get("ack_requeue_true")) == 1
    operator.bench.sync()
    assert recovered(operator.bench.batches).broker.vhosts["/"].queues["q"].count() == 1


def test_a_large_message_goes_in_and_out(operator: Operator) -> None:
    text = "x" * 300_000
    assert operator.publish(text)
    assert operator.get()[0]["payload"] == text


def test_one_answer_takes_so_many_messages_as_a_line_does(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leveret.control.commands.messages.ANSWER_OCTETS_MAX", 10)
    operator.do("declare_queue", name="r")
    for _ in range(5):
        operator.publish("hello", "r")
    assert len(operator.get(queue="r", count=5)) == 2
    assert len(operator.get(queue="r", count=5)) == 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"exchange": "no"}, "404 NOT_FOUND - no exchange 'no' in vhost '/'"),
        ({"exchange": "i"}, "403 ACCESS_REFUSED - cannot publish to internal exchange 'i' in vhost '/'"),
        (
            {"properties": {"user_id": "x"}, "user": "guest"},
            "406 PRECONDITION_FAILED - user_id property set to 'x' but authenticated user was 'guest'",
        ),
        ({"properties": {"expiration": "x"}}, "406 PRECONDITION_FAILED - invalid expiration 'x': no_integer"),
        ({"properties": {"delivery_mode": 7}}, "406 PRECONDITION_FAILED - invalid message: {delivery_mode_unknown,7}"),
        ({"properties": {"expiration": 5}}, "not_string: expiration"),
        ({"properties": {"priority": "5"}}, "not_int: priority"),
        ({"properties": {"priority": 300}}, "priority must be from 0 to 255, not 300"),
        ({"properties": {"type": "t" * 256}}, "short string of 256 octets"),
        ({"properties": {"headers": {"a": None}}}, "null_not_allowed"),
        ({"properties": {"headers": 1}}, "headers must be a table"),
        ({"properties": {"headers": {"a": "x" * 140_000}}}, "a frame holds at most 131072"),
        ({"payload_encoding": "base64", "payload": "*"}, "not_base64: *"),
        ({"payload_encoding": "x"}, "unsupported_encoding: x"),
        ({"routing_key": "k" * 256}, "short string of 256 octets"),
    ],
)
def test_publishes_that_are_refused(operator: Operator, fields: dict[str, Any], reason: str) -> None:
    operator.do("declare_exchange", name="i", internal=True)
    kind, text = operator.refusal("publish", **{"exchange": "", "routing_key": "q", "payload": "hello"} | fields)
    assert kind == BAD_REQUEST
    assert reason in text


def test_a_full_queue_refuses(operator: Operator) -> None:
    assert operator.publish()
    assert operator.publish()
    text = "rejected Unable to publish message. Check queue limits."
    assert operator.refusal("publish", exchange="", routing_key="q", payload="") == (BAD_REQUEST, text)
    assert not operator.publish(key="nowhere")


def test_a_broker_without_room_takes_no_messages(operator: Operator) -> None:
    operator.bench.broker.block_reason = "low on disk"
    text = "the broker is not accepting messages: low on disk"
    assert operator.refusal("publish", exchange="", routing_key="q", payload="") == (BAD_REQUEST, text)


def test_a_message_that_is_too_large(operator: Operator) -> None:
    operator.bench.broker.settings.max_message_octets = 3
    text = "message size 5 is larger than configured max size 3"
    assert operator.refusal("publish", exchange="", routing_key="q", payload="hello") == (BAD_REQUEST, text)


def test_what_cannot_be_got(operator: Operator) -> None:
    asked = {"queue": "no", "ackmode": "ack_requeue_true", "count": 1}
    assert operator.refusal("get_messages", **asked) == (NOT_FOUND, "NOT_FOUND - no queue 'no' in vhost '/'")
    text = "Unsupported encoding. Please use auto or base64."
    assert operator.refusal("get_messages", **asked | {"encoding": "x"}) == (BAD_REQUEST, text)


def test_what_was_published_is_delivered_and_confirmed_to_nobody(operator: Operator) -> None:
    """The command's connection is closed before its message is on disk."""
    client = operator.bench.connect()
    client.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    client.frames()
    operator.publish(properties={"delivery_mode": 2})
    assert client.bodies() == [b"hello"]
    operator.bench.sync()
    assert client.frames() == []


def test_a_queue_is_deleted_with_a_condition_as_the_user_asked(operator: Operator) -> None:
    operator.publish()
    assert operator.refusal("delete_queue", name="q", if_empty=True, user="guest") == (
        BAD_REQUEST,
        "queue 'q' in vhost '/' not empty",
    )
    assert operator.do("purge_queue", name="q", user="guest") == {"message_count": 1}
    assert operator.do("delete_queue", name="q", if_empty=True, user="guest") == {"message_count": 0}
    assert operator.refusal("delete_queue", name="q", user="guest") == (NOT_FOUND, "no queue 'q' in vhost '/'")


def test_limits_of_users_and_virtual_hosts_hold(operator: Operator) -> None:
    definitions = operator.bench.broker.definitions
    limits: dict[str, Any] = {"value": {"max-queues": 2}}
    definitions.put("parameter", {"vhost": "/", "component": "vhost-limits", "name": "limits", **limits})
    operator.do("declare_queue", name="second")
    assert operator.refusal("declare_queue", name="third")[0] == BAD_REQUEST
    definitions.put("user", {"name": "u", "tags": [], "limits": {"max-channels": 0}})
    assert operator.refusal("delete_queue", name="second", user="u")[0] == NOT_AUTHORISED
    operator.do("delete_queue", name="second", user="guest")
    assert operator.bench.broker.connection_count == 0
