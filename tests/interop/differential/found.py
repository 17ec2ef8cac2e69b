"""Scripts that once showed a defect, shrunk. Each is played on both brokers in every run."""

from __future__ import annotations

from ...conformance.raw import Typed
from .script import Script, step

__all__ = ["FOUND", "Typed"]

TO_Q2 = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q2"}
FOUND: dict[str, Script] = {
    "redeclared as another's": [
        step("1.1", "queue.declare", queue="q1", exclusive=True, auto_delete=True),
        step("1.1", "queue.declare", queue="q1"),
        step("2.1", "queue.declare", queue="q2"),
        step("1.1", "queue.declare", queue="q2", exclusive=True, durable=True),
    ],
    "unbinding another's queue": [
        step("2.2", "queue.declare", queue="q2", exclusive=True),
        step("1.2", "queue.unbind", queue="q2", exchange="amq.direct", routing_key="a.b"),
        step("2.2", "queue.bind", queue="q2", exchange="amq.direct", routing_key="a.b"),
        step("1.2", "queue.unbind", queue="q2", exchange="amq.direct", routing_key="a.b"),
    ],
    "the first of several mistakes": [
        step("1.1", "basic.publish", properties={"reply_to": "amq.rabbitmq.reply-to", "user_id": "x"}),
        step("1.1", "basic.publish", properties={"reply_to": "amq.rabbitmq.reply-to", "expiration": "x"}),
        step("1.1", "basic.publish", properties={"reply_to": "amq.rabbitmq.reply-to", "delivery_mode": 3}),
        step("1.1", "basic.publish", properties={"reply_to": "amq.rabbitmq.reply-to", "headers": {"CC": "x"}}),
        step("1.1", "basic.publish", properties={"user_id": "x", "expiration": "x"}),
        step("1.1", "basic.publish", properties={"user_id": "x", "delivery_mode": 3}),
        step("1.1", "basic.publish", properties={"user_id": "x", "headers": {"CC": "x"}}),
        step("1.1", "basic.publish", properties={"expiration": "x", "delivery_mode": 3}),
        step("1.1", "basic.publish", properties={"expiration": "x", "headers": {"CC": "x"}}),
        step("1.1", "basic.publish", properties={"delivery_mode": 3, "headers": {"CC": "x"}}),
        step("1.1", "basic.publish", properties={"headers": {"CC": "x", "BCC": 1}}),
        step("1.1", "basic.publish", exchange="missing", properties={"user_id": "x"}),
        step("1.1", "basic.publish", exchange="amq.rabbitmq.trace", properties={"user_id": "x"}),
        step("1.1", "basic.publish", exchange="missing", immediate=True),
        step("1.1", "basic.publish", immediate=True, properties={"user_id": "x"}),
        step("1.1", "basic.publish", exchange="amq.rabbitmq.trace", immediate=True),
    ],
    "a name the broker made up, declared again": [
        step("1.1", "queue.declare"),
        step("1.1", "queue.declare", queue="@gen1"),
        step("1.1", "queue.declare", queue="@gen1", auto_delete=True),
        step("1.1", "queue.declare", queue="@gen1", passive=True),
        step("1.1", "exchange.declare", exchange="amq.direct", type="direct", durable=True),
        step("1.1", "exchange.declare", exchange="amq.direct", type="direct"),
        step("1.1", "exchange.declare", exchange="amq.new", type="x-missing"),
        step("1.1", "exchange.declare", exchange="amq.new", type="direct", arguments={"alternate-exchange": 1}),
    ],
    "no queue, and another mistake": [
        step("1.2", "queue.declare", queue="q1"),
        step("1.1", "basic.consume", queue="q1", consumer_tag="c1", no_ack=True),
        step("1.1", "basic.consume", consumer_tag="c1"),
        step("1.1", "queue.bind", exchange="missing"),
        step("1.1", "queue.unbind", exchange="missing"),
    ],
    "line ends in names": [
        step("1.1", "exchange.declare", exchange="e\n1", type="topic"),
        step("1.1", "queue.declare", queue="q\r1"),
        step("1.1", "queue.bind", queue="q\r\n1", exchange="e1\n", routing_key="a"),
        step("1.1", "queue.bind", queue="q1", exchange="e\n1", routing_key="b"),
        step("1.1", "queue.bind", queue="q1", exchange="m\n1", routing_key="b"),
        step("1.1", "exchange.bind", source="e\n1", destination="amq.fanout"),
        step("1.1", "exchange.bind", source="e1", destination="m\n"),
        step("1.1", "queue.unbind", queue="q\n1", exchange="e\n1", routing_key="b"),
        step("1.1", "exchange.unbind", source="e1\n", destination="amq.fanout\r"),
        step("1.1", "basic.publish", exchange="e1\n", routing_key="a"),
        step("1.1", "basic.publish", routing_key="q1\n", mandatory=True),
        step("1.1", "basic.get", queue="q1\n"),
        step("1.1", "basic.consume", queue="q1\n"),
        step("1.1", "basic.consume", queue="q1", consumer_tag="c\n"),
        step("1.1", "basic.cancel", consumer_tag="c"),
        step("1.1", "queue.purge", queue="q1\n"),
        step("1.1", "queue.delete", queue="q1\n"),
        step("1.1", "exchange.delete", exchange="e1\n"),
        step("1.1", "queue.declare", queue="q1\n", passive=True),
        step("1.1", "exchange.declare", exchange="e1\n", passive=True),
    ],
    "expired behind the head": [
        step("2.1", "queue.declare", queue="q1", arguments=TO_Q2),
        step("2.1", "queue.declare", queue="q2"),
        step("1.1", "basic.publish", routing_key="q1"),
        step("1.1", "basic.publish", routing_key="q1", properties={"expiration": "0"}, count=2),
        step("1.1", "basic.publish", routing_key="q1"),
        step("2.2", "basic.get", queue="q1"),
        step("2.2", "basic.get", queue="q1"),
        step("2.2", "basic.get", queue="q2"),
    ],
    "names of wire types": [
        step("1.1", "queue.declare", queue="q1", arguments={"x-dead-letter-exchange": Typed("b", 3)}),
        step("1.1", "queue.declare", queue="q1", arguments={"x-single-active-consumer": Typed("f", 1.0)}),
    ],
}
