"""The firehose, amq.rabbitmq.trace: what it reports about every message, on leveret and on RabbitMQ alike.

No AMQP method turns it on: leveret is started with `--trace`, and RabbitMQ has a virtual host with tracing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from leveret.testing.processes import LeveretProcess

from ..shared import vhost, virtual_host
from .raw import Frame, RawClient, Typed, encode_method


@contextmanager
def traced_leveret() -> Iterator[str]:
    with LeveretProcess(arguments=["--trace", "/"]) as process:
        yield process.url


@contextmanager
def traced_rabbitmq() -> Iterator[str]:
    with virtual_host(f"traced-{uuid.uuid4().hex[:6]}", tracing=True) as url:
        yield url


BROKERS = [
    pytest.param(traced_leveret, id="leveret"),
    pytest.param(traced_rabbitmq, id="rabbitmq", marks=pytest.mark.needs("rabbitmq")),
]


@pytest.fixture(scope="module", params=BROKERS)
def traced(request: pytest.FixtureRequest) -> Iterator[str]:
    with request.param() as url:
        yield url


class Witness:
    """Consumes the firehose. It marks the end of what it expects by an unroutable publish of its own."""

    def __init__(self, url: str) -> None:
        self.client = RawClient.open(url)
        queue = self.client.call("queue.declare", exclusive=True)["queue"]
        self.client.call("queue.bind", queue=queue, exchange="amq.rabbitmq.trace", routing_key="#")
        self.client.call("basic.consume", queue=queue, no_ack=True)

    def told(self, url: str) -> list[Frame]:
        """Return what the firehose has reported since the last call."""
        with RawClient.open(url) as other:
            other.publish(b"", "", "the end")
            found: list[Frame] = []
            while (got := self.client.read("basic.deliver")).properties["headers"]["routing_keys"] != ["the end"]:
                found.append(got)
            return found


@pytest.fixture
def witness(traced: str) -> Iterator[Witness]:
    heard = Witness(traced)
    with heard.client:
        yield heard


@pytest.fixture
def client(traced: str) -> Iterator[RawClient]:
    with RawClient.open(traced, channels=2) as opened:
        yield opened


def connection(client: RawClient) -> str:
    """Return a connection's name as brokers show it."""
    ends = client.socket.getsockname(), client.socket.getpeername()
    return " -> ".join(f"{host}:{port}" for host, port in ends)


def summary(frame: Frame) -> tuple[Any, ...]:
    """Return routing key, exchange, routing keys, redelivered, queues, properties and body of a message."""
    headers = frame.properties["headers"]
    names = ("exchange_name", "routing_keys", "redelivered", "routed_queues", "properties")
    return frame["routing_key"], *(headers.get(name) for name in names), frame.body


ALL: dict[str, Any] = {
    "content_type": "text/plain", "content_encoding": "gzip", "headers": {"a": 1, "b": [1, "x"], "c": {"d": None}},
    "delivery_mode": 2, "priority": 3, "correlation_id": "c", "reply_to": "r", "expiration": "60000",
    "message_id": "m", "timestamp": 1700000000, "type": "t", "user_id": "guest", "app_id": "a", "cluster_id": "i",
}  # fmt: skip


def test_everything_about_a_publish_and_its_delivery(
    traced: str, witness: Witness, client: RawClient, unique: str
) -> None:
    client.call("queue.declare", queue=unique, exclusive=True)
    client.publish(b"hello", "", unique, channel=2, **ALL)
    client.quiet(2)
    client.call("basic.get", queue=unique)
    publish, deliver = witness.told(traced)
    assert (publish["exchange"], publish["routing_key"], publish.body) == ("amq.rabbitmq.trace", "publish.", b"hello")
    headers = publish.properties.pop("headers")
    assert publish.properties == {}
    node = headers["node"]
    assert "@" in node
    assert list(headers.items()) == [
        ("exchange_name", ""),
        ("routing_keys", [unique]),
        ("properties", ALL),
        ("node", node),
        ("vhost", vhost(traced)),
        ("connection", connection(client)),
        ("channel", 2),
        ("user", "guest"),
        ("routed_queues", [unique]),
    ]
    assert list(headers["properties"]) == list(reversed(ALL))
    assert (deliver["exchange"], deliver["routing_key"], deliver.body) == (
        "amq.rabbitmq.trace",
        f"deliver.{unique}",
        b"hello",
    )
    headers = deliver.properties.pop("headers")
    assert deliver.properties == {}
    assert list(headers.items()) == [
        ("exchange_name", ""),
        ("routing_keys", [unique]),
        ("properties", ALL),
        ("node", node),
        ("redelivered", 0),
        ("vhost", vhost(traced)),
        ("connection", connection(client)),
        ("channel", 1),
        ("user", "guest"),
    ]


