"""kill -9 on either side of a link between two leveret brokers, orderly stops, and broken connections: no message is
lost or doubled.

Messages are persistent and confirmed by the upstream. They stay in the downstream's queue until the end, so that
duplicates are seen. An unconfirmed message, whose broker died, may be there or not.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from leveret.client import ClientError, Connection, connect

from .. import waiting
from .federated import EXCHANGE, PERSISTENT, QUEUE, Net, Node, Relay

KILLS = 4
BURST = 1000


class Stream:
    """A publisher that goes on after crashes, and publishes each body once."""

    def __init__(self, upstream: Node) -> None:
        self.attempted: list[bytes] = []
        self.confirmed: set[bytes] = set()
        self._upstream = upstream

    async def burst(self, amount: int) -> None:
        """Publish `amount` messages; return when all are confirmed, or the broker is gone."""
        try:
            async with await connect(self._upstream.process.url, reconnect=False) as connection:
                channel = await connection.channel()
                await channel.confirm_select()
                futures = {}
                for _ in range(amount):
                    body = b"%d" % len(self.attempted)
                    self.attempted.append(body)
                    futures[body] = channel.publish(body, EXCHANGE, "a.b", PERSISTENT)
                    await channel.drain()
                await asyncio.gather(*futures.values(), return_exceptions=True)
                self.confirmed |= {body for body, future in futures.items() if future.exception() is None}
        except ClientError:
            pass


async def until(is_so: Callable[[], bool]) -> None:
    """Poll a broker until `is_so()`, without blocking the event loop."""
    await asyncio.to_thread(waiting.until, is_so)


def status(node: Node) -> dict[str, object]:
    [link] = node.links()
    return link


async def linked(down: Node) -> None:
    """Return when the link runs and has all its bindings."""
    await until(lambda: has_bound(status(down)))


def has_bound(link: dict[str, object]) -> bool:
    return link["status"] == "running" and link["bindings"] != 0 and link["unbound"] == 0


async def midstream(stream: Stream, down: Node, crossed: int) -> asyncio.Task[None]:
    """Begin to publish; return when `crossed` messages have crossed the link, or all are published."""
    before = int(str(status(down)["messages"]))
    publishing = asyncio.create_task(stream.burst(4 * BURST))
    await until(lambda: int(str(status(down)["messages"])) >= before + crossed or publishing.done())
    return publishing


async def taken(node: Node, wanted: set[bytes]) -> list[bytes]:
    """Return the contents of the inbox, in order, once all wanted messages have arrived."""
    async with await connect(node.process.url, reconnect=False) as connection:
        channel = await connection.channel()
        consumer = await channel.consume(QUEUE, no_ack=True)
        found: list[bytes] = []
        missing = set(wanted)
        while missing:
            found.append((await anext(consumer)).body)
            missing.discard(found[-1])
        return found


async def checked(stream: Stream, up: Node, down: Node) -> None:
    """Check that all confirmed messages are downstream, none twice, in the order of publishing."""
    await linked(down)
    last = Stream(up)
    last.attempted = stream.attempted
    while not last.confirmed:
        await last.burst(1)
    found = await taken(down, stream.confirmed | last.confirmed)
    lost = stream.confirmed - set(found)
    twice = [body for body, times in Counter(found).items() if times > 1]
    assert (len(lost), len(twice)) == (0, 0), (sorted(lost)[:5], twice[:5])
    assert set(found) <= set(stream.attempted)
    assert found == sorted(found, key=int)
    assert len(stream.confirmed) > BURST


@pytest.fixture
async def net(tmp_path: Path) -> AsyncIterator[Net]:
    """The nodes up and down, without federation."""
    async with Net(tmp_path, "up", "down") as net:
        yield net


async def federate(up: Node, down: Node, url: str = "") -> None:
    down.follow(url or up)
    await (await down.open()).close()
    await linked(down)


@pytest.mark.parametrize("victim", ["up", "down", "either"])
async def test_kills_in_a_stream_of_messages(net: Net, victim: str, seed: int) -> None:
    up, down = net.nodes
    await federate(up, down)
    generator, stream, hits = random.Random(seed), Stream(up), 0
    for number in range(KILLS):
        publishing = await midstream(stream, down, generator.randrange(1, BURST // 2))
        hits += not publishing.done()
        name = victim if victim != "either" else ("up", "down")[number % 2]
        [node] = [each for each in net.nodes if each.name == name]
        node.process.kill()
        node.process.start()
        await publishing
        await linked(down)
    assert hits >= KILLS // 2, "kills came too late to hit anything"
    await stream.burst(BURST)
    await checked(stream, up, down)


async def test_an_outage_of_the_downstream_is_made_up_for(net: Net) -> None:
    """Messages collect in the upstream queue; bindings that change meanwhile are right afterwards."""
    up, down = net.nodes
    await federate(up, down)
    stream = Stream(up)
    await stream.burst(BURST)
    down.process.kill()
    await stream.burst(5 * BURST)
    down.process.start()
    await checked(stream, up, down)


@pytest.mark.parametrize("victim", ["up", "down"])
async def test_orderly_stops_in_a_stream_of_messages(net: Net, victim: str) -> None:
    """The upstream queue stays, and messages under way arrive once."""
    up, down = net.nodes
    await federate(up, down)
    stream = Stream(up)
    for _ in range(2):
        publishing = await midstream(stream, down, 10)
        [node] = [each for each in net.nodes if each.name == victim]
        assert await asyncio.to_thread(node.process.stop) == 0
        assert "internal error" not in node.process.output
        node.process.start()
        await publishing
        await linked(down)
    await stream.burst(BURST)
    await checked(stream, up, down)


@pytest.mark.parametrize("way", ["cut", "stall"])
async def test_a_line_that_breaks(net: Net, way: str) -> None:
    up, down = net.nodes
    async with Relay(up.process.port) as relay:
        await federate(up, down, relay.url + "?heartbeat=1")
        stream = Stream(up)
        for _ in range(2):
            publishing = await midstream(stream, down, 10)
            getattr(relay, way)()
            await publishing
            await stream.burst(2 * BURST)
            await until(lambda: status(down)["status"] != "running")
            assert status(down)["error"]
            relay.mend()
            await linked(down)
        await checked(stream, up, down)


async def test_a_queue_that_is_full_refuses_and_gets_it_later(net: Net) -> None:
    """With reject-publish, a nack downstream becomes a nack upstream, so the message waits in the upstream queue."""
    up, down = net.nodes
    down.follow(up)
    async with await connect(down.process.url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.declare_exchange(EXCHANGE)
        await channel.declare_queue(QUEUE, arguments={"x-max-length": 10, "x-overflow": "reject-publish"})
        await channel.bind_queue(QUEUE, EXCHANGE, "#")
        await linked(down)
        stream = Stream(up)
        await stream.burst(2 * BURST)
        found = Counter[bytes]()
        consumer = await channel.consume(QUEUE)
        while set(found) != stream.confirmed:
            delivery = await anext(consumer)
            found[delivery.body] += 1
            channel.ack(delivery.delivery_tag)
        assert set(found.values()) == {1}


async def until_blocked(connection: Connection) -> None:
    """Wait until a publisher of the test is blocked by the alarm."""
    blocked = asyncio.Event()
    connection.on_blocked(lambda reason: blocked.set() if reason else None)
    channel = await connection.channel()
    channel.publish(b"", "", "nowhere")
    await blocked.wait()


async def test_an_alarm_downstream_holds_the_link(net: Net) -> None:
    up, down = net.nodes
    await federate(up, down)
    stream = Stream(up)
    await stream.burst(BURST)
    down.call("set_disk_free_limit", limit="1000TB")
    async with await connect(down.process.url, reconnect=False) as connection:
        await until_blocked(connection)
    await stream.burst(5 * BURST)
    assert int(str(status(down)["messages"])) < len(stream.confirmed)
    down.call("set_disk_free_limit", limit="1MB")
    await checked(stream, up, down)
