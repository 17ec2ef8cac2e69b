"""Delayed messages between leveret's clients and endpoints of NServiceBus, on leveret and on RabbitMQ alike.

`nservicebus.py` plays NServiceBus. Its names are fixed, so each test deletes what it declared.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial

import pika
import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel

from leveret.client import Properties, connect
from leveret.delay import (
    CONVENTIONAL,
    DIRECT,
    NSERVICEBUS,
    NSERVICEBUS_V2,
    DestinationMissing,
    Layout,
    Sender,
    received,
)
from leveret.delay.named import DELAY_HEADER

from ..shared import vhost
from .nservicebus import POISON_QUEUE, TIME_FORMAT, TIME_SENT, Endpoint, Infrastructure, Migration, refused

LAYOUTS = {1: NSERVICEBUS, 2: NSERVICEBUS_V2}
Start = Callable[..., Endpoint]


@pytest.fixture
def channel(url: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        yield connection.channel()


@pytest.fixture
def start(url: str) -> Iterator[Start]:
    """Start endpoints of a version, with unique names."""
    with ExitStack() as stack:

        def make(version: int, conventional: bool = True, name: str = "") -> Endpoint:
            connection = stack.enter_context(pika.BlockingConnection(pika.URLParameters(url)))
            endpoint = Endpoint(connection.channel(), name or f"Sales.{uuid.uuid4().hex[:8]}", version, conventional)
            stack.callback(endpoint.remove)
            endpoint.start()
            return endpoint

        yield make


@pytest.mark.parametrize("conventional", [True, False], ids=["conventional", "direct"])
@pytest.mark.parametrize("version", [1, 2])
async def test_ours_to_theirs(url: str, start: Start, version: int, conventional: bool) -> None:
    """Declared by them, bound and sent by us; they find the headers that they need, and only they see them."""
    layout = LAYOUTS[version]
    theirs = start(version, conventional)
    async with await connect(url, reconnect=False) as connection:
        routing = CONVENTIONAL if conventional else DIRECT
        async with Sender(connection, layout, routing) as sender:
            sent = time.time()
            properties = Properties(message_id="m1", headers={"mine": "T"})
            await sender.send(b"late", theirs.name, 2.5, properties)
            await sender.send(b"now", theirs.name, 0, properties)
    first, second = theirs.receive(), theirs.receive()
    assert time.time() >= sent + 3  # whole seconds, rounded up
    assert [first.body, second.body] == [b"now", b"late"]
    assert [each.raw[DELAY_HEADER] for each in (first, second)] == [0, 3]
    written = datetime.strptime(second.headers[TIME_SENT], TIME_FORMAT).replace(tzinfo=UTC)
    assert sent - 1 <= written.timestamp() <= time.time()
    assert _own(second.headers) == {"mine"}
    assert second.routing_key == layout.routing_key(3, theirs.name)
    assert second.exchange == f"{theirs.delays.prefix}delay-delivery"


def _own(headers: dict[str, object]) -> set[str]:
    """Return the application's headers: without the transport's, and without x-last-death-*, which it leaves in."""
    return {name for name in headers if not name.startswith(("NServiceBus.", "x-last-death-"))}


@pytest.mark.parametrize("version", [1, 2])
async def test_theirs_to_ours(url: str, start: Start, channel: BlockingChannel, version: int) -> None:
    """They bind our queue before they send, like any endpoint without knowledge of delays."""
    layout, theirs = LAYOUTS[version], start(version, conventional=False)
    ours = f"ours-{version}.with.dots"
    channel.queue_declare(ours, auto_delete=True)
    sent = time.time()
    theirs.send(b"x", ours, 3, {"mine": 1})
    async with await connect(url, reconnect=False) as connection:
        reading = await connection.channel()
        delivery = await anext(await reading.consume(ours, no_ack=True))
        assert time.time() >= sent + 3
        headers = received(delivery.properties, DELAY_HEADER).headers or {}
        assert headers.keys() == {"mine", "NServiceBus.MessageId", TIME_SENT}  # no headers of the path
        assert delivery.properties.headers is not None
        assert delivery.properties.headers[DELAY_HEADER] == 3
        deaths = delivery.properties.headers["x-death"]
        assert [(each["queue"], each["count"], each["reason"]) for each in deaths] == [  # type: ignore[index,union-attr,call-overload]
            (layout.level_name(0), 1, "expired"),
            (layout.level_name(1), 1, "expired"),
        ]


@pytest.mark.parametrize("version", [1, 2])
async def test_each_declares_over_the_other(url: str, start: Start, version: int) -> None:
    """Every endpoint and every sender declares everything at its start: no declaration is refused, in either order."""
    layout = LAYOUTS[version]
    async with await connect(url, reconnect=False) as connection:
        start(version)
        await layout.declare(await connection.channel())
        second = start(version)
        second.delays.tear_down(second.channel)
        await layout.declare(await connection.channel())
        second.start()


@pytest.mark.parametrize("version", [1, 2])
def test_nobody_there(start: Start, url: str, version: int) -> None:
    """A send to a missing destination fails with 404, before anything is published."""
    for conventional, kind in ((True, "exchange"), (False, "queue")):
        theirs = start(version, conventional)
        code, text = refused(theirs.channel, partial(theirs.send, b"x", "no-such-endpoint", 5))
        assert (code, text) == (404, f"NOT_FOUND - no {kind} 'no-such-endpoint' in vhost '{vhost(url)}'")
        theirs.channel = theirs.channel.connection.channel()
        level = theirs.delays.level(2)
        assert theirs.channel.queue_declare(level, passive=True).method.message_count == 0


async def test_nobody_there_for_us(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        for routing in (CONVENTIONAL, DIRECT):
            async with Sender(connection, NSERVICEBUS, routing) as sender:
                with pytest.raises(DestinationMissing, match="no-such-endpoint"):
                    await sender.send(b"x", "no-such-endpoint", 5)


def test_migration(start: Start) -> None:
    """Their tool moves v1's messages to v2, with passive declarations, basic.get on level queues, and acks."""
    old = start(1)
    new = start(2, name=f"{old.name}.v2")
    due = {}
    for delay in (2, 5, 1000, 2**27 + 1):
        due[delay] = time.time() + delay
        old.send(str(delay).encode(), new.name, delay)
    strange = BasicProperties(headers={"no": "delay"})
    old.publish(*old.delays.route(600, new.name), b"poison", strange)
    waiting = {level: _count(old, level) for level in (1, 2, 9, 27)}
    assert waiting == {1: 1, 2: 1, 9: 2, 27: 1}
    migration = Migration(new.channel, new.bind)
    migration.run()
    assert (migration.moved, migration.poisonous) == (4, 1)
    assert [_count(old, level) for level in range(28)] == [0] * 28
    assert (_count(new, 9), _count(new, 26) + _count(new, 27)) == (1, 1)
    for delay in (2, 5):
        assert new.receive().body == str(delay).encode()
        assert time.time() >= due[delay] - 0.5  # it rounds to the nearest second
    assert new.channel.queue_delete(POISON_QUEUE).method.message_count == 1


