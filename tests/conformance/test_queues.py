"""Queues: how they are named, counted and purged, and when they are deleted (pika)."""

from __future__ import annotations

import re

import pika
import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from ..waiting import until
from .support import declare, drain, get, listen, ready, serve


@pytest.fixture
def channel(channel: BlockingChannel) -> BlockingChannel:
    """A channel with confirms: when a publish returns, the message is in its queues."""
    channel.confirm_delivery()
    return channel


def exists(channel: BlockingChannel, queue: str) -> bool:
    """Return whether a queue exists, asked on a separate channel because a negative answer closes it."""
    probe = channel.connection.channel()
    try:
        probe.queue_declare(queue, passive=True)
    except ChannelClosedByBroker:
        return False
    probe.close()
    return True


def test_server_named(channel: BlockingChannel) -> None:
    names = {declare(channel) for _ in range(5)}
    assert len(names) == 5
    assert all(re.fullmatch(r"amq\.gen-[A-Za-z0-9_-]{22}", name) for name in names)


def test_empty_name_is_the_last_declared(channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique, exclusive=True)
    channel.queue_bind("", "amq.direct", unique)
    channel.basic_publish("amq.direct", unique, b"one")
    assert get(channel, "").body == b"one"
    channel.basic_publish("amq.direct", unique, b"two")
    assert channel.queue_purge("").method.message_count == 1
    listen(channel, "")
    assert channel.queue_declare(unique, passive=True).method.consumer_count == 1
    last = declare(channel)
    assert channel.queue_delete("").method.message_count == 0
    assert not exists(channel, last)
    assert exists(channel, unique)


def test_empty_name_and_key_bind_by_the_queue_name(channel: BlockingChannel, unique: str) -> None:
    """If both queue and key are empty, the name of the channel's last queue is the routing key as well."""
    channel.queue_declare(unique, exclusive=True)
    channel.queue_bind("", "amq.direct", "")
    channel.basic_publish("amq.direct", unique, b"by name", mandatory=True)
    assert get(channel, unique).body == b"by name"


def test_a_passive_declare_also_counts_as_last(channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique, exclusive=True)
    declare(channel)
    channel.queue_declare(unique, passive=True)
    channel.queue_delete("")
    assert not exists(channel, unique)


def test_declare_counts(channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique, exclusive=True)
    for _ in range(3):
        channel.basic_publish("", unique, b"x")
    got = channel.queue_declare(unique, exclusive=True).method
    assert (got.queue, got.message_count, got.consumer_count) == (unique, 3, 0)
    # an unacknowledged message is not counted
    get(channel, unique, auto_ack=False)
    assert ready(channel, unique) == 2


def test_get(channel: BlockingChannel) -> None:
    queue = declare(channel)
    assert channel.basic_get(queue) == (None, None, None)
    for number in range(3):
        channel.basic_publish("", queue, b"%d" % number)
    got = [get(channel, queue, auto_ack=False) for _ in range(3)]
    assert [(each.body, each.method.message_count, each.method.delivery_tag) for each in got] == [
        (b"0", 2, 1), (b"1", 1, 2), (b"2", 0, 3)]


def test_properties_survive(channel: BlockingChannel) -> None:
    queue = declare(channel)
    sent = BasicProperties(
        content_type="application/json", content_encoding="gzip", delivery_mode=2, priority=4, correlation_id="c",
        reply_to="r", expiration="60000", message_id="m", timestamp=1700000000, type="t", user_id="guest", app_id="a",
        headers={"s": "text", "i": 1, "big": 2**40, "neg": -5, "yes": True, "none": None, "b": b"\x00\xff",
                 "list": [1, "two", [3]], "table": {"deep": {"deeper": "ü"}}})
    channel.basic_publish("", queue, "ünïcode".encode(), sent)
    got = get(channel, queue)
    assert got.properties.headers == sent.headers
    assert got.properties == sent
    assert got.body.decode() == "ünïcode"


@pytest.mark.parametrize("size", [0, 1, 131064, 131065, 1_000_003])
def test_bodies(channel: BlockingChannel, size: int) -> None:
    queue = declare(channel)
    body = bytes(range(251)) * (size // 251 + 1)
    channel.basic_publish("", queue, body[:size])
    assert get(channel, queue).body == body[:size]


def test_purge(channel: BlockingChannel) -> None:
    queue = declare(channel)
    for number in range(5):
        channel.basic_publish("", queue, b"%d" % number)
    held = get(channel, queue, auto_ack=False)
    assert channel.queue_purge(queue).method.message_count == 4
    assert channel.queue_purge(queue).method.message_count == 0
    # purging does not affect unacknowledged messages
    channel.basic_nack(held.method.delivery_tag)
    assert get(channel, queue).body == b"0"


def test_delete_counts_ready_messages(channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique)
    for _ in range(3):
        channel.basic_publish("", unique, b"x")
    assert channel.queue_delete(unique).method.message_count == 3
    assert channel.queue_delete(unique).method.message_count == 0


def test_exclusive_queue_goes_with_its_connection(url: str, channel: BlockingChannel, unique: str) -> None:
    for durable in (False, True):
        with pika.BlockingConnection(pika.URLParameters(url)) as owner:
            owner.channel().queue_declare(unique, exclusive=True, durable=durable)
        until(lambda: not exists(channel, unique))


def test_exclusive_queue_outlives_its_channel(channel: BlockingChannel, unique: str) -> None:
    second = channel.connection.channel()
    second.queue_declare(unique, exclusive=True)
    second.close()
    assert exists(channel, unique)


def test_auto_delete_queue_goes_with_its_last_consumer(channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique, auto_delete=True)
    tags = [channel.basic_consume(unique, lambda *_: None) for _ in range(2)]
    channel.basic_cancel(tags[0])
    assert exists(channel, unique)
    channel.basic_cancel(tags[1])
    assert not exists(channel, unique)


def test_auto_delete_queue_waits_for_a_first_consumer(channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique, auto_delete=True)
    channel.basic_publish("", unique, b"x")
    assert get(channel, unique).body == b"x"
    assert exists(channel, unique)
    channel.queue_delete(unique)


def test_auto_delete_queue_goes_with_the_channel_of_its_consumer(channel: BlockingChannel, unique: str) -> None:
    second = channel.connection.channel()
    second.queue_declare(unique, auto_delete=True)
    second.basic_consume(unique, lambda *_: None)
    second.close()
    until(lambda: not exists(channel, unique))


def test_queue_of_another_connection_is_shared(url: str, channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique, auto_delete=True)
    with pika.BlockingConnection(pika.URLParameters(url)) as elsewhere:
        second = elsewhere.channel()
        seen = listen(second, unique, auto_ack=True)
        channel.basic_publish("", unique, b"across")
        assert serve(second, seen, 1)[0].body == b"across"
    until(lambda: not exists(channel, unique))


def test_order_is_kept(channel: BlockingChannel) -> None:
    queue = declare(channel)
    for number in range(500):
        channel.basic_publish("", queue, b"%d" % number)
    assert drain(channel, queue) == [b"%d" % number for number in range(500)]
