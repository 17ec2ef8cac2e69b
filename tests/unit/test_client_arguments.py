"""Arguments of wrong types: the error names the expected type, and nothing is sent."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from leveret.client import Properties
from leveret.client.protocol.url import parse_url

from .client_in_memory import AsyncLine, BlockingLine, Case, Line


@pytest.mark.parametrize("line", [AsyncLine, BlockingLine])
@pytest.mark.parametrize(("call", "text"), [
    (lambda channel, delivery: channel.ack(delivery),
     "basic.ack: delivery_tag must be int, not Delivery: pass delivery.delivery_tag"),
    (lambda channel, delivery: channel.nack(delivery),
     "basic.nack: delivery_tag must be int, not Delivery: pass delivery.delivery_tag"),
    (lambda channel, delivery: channel.reject(delivery),
     "basic.reject: delivery_tag must be int, not Delivery: pass delivery.delivery_tag"),
    (lambda channel, delivery: channel.ack("1"), "basic.ack: delivery_tag must be int, not str"),
    (lambda channel, delivery: channel.publish("text", "", "tasks"),
     "publish: body must be bytes, not str: encode text first"),
    (lambda channel, delivery: channel.publish(None, "", "tasks"), "publish: body must be bytes, not NoneType"),
    (lambda channel, delivery: channel.publish(b"", None, "tasks"), "publish: exchange must be str, not NoneType"),
    (lambda channel, delivery: channel.publish(b"", "", b"tasks"), "publish: routing_key must be str, not bytes"),
    (lambda channel, delivery: channel.publish(b"", "", ["tasks"]), "publish: routing_key must be str, not list"),
    (lambda channel, delivery: channel.publish(b"", "", "tasks", {"priority": 1}),
     "publish: properties must be Properties or None, not dict"),
    (lambda channel, delivery: channel.publish(b"", "", "tasks", Properties(expiration=5000)),
     "publish: property expiration must be str, not int: milliseconds as text"),
    (lambda channel, delivery: channel.publish(b"", "", "tasks", Properties(headers=[])),
     "publish: property headers must be a dict, not list"),
    (lambda channel, delivery: channel.publish(b"", "", "tasks", Properties(timestamp=1.5)),
     "publish: property timestamp must be int, not float"),
    (lambda channel, delivery: channel.publish(b"", "", "tasks", Properties(headers={"a": {1: 2}})),
     "publish: property headers['a']: a key must be str, not int"),
    (lambda channel, delivery: channel.publish(b"", "", "tasks", Properties(headers={"a": [1, object()]})),
     "publish: property headers['a'][1] must be of a type that AMQP tables have, not object"),
    (lambda channel, delivery: channel.declare_queue("q", arguments={1: 2}),
     "queue.declare: arguments: a key must be str, not int"),
    (lambda channel, delivery: channel.declare_queue("q", arguments={"x-a": b"", "x-b": 1j}),
     "queue.declare: arguments['x-b'] must be of a type that AMQP tables have, not complex"),
    (lambda channel, delivery: channel.declare_queue(None), "queue.declare: queue must be str, not NoneType"),
    (lambda channel, delivery: channel.declare_queue("q", "exclusive"), "queue.declare: durable must be bool, not str"),
    (lambda channel, delivery: channel.declare_queue("q", arguments=["x-max-length"]),
     "arguments must be a dict or None, not list"),
    (lambda channel, delivery: channel.bind_queue("tasks", "amq.topic", 5),
     "queue.bind: routing_key must be str, not int"),
    (lambda channel, delivery: channel.get(b"tasks"), "basic.get: queue must be str, not bytes"),
    (lambda channel, delivery: channel.consume(5), "basic.consume: queue must be str, not int"),
    (lambda channel, delivery: channel.qos("10"), "basic.qos: prefetch_count must be int, not str"),
])  # fmt: skip
async def test_an_argument_of_a_wrong_type(call: Callable[[Any, Any], Any], text: str, line: type[Line]) -> None:
    """The error names the expected type, nothing is sent, and the channel stays usable."""
    case = await Case.confirming(line())
    delivery = await case.do(lambda: case.channel.get("tasks"))
    # compiled properties refuse such a value when they are made, in mypyc's words
    texts = rf"{re.escape(text)}|\w+ or None object expected; got \w+" if "property" in text else re.escape(text)
    with pytest.raises(TypeError, match=f"^({texts})"):
        await case.do(lambda: call(case.channel, delivery))
    assert not case.line.hear()
    assert case.channel.outstanding == 0
    case.channel.nack(delivery.delivery_tag)
    assert await case.take(4) == [b"1", b"2", b"3", b""]


def test_a_number_out_of_range() -> None:
    channel = BlockingLine().channel()
    for tag in (-1, 1 << 64):
        with pytest.raises(ValueError, match=r"basic\.ack: a number is negative or too large"):
            channel.ack(tag)
        with pytest.raises(ValueError, match=r"basic\.nack: a number is negative or too large"):
            channel.nack(tag)


def test_a_url_that_is_no_text() -> None:
    with pytest.raises(TypeError, match="a connection URL must be str, not bytes"):
        parse_url(b"amqp://localhost")  # type: ignore[arg-type]


