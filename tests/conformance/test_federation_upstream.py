"""x-federation-upstream, the exchange type of federation links: declaring it, and what it routes (raw, pika).

RabbitMQ needs the plugin rabbitmq_federation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel

from . import support
from .declaring import DECLARE, declare, delivered, refused
from .raw import RawClient, Typed

KIND = "x-federation-upstream"
OWN = {"cluster-name": "down", "vhost": "v"}


def hops(count: object, kind: str = "l") -> dict[str, Any]:
    return {"x-max-hops": Typed(kind, count)}


def arguments(count: int) -> dict[str, Any]:
    """Return the arguments of a link of RabbitMQ."""
    names = {"x-downstream-name": "down", "x-downstream-vhost": "v", "x-internal-purpose": "federation"}
    return {**hops(count), **names}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({}, "Argument x-max-hops missing"),
    "of 32 bits": (hops(1, "I"), "Argument x-max-hops must be of type long"),
    "text": ({"x-max-hops": "1"}, "Argument x-max-hops must be of type long"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_hops_that_are_no_long_number_are_refused(raw: RawClient, unique: str, what: str) -> None:
    given, text = REFUSED[what]
    raw.send("exchange.declare", exchange=unique, type=KIND, arguments=given)
    assert raw.read("channel.close").error == refused(text, DECLARE)


def test_a_link_declares_it_as_often_as_it_likes(raw: RawClient, unique: str) -> None:
    flags = {"durable": True, "auto_delete": True, "internal": True}
    for _ in range(2):
        declare(raw, unique, KIND, arguments=arguments(2), **flags)
    declare(raw, unique, KIND, arguments={**arguments(2), "x-downstream-name": "another"}, **flags)
    raw.call("exchange.declare", exchange=unique, passive=True)
    raw.call("exchange.delete", exchange=unique)


def test_other_hops_are_another_exchange(raw: RawClient, unique: str) -> None:
    declare(raw, unique, KIND, arguments=arguments(2))
    what = f"inequivalent arg 'x-max-hops' for exchange '{unique}' in vhost '/': received"
    for given, text in (
        (hops(3), "'3' but current is '2'"),
        ({}, "none but current is the value '2' of type 'long'"),
        ({"x-max-hops": "2"}, "'2' but current is '2'"),
    ):
        raw.send("exchange.declare", exchange=unique, type=KIND, arguments=given)
        assert raw.read("channel.close").error == refused(f"{what} {text}", DECLARE)
        raw.send("channel.close-ok")
        raw.call("channel.open")
    raw.call("exchange.delete", exchange=unique)


PASSING: dict[str, Any] = {
    "no history": None,
    "no array": "text",
    "a table": OWN,
    "nothing": [],
    "one hop": [{"cluster-name": "other", "vhost": "v"}],
    "the same broker's other virtual host": [{"cluster-name": "down", "vhost": "w"}],
    "a name that is no text": [{"cluster-name": 1, "vhost": "v"}],
    "octets in place of a name": [{"cluster-name": Typed("x", b"down"), "vhost": "v"}],
    "half a hop": [{"vhost": "v"}],
    "no hop at all": ["down"],
}
STAYING: dict[str, Any] = {
    "where it has been": [OWN],
    "where it has been before": [{}, OWN],
    "too many hops": [{"cluster-name": "a", "vhost": "v"}] * 3,
    "too much that is no hop": [1, 2, 3],
}


def history(value: object) -> Mapping[str, Any]:
    return {} if value is None else {"headers": {"a": 1, "x-received-from": value}}


@pytest.mark.parametrize("what", [*PASSING, *STAYING])
def test_what_may_go_on(raw: RawClient, unique: str, what: str) -> None:
    declare(raw, unique, KIND, arguments=arguments(3))
    queue = str(raw.call("queue.declare", exclusive=True)["queue"])
    raw.call("queue.bind", queue=queue, exchange=unique, routing_key="any", arguments={"x": "y"})
    found = delivered(raw, unique, "key", queue, **history((PASSING | STAYING)[what]))
    assert found == ([b"x"] if what in PASSING else [])
    raw.call("exchange.delete", exchange=unique)


@pytest.mark.parametrize("count", [0, -1])
def test_what_comes_from_here_goes_on_even_without_hops(raw: RawClient, unique: str, count: int) -> None:
    declare(raw, unique, KIND, arguments=hops(count))
    queue = str(raw.call("queue.declare", exclusive=True)["queue"])
    raw.call("queue.bind", queue=queue, exchange=unique)
    assert delivered(raw, unique, "key", queue) == [b"x"]
    assert delivered(raw, unique, "key", queue, **history([])) == []
    raw.call("exchange.delete", exchange=unique)


def test_without_names_it_knows_no_circles(raw: RawClient, unique: str) -> None:
    declare(raw, unique, KIND, arguments=hops(2))
    queue = str(raw.call("queue.declare", exclusive=True)["queue"])
    raw.call("queue.bind", queue=queue, exchange=unique)
    assert delivered(raw, unique, "key", queue, **history([OWN])) == [b"x"]
    raw.call("exchange.delete", exchange=unique)


def test_what_may_not_go_on_goes_to_the_alternate_exchange(raw: RawClient, unique: str) -> None:
    declare(raw, unique, KIND, arguments={**arguments(1), "alternate-exchange": "amq.fanout"})
    queues = [str(raw.call("queue.declare", exclusive=True)["queue"]) for _ in range(2)]
    raw.call("queue.bind", queue=queues[0], exchange=unique)
    raw.call("queue.bind", queue=queues[1], exchange="amq.fanout")
    assert delivered(raw, unique, "key", queues[1], **history([OWN])) == [b"x"]
    assert delivered(raw, unique, "key", queues[0]) == [b"x"]
    raw.call("exchange.delete", exchange=unique)


def test_all_that_a_link_does(channel: BlockingChannel, unique: str) -> None:
    """What RabbitMQ's links declare on their upstreams, by pika; which messages go down, and their headers."""
    upstream, internal, queue = unique, f"federation: {unique} -> down B", f"federation: {unique} -> down"
    purpose = {"x-internal-purpose": "federation"}
    channel.exchange_declare(upstream, "topic")
    channel.queue_declare(queue, durable=True, arguments=purpose)
    # pika uses 64 bits for numbers that do not fit into 32
    channel.exchange_declare(
        internal, KIND, durable=True, auto_delete=True, internal=True,
        arguments={"x-max-hops": 1 << 40, "x-downstream-name": "down", "x-downstream-vhost": "v", **purpose},
    )  # fmt: skip
    channel.queue_bind(queue, internal, "")
    bound = {"x-bound-from": [{"cluster-name": "down", "vhost": "v", "exchange": "v:x B", "hops": 1}]}
    channel.exchange_bind(internal, upstream, "a.*", bound)
    channel.confirm_delivery()
    for key, headers in (("a.b", None), ("b.a", None), ("a.c", {"x-received-from": [OWN]}), ("a.d", {"h": 1})):
        channel.basic_publish(upstream, key, key.encode(), BasicProperties(headers=headers))
    found = [support.get(channel, queue) for _ in range(2)]
    assert [(got.body, got.properties.headers) for got in found] == [(b"a.b", None), (b"a.d", {"h": 1})]
    assert support.empty(channel, queue)
    channel.exchange_unbind(internal, upstream, "a.*", bound)
    channel.basic_publish(upstream, "a.b", b"")
    assert support.empty(channel, queue)
    for _ in range(2):
        channel.exchange_delete(internal)
        channel.queue_delete(queue)
    channel.exchange_delete(upstream)