def _count(endpoint: Endpoint, level: int) -> int:
    name = endpoint.delays.level(level)
    return int(endpoint.channel.queue_declare(name, passive=True).method.message_count)


def test_teardown(start: Start, channel: BlockingChannel) -> None:
    """When it is no longer used, in their order: the delivery exchange first, while others are bound to it."""
    theirs = start(1)
    theirs.delays.tear_down(theirs.channel)
    for name in (theirs.delays.level(27), theirs.delays.level(0)):
        for is_there in (_has_queue, _has_exchange):
            assert refused(channel, partial(is_there, channel, name))[0] == 404
            channel = channel.connection.channel()


def _has_queue(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, passive=True)


def _has_exchange(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, passive=True)


@pytest.mark.parametrize(("one", "other"), [(1, 2), (2, 1)])
def test_both_versions_side_by_side(start: Start, one: int, other: int) -> None:
    """An endpoint before its upgrade and one after it delay for each other on one broker."""
    first, second = start(one), start(other)
    first.send(b"to the second", second.name, 1)
    second.send(b"to the first", first.name, 1)
    # each bound the other to the delivery exchange of the sender's version
    assert first.receive().body == b"to the first"
    assert second.receive().body == b"to the second"


@pytest.mark.parametrize("layout", [NSERVICEBUS, NSERVICEBUS_V2], ids=lambda layout: layout.prefix)
def test_arguments_are_the_same(layout: Layout) -> None:
    """Down to the types: clients of 32-bit delays and ours must not be refused over each other's declarations."""
    theirs = Infrastructure(2 if "v2" in layout.prefix else 1)
    for level in range(28):
        assert layout.level_name(level) == theirs.level(level)
        assert layout.level_arguments(level) == theirs.arguments(level)
        seconds = 1 << level
        assert (layout.entrance(seconds), layout.routing_key(seconds, "a.b")) == theirs.route(seconds, "a.b")


def test_a_forwarded_message_is_delayed_again(start: Start) -> None:
    """A received message is sent on with another delay, as sagas do; the old hops are not taken for a cycle."""
    theirs = start(2)
    theirs.send(b"round", theirs.name, 1)
    seen = []
    for _ in range(3):
        seen.append(theirs.receive())
        theirs.send(seen[-1].body, theirs.name, 1, seen[-1].headers)
    assert [each.body for each in seen] == [b"round"] * 3
    assert seen[2].raw.keys() == seen[1].raw.keys()  # headers do not grow from round to round
    assert [len(each.raw["x-death"]) for each in seen] == [1, 1, 1]


@pytest.mark.parametrize("version", [1, 2])
def test_a_removed_endpoint_stops_nobody(broker: str, version: int) -> None:
    """NServiceBus.RabbitMQ #1407: on RabbitMQ the messages of a removed endpoint block the last level for all.

    There are more of them here than RabbitMQ tries at a time, and they are due before the others'. With version 1
    RabbitMQ would drop them (#367, #1034); leveret keeps them with either version.
    """
    with pika.BlockingConnection(pika.URLParameters(broker)) as connection:
        gone, there = (Endpoint(connection.channel(), name, version) for name in ("gone", "there"))
        for endpoint in (gone, there):
            endpoint.start()
        for _ in range(50):
            gone.send(b"never", "gone", 1)
        gone.channel.exchange_delete("gone")
        there.send(b"in time", "there", 1)
        assert there.receive().body == b"in time"
        # an endpoint that returns gets its messages
        gone.start()
        assert [gone.receive().body for _ in range(50)] == [b"never"] * 50
        there.channel.queue_delete("there")
        there.channel.exchange_delete("there")
        gone.remove()


def test_the_longest_delay_is_taken(start: Start) -> None:
    """2^28-1 seconds go to the top level, whose time to live has 38 bits."""
    theirs = start(1)
    theirs.send(b"x", theirs.name, timedelta(seconds=2**28 - 1).total_seconds())
    assert [_count(theirs, level) for level in (27, 26, 0)] == [1, 0, 0]
