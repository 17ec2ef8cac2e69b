"""Routing: how each exchange type, bindings and the default exchange route a message (pika)."""

from __future__ import annotations

from typing import Any

import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError

from .support import declare, drain, empty, get


@pytest.fixture
def channel(channel: BlockingChannel) -> BlockingChannel:
    """A channel with confirms: when a publish returns, the message is in its queues."""
    channel.confirm_delivery()
    return channel


def routed(channel: BlockingChannel, exchange: str, key: str, headers: dict[str, Any] | None = None) -> bool:
    try:
        channel.basic_publish(exchange, key, b"x", BasicProperties(headers=headers), mandatory=True)
    except UnroutableError:
        return False
    return True


def test_default_exchange_routes_by_queue_name(channel: BlockingChannel) -> None:
    queue = declare(channel)
    channel.basic_publish("", queue, b"hello")
    got = get(channel, queue)
    assert (got.body, got.method.exchange, got.method.routing_key) == (b"hello", "", queue)
    assert not routed(channel, "", queue + "x")


def test_direct(channel: BlockingChannel) -> None:
    one, two = declare(channel), declare(channel)
    keys = [f"{one}.a", f"{one}.b"]
    channel.queue_bind(one, "amq.direct", keys[0])
    for key in keys:
        channel.queue_bind(two, "amq.direct", key)
        channel.basic_publish("amq.direct", key, key.encode())
    assert drain(channel, one) == [keys[0].encode()]
    assert drain(channel, two) == [key.encode() for key in keys]
    assert not routed(channel, "amq.direct", keys[0].upper())


def test_fanout_ignores_the_key(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "fanout", auto_delete=True)
    queues = [declare(channel) for _ in range(3)]
    for queue in queues:
        channel.queue_bind(queue, unique, "whatever")
    channel.basic_publish(unique, "anything", b"all")
    assert [drain(channel, queue) for queue in queues] == [[b"all"]] * 3


TOPICS = [
    ("#", ["", "a", "a.b", "a.b.c"], []),
    ("*", ["a", "b"], ["", "a.b"]),
    ("a.*", ["a.b", "a.c"], ["a", "a.b.c", "b.a", "a."[:1]]),
    ("a.#", ["a", "a.b", "a.b.c"], ["b", "ab", "b.a"]),
    ("#.z", ["z", "a.z", "a.b.z"], ["z.a", "az"]),
    ("a.#.z", ["a.z", "a.b.z", "a.b.c.z", "a.a.z.z"], ["a", "z", "a.z.b"]),
    ("*.b.#", ["a.b", "x.b.c.d"], ["b", "b.b.c"[:1], "a.c.b"]),
    ("#.b.#", ["b", "a.b", "b.a", "a.b.c.d"], ["", "a", "ab.c"]),
    ("*.*", ["a.b"], ["a", "a.b.c"]),
    ("#.*", ["a", "a.b"], [""]),
    ("*.#.*", ["a.b", "a.b.c"], ["a", ""]),
    ("#.#", ["", "a", "a.b"], []),
    ("", [""], ["a"]),
    ("a..b", ["a..b"], ["a.b", "a.x.b"]),
    ("a.*.b", ["a..b", "a.x.b"], ["a.b"]),
    ("a*.b", ["a*.b"], ["ax.b"]),
    (".", ["."], ["", "a.", ".a", ".."]),
    ("a.", ["a."], ["a", "a.b", "a.."]),
    (".a", [".a"], ["a", "b.a", "..a"]),
    ("*.", ["a.", "."], ["a", "", "a.b"]),
    ("#.", [".", "a.", "a.b.", ".."], ["a", "a.b"]),
    ("*.*.*", ["..", "a..", "a.b.c"], [".", "a.b"]),
    ("#.a.#.a.#", ["a.a", "a.x.a", "a.a.a", ".a..a."], ["a", "x.a"]),
    ("#.#.#.x", ["x", "a.x", "a.b.c.d.x"], ["", "x.a"]),
    ("#.*.#", ["a", "a.b", "."], [""]),
    # in a routing key these are ordinary words
    ("a.b", ["a.b"], ["a.*", "a.#", "*.b", "#", "*.*"]),
    ("a.*", ["a.*", "a.#"], ["*", "#"]),
    ("#", ["#", "*", "a.#.b"], []),
    ("a.#.c", ["a.#.c", "a.*.c"], ["#.c", "a.#"]),
    ("#a", ["#a"], ["a", "#.a", "x.a"]),
    ("grün.*.日本", ["grün.x.日本", "grün.日本.日本"], ["gruen.x.日本", "grün.日本", "GRÜN.x.日本"]),
    ("a." * 127 + "b", ["a." * 127 + "b"], ["a." * 127 + "c", "a." * 126 + "b"]),
    ("*" + ".*" * 127, ["a" + ".a" * 127, "." * 127], ["a" + ".a" * 126, "." * 128]),
]