def test_where_messages_go(traced: str, witness: Witness, client: RawClient, unique: str) -> None:
    """Queues are sorted; for the default exchange the keys are reported, whether or not such queues exist."""
    client.call("exchange.declare", exchange=unique, type="fanout", auto_delete=True)
    for name in ("c", "a", "b"):
        client.call("queue.declare", queue=f"{unique}-{name}", exclusive=True)
        client.call("queue.bind", queue=f"{unique}-{name}", exchange=unique)
    client.publish(b"1", unique, "key")
    client.publish(b"2", "amq.topic", f"{unique}.nowhere")
    client.publish(b"3", "", f"{unique}-z", mandatory=True)
    client.read("basic.return")
    client.publish(b"4", "", f"{unique}-b", headers={"CC": ["y"], "BCC": [f"{unique}-a"]})
    client.publish(b"5", "nope")
    client.closed()
    queues = [f"{unique}-{name}" for name in "abc"]
    assert [summary(each) for each in witness.told(traced)] == [
        (f"publish.{unique}", unique, ["key"], None, queues, {}, b"1"),
        ("publish.amq.topic", "amq.topic", [f"{unique}.nowhere"], None, [], {}, b"2"),
        ("publish.", "", [f"{unique}-z"], None, [f"{unique}-z"], {}, b"3"),
        (
            "publish.",
            "",
            [f"{unique}-b", "y", f"{unique}-a"],
            None,
            [*queues[:2], "y"],
            {"headers": {"CC": ["y"]}},
            b"4",
        ),
    ]


def test_deliveries_and_what_comes_again(traced: str, witness: Witness, client: RawClient, unique: str) -> None:
    client.call("queue.declare", queue=unique, exclusive=True)
    client.publish(b"1", "", unique, headers={"BCC": [unique], "CC": ["cc"]})
    client.publish(b"2", "", unique)
    client.call("basic.consume", queue=unique, consumer_tag="t")
    client.deliveries(2)
    client.call("basic.cancel", consumer_tag="t")
    client.send("basic.nack", delivery_tag=2, multiple=True, requeue=True)
    client.call("basic.consume", 2, queue=unique, no_ack=True)
    assert [client.read("basic.deliver")["redelivered"] for _ in range(2)] == [True, True]
    told = [each for each in witness.told(traced) if each["routing_key"].startswith("deliver.")]
    keys = [unique, "cc", unique]
    assert [(each.properties["headers"]["channel"], *summary(each)) for each in told] == [
        (1, f"deliver.{unique}", "", keys, 0, None, {"headers": {"CC": ["cc"]}}, b"1"),
        (1, f"deliver.{unique}", "", [unique], 0, None, {}, b"2"),
        (2, f"deliver.{unique}", "", keys, 1, None, {"headers": {"CC": ["cc"]}}, b"1"),
        (2, f"deliver.{unique}", "", [unique], 1, None, {}, b"2"),
    ]


def test_alike_messages_are_told_one_by_one(traced: str, witness: Witness, client: RawClient, unique: str) -> None:
    count = 300
    client.call("queue.declare", queue=unique, exclusive=True)
    client.call("basic.consume", queue=unique, no_ack=True)
    method = encode_method("basic.publish", routing_key=unique)
    client.socket.sendall(b"".join(client.content(1, method, b"%03d" % n, {}) for n in range(count)))
    assert [each.body for each in client.deliveries(count)] == [b"%03d" % n for n in range(count)]
    told = witness.told(traced)
    bodies = [b"%03d" % n for n in range(count)]
    assert [each.body for each in told if each["routing_key"] == "publish."] == bodies
    assert [each.body for each in told if each["routing_key"] == f"deliver.{unique}"] == bodies


def test_transactions_are_told_when_they_are_published(
    traced: str, witness: Witness, client: RawClient, unique: str
) -> None:
    client.call("queue.declare", queue=unique, exclusive=True)
    client.call("tx.select")
    client.publish(b"held", "", unique)
    client.quiet()
    assert [each.body for each in witness.told(traced)] == [b"held"]
    client.call("tx.commit")
    client.publish(b"undone", "", unique)
    client.call("tx.rollback")
    assert [each.body for each in witness.told(traced)] == [b"undone"]


def test_replies_are_published_but_not_delivered(traced: str, witness: Witness, client: RawClient, unique: str) -> None:
    client.call("queue.declare", queue=unique, exclusive=True)
    client.call("basic.consume", queue="amq.rabbitmq.reply-to", no_ack=True)
    client.publish(b"ask", "", unique, reply_to="amq.rabbitmq.reply-to")
    client.quiet()
    name = client.call("basic.get", 2, queue=unique, no_ack=True).properties["reply_to"]
    client.publish(b"answer", "", name, channel=2)
    client.read("basic.deliver")
    told = [summary(each) for each in witness.told(traced) if each.body in (b"ask", b"answer")]
    assert told == [
        ("publish.", "", [unique], None, [unique], {"reply_to": name}, b"ask"),
        (f"deliver.{unique}", "", [unique], 0, None, {"reply_to": name}, b"ask"),
        ("publish.", "", [name], None, [], {}, b"answer"),
    ]


def test_dead_letters_are_told_when_they_are_delivered(
    traced: str, witness: Witness, client: RawClient, unique: str
) -> None:
    client.call("queue.declare", queue=unique, exclusive=True)
    arguments = {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": unique}
    client.call("queue.declare", queue=f"{unique}-first", exclusive=True, arguments=arguments)
    client.call("basic.consume", queue=unique, no_ack=True)
    client.publish(b"dead", "", f"{unique}-first")
    client.read("basic.deliver")
    told = witness.told(traced)
    assert [(each["routing_key"], each.body) for each in told] == [
        ("publish.", b"dead"),
        (f"deliver.{unique}", b"dead"),
    ]
    death = told[1].properties["headers"]["properties"]["headers"]["x-death"][0]
    assert (death["queue"], death["reason"]) == (f"{unique}-first", "expired")


def test_what_the_firehose_tells_is_not_told_again(
    traced: str, witness: Witness, client: RawClient, unique: str
) -> None:
    """But a client's own publish to a queue of the firehose is."""
    client.call("queue.declare", queue=unique, exclusive=True)
    client.call("queue.bind", queue=unique, exchange="amq.rabbitmq.trace", routing_key="publish.amq.topic")
    client.publish(b"once", "amq.topic", unique)
    client.publish(b"direct", "", unique)
    for _ in range(2):
        while client.call("basic.get", queue=unique, no_ack=True).name != "basic.get-ok":
            pass
    told = [(each["routing_key"], each.body) for each in witness.told(traced)]
    assert sorted(told) == sorted(
        [("publish.amq.topic", b"once"), ("publish.", b"direct"), (f"deliver.{unique}", b"direct")]
    )


def test_headers_keep_their_types(traced: str, witness: Witness, client: RawClient, unique: str) -> None:
    headers = {"byte": Typed("b", 5), "time": Typed("T", 5), "octets": Typed("x", b"\xff"), "float": Typed("f", 0.5)}
    client.publish(b"", "", unique, headers=headers)
    client.quiet()
    (told,) = witness.told(traced)
    plain = {"byte": 5, "time": 5, "octets": b"\xff", "float": 0.5}
    assert told.properties["headers"]["properties"]["headers"] == plain


def test_a_large_body_is_told_whole(traced: str, witness: Witness, client: RawClient, unique: str) -> None:
    body = bytes(range(256)) * 2000
    client.publish(body, "", unique)
    client.quiet()
    assert [each.body for each in witness.told(traced)] == [body]


def test_deliveries_from_a_stream_are_told_with_their_offsets(
    traced: str, witness: Witness, client: RawClient, unique: str
) -> None:
    client.call("queue.declare", queue=unique, durable=True, arguments={"x-queue-type": "stream"})
    client.call("confirm.select")
    for body in (b"0", b"1"):
        client.publish(body, "", unique, headers={"a": 1} if body == b"1" else {})
        client.read("basic.ack")
    client.call("basic.qos", prefetch_count=10)
    client.call("basic.consume", queue=unique, arguments={"x-stream-offset": "first"})
    client.deliveries(2)
    told = [summary(each) for each in witness.told(traced) if each["routing_key"] == f"deliver.{unique}"]
    assert told == [
        (f"deliver.{unique}", "", [unique], 0, None, {"headers": {"x-stream-offset": 0}}, b"0"),
        (f"deliver.{unique}", "", [unique], 0, None, {"headers": {"a": 1, "x-stream-offset": 1}}, b"1"),
    ]
    client.call("queue.delete", queue=unique)