@pytest.mark.parametrize(("pattern", "hits", "misses"), TOPICS)
def test_topic(channel: BlockingChannel, unique: str, pattern: str, hits: list[str], misses: list[str]) -> None:
    channel.exchange_declare(unique, "topic", auto_delete=True)
    channel.queue_bind(declare(channel), unique, pattern)
    assert [key for key in hits if not routed(channel, unique, key)] == []
    assert [key for key in misses if routed(channel, unique, key)] == []


def test_topic_gives_a_queue_one_copy(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "topic", auto_delete=True)
    queue = declare(channel)
    for pattern in ("#", "a.*", "a.b", "*.b"):
        channel.queue_bind(queue, unique, pattern)
    channel.basic_publish(unique, "a.b", b"once")
    assert drain(channel, queue) == [b"once"]


def test_topic_unbinding_one_of_several(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "topic")
    queue = declare(channel)
    for pattern in ("a.#", "a.b"):
        channel.queue_bind(queue, unique, pattern)
    channel.queue_unbind(queue, unique, "a.b")
    assert routed(channel, unique, "a.b")
    channel.queue_unbind(queue, unique, "a.#")
    assert not routed(channel, unique, "a.b")
    channel.exchange_delete(unique)


HEADERS: list[tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]] = [
    ({"x-match": "all", "a": 1, "b": "two"}, [{"a": 1, "b": "two"}, {"a": 1, "b": "two", "c": 3}],
     [{"a": 1}, {"b": "two"}, {"a": 2, "b": "two"}, {}]),
    ({"x-match": "any", "a": 1, "b": "two"}, [{"a": 1}, {"b": "two", "z": 0}, {"a": 9, "b": "two"}],
     [{"a": 2}, {"c": 1}, {}]),
    ({"a": 1}, [{"a": 1}, {"a": 1, "b": 2}], [{"a": 2}, {"b": 1}]),
    ({"x-match": "all"}, [{}, {"a": 1}], []),
    ({"x-match": "any"}, [], [{}, {"a": 1}]),
    ({"x-match": "all", "a": None}, [{"a": 1}, {"a": "anything"}], [{"b": 1}]),
    ({"x-match": "all", "x-mine": 5, "a": 1}, [{"a": 1}], [{"x-mine": 5}]),
]


@pytest.mark.parametrize(("binding", "hits", "misses"), HEADERS)
def test_headers(
    channel: BlockingChannel, unique: str, binding: dict[str, Any], hits: list[dict[str, Any]],
    misses: list[dict[str, Any]],
) -> None:
    channel.exchange_declare(unique, "headers", auto_delete=True)
    channel.queue_bind(declare(channel), unique, "", binding)
    assert [each for each in hits if not routed(channel, unique, "", each)] == []
    assert [each for each in misses if routed(channel, unique, "", each)] == []


def test_headers_without_any_in_the_message(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "headers", auto_delete=True)
    channel.queue_bind(declare(channel), unique, "", {"a": 1})
    assert not routed(channel, unique, "", None)


def test_bindings_differ_by_arguments(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "headers")
    queue = declare(channel)
    for number in (1, 2):
        channel.queue_bind(queue, unique, "", {"n": number})
    channel.queue_unbind(queue, unique, "", {"n": 1})
    assert [routed(channel, unique, "", {"n": number}) for number in (1, 2)] == [False, True]
    channel.exchange_delete(unique)


def test_exchange_to_exchange(channel: BlockingChannel, unique: str) -> None:
    """A message passes through two exchanges, each of which uses the original routing key."""
    source, middle, last = f"{unique}a", f"{unique}b", f"{unique}c"
    for name, kind in ((source, "topic"), (middle, "direct"), (last, "fanout")):
        channel.exchange_declare(name, kind)
    channel.exchange_bind(middle, source, "a.#")
    channel.exchange_bind(last, middle, "a.b")
    queue = declare(channel)
    channel.queue_bind(queue, last)
    channel.basic_publish(source, "a.b", b"through")
    channel.basic_publish(source, "a.c", b"stopped")
    got = get(channel, queue)
    assert (got.body, got.method.exchange, got.method.routing_key) == (b"through", source, "a.b")
    assert empty(channel, queue)
    channel.exchange_unbind(middle, source, "a.#")
    assert not routed(channel, source, "a.b")
    for name in (source, middle, last):
        channel.exchange_delete(name)


def test_exchange_cycles_end_and_deliver_once(channel: BlockingChannel, unique: str) -> None:
    names = [f"{unique}{letter}" for letter in "abc"]
    queue = declare(channel)
    for name in names:
        channel.exchange_declare(name, "fanout")
        channel.queue_bind(queue, name)
    for at, name in enumerate(names):
        channel.exchange_bind(name, names[at - 1])
    channel.basic_publish(names[0], "", b"round")
    assert drain(channel, queue) == [b"round"]
    for name in names:
        channel.exchange_delete(name)


def test_alternate_exchange(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(f"{unique}alt", "fanout")
    channel.exchange_declare(unique, "direct", arguments={"alternate-exchange": f"{unique}alt"})
    chosen, rest = declare(channel), declare(channel)
    channel.queue_bind(chosen, unique, "known")
    assert not routed(channel, unique, "unknown")
    channel.queue_bind(rest, f"{unique}alt")
    for key in ("known", "unknown"):
        channel.basic_publish(unique, key, key.encode(), mandatory=True)
    assert (drain(channel, chosen), drain(channel, rest)) == ([b"known"], [b"unknown"])
    for name in (unique, f"{unique}alt"):
        channel.exchange_delete(name)


def test_deleting_a_queue_removes_its_bindings(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "fanout")
    channel.queue_declare(unique)
    channel.queue_bind(unique, unique)
    channel.queue_delete(unique)
    channel.queue_declare(unique)
    assert not routed(channel, unique, "")
    channel.queue_delete(unique)
    channel.exchange_delete(unique, if_unused=True)


def test_auto_delete_exchange_goes_with_its_last_binding(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "fanout", auto_delete=True)
    one, two = declare(channel), declare(channel)
    for queue in (one, two):
        channel.queue_bind(queue, unique)
    channel.queue_unbind(one, unique)
    channel.exchange_declare(unique, passive=True)
    channel.queue_unbind(two, unique)
    # the exchange is deleted, so another type may use the name
    channel.exchange_declare(unique, "topic")
    channel.exchange_delete(unique)


def test_auto_delete_exchange_goes_with_its_last_queue(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "fanout", auto_delete=True)
    channel.queue_bind(queue := declare(channel), unique)
    channel.queue_delete(queue)
    channel.exchange_declare(unique, "topic")
    channel.exchange_delete(unique)


def test_auto_delete_exchange_as_source_of_exchanges(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "fanout", auto_delete=True)
    channel.exchange_bind("amq.fanout", unique)
    channel.exchange_unbind("amq.fanout", unique)
    channel.exchange_declare(unique, "topic")
    channel.exchange_delete(unique)
