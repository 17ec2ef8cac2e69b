"""The rules of sending with a delay, on leveret and on RabbitMQ, with and without asyncio."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from leveret.client import (
    BlockingConnection,
    ChannelClosed,
    Connection,
    ConnectionClosed,
    Delivery,
    Nacked,
    Properties,
    Unroutable,
    connect,
)
from leveret.delay import (
    CONVENTIONAL,
    DIRECT,
    NSERVICEBUS,
    BlockingSender,
    DestinationMissing,
    Layout,
    RoutingTopology,
    Sender,
    instant,
    received,
)

from .delayed import ANSWER_S, Ledger, counts, remove, utc

FINE = Layout("sending", unit_ms=1, levels=14)
SECONDS = dataclasses.replace(NSERVICEBUS, prefix="sending.s")

WRONG = [
    ({"delay": -1}, ValueError, "must not be negative"),
    ({"delay": timedelta(microseconds=-1)}, ValueError, "must not be negative"),
    ({"delay": math.nan}, ValueError, "finite"),
    ({"delay": math.inf}, ValueError, "finite"),
    ({"delay": 268_435_456}, ValueError, "too long"),
    ({"delay": timedelta(seconds=268_435_455, microseconds=1)}, ValueError, "too long"),
    ({"at": datetime(2500, 1, 1, tzinfo=UTC)}, ValueError, "too long"),
    ({"at": datetime(2030, 1, 1)}, TypeError, "time zone"),  # noqa: DTZ001
    ({}, ValueError, "either a delay or a time"),
    ({"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}, ValueError, "either a delay or a time"),
    ({"delay": 1, "properties": Properties(expiration="60000")}, ValueError, "must not have an expiration"),
]


async def queue(connection: Connection, name: str) -> None:
    await (await connection.channel()).declare_queue(name, auto_delete=False)


async def gone(connection: Connection, *names: str) -> None:
    channel = await connection.channel()
    for name in names:
        await channel.delete_queue(name)
        await channel.delete_exchange(name)
    await channel.close()


async def next_of(connection: Connection, name: str) -> Delivery:
    """Return the next message of a queue, however long it takes."""
    async with await connection.channel() as channel, asyncio.timeout(ANSWER_S):
        return await anext(await channel.consume(name, no_ack=True))


async def test_what_is_wrong_is_told_before_anything_is_sent(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        await queue(connection, "sending.wrong")
        async with Sender(connection, SECONDS) as sender:
            for arguments, error, text in WRONG:
                with pytest.raises(error, match=text):
                    await sender.send(b"x", "sending.wrong", **arguments)  # type: ignore[arg-type]
            for destination, text in (("", "needs a destination"), ("d" * 200, "too long: 200 bytes")):
                with pytest.raises(ValueError, match=text):
                    await sender.send(b"x", destination, 1)
            assert await counts(connection, SECONDS) == {}
            await sender.send(b"right", "sending.wrong", 0)
        assert (await next_of(connection, "sending.wrong")).body == b"right"
        await remove(connection, SECONDS)
        await gone(connection, "sending.wrong")


def test_nor_does_the_blocking_one_send_what_is_wrong(url: str) -> None:
    with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
        channel.declare_queue("sending.wrong2")
        with BlockingSender(connection, SECONDS) as sender:
            for arguments, error, text in WRONG:
                with pytest.raises(error, match=text):
                    sender.send(b"x", "sending.wrong2", **arguments)  # type: ignore[arg-type]
            levels = [channel.declare_queue(SECONDS.level_name(level), passive=True) for level in range(28)]
            assert {level.message_count for level in levels} == {0}
            sender.send(b"right", "sending.wrong2", timedelta(0))
        delivery = channel.get("sending.wrong2", no_ack=True)
        assert delivery is not None
        assert delivery.body == b"right"
        channel.delete_queue("sending.wrong2")


async def test_a_delay_is_waited_for_in_the_levels_of_its_digits_only(url: str) -> None:
    """The highest level first: 10 s are published to level 3, and nothing waits above or below it."""
    async with await connect(url, reconnect=False) as connection:
        await queue(connection, "sending.level")
        async with Sender(connection, SECONDS) as sender:
            for delay in (10, timedelta(seconds=9, microseconds=1), 9.2):
                await sender.send(b"x", "sending.level", delay)
            assert await counts(connection, SECONDS) == {3: 3}
            await sender.send(b"x", "sending.level", 268_435_455)
            await sender.send(b"x", "sending.level", at=datetime.now(UTC) + timedelta(days=365))
            assert await counts(connection, SECONDS) == {3: 3, 24: 1, 27: 1}
            channel = await connection.channel()
            delivery = await channel.get(SECONDS.level_name(3))
            assert delivery is not None
            assert delivery.routing_key == SECONDS.routing_key(10, "sending.level")
            assert delivery.properties.delivery_mode == 2
        await remove(connection, SECONDS)
        await gone(connection, "sending.level")


async def test_times_and_spans_come_when_they_are_due(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        await queue(connection, "sending.times")
        ledger = Ledger()
        async with Sender(connection, FINE) as sender:

            async def send(delay: timedelta | float | None = None, at: datetime | None = None) -> None:
                name = f"sending.times-{len(ledger.due)}"
                span = delay.total_seconds() if isinstance(delay, timedelta) else delay or 0
                ledger.due[name] = at.timestamp() if at is not None else time.time() + span
                await sender.send(name.encode(), "sending.times", delay, Properties(message_id=name), at=at)

            await asyncio.gather(
                send(0.7), send(timedelta(milliseconds=650)), send(0), send(0.0101), send(1),
                send(at=utc(time.time() + 0.8)), send(at=datetime.now(UTC) - timedelta(days=1)),
                send(at=datetime.now(UTC).astimezone() + timedelta(microseconds=300_100)),
            )  # fmt: skip
            await ledger.collect(connection, "sending.times")
        assert ledger.early == []
        assert sorted(ledger.arrived) == sorted(ledger.due)
        await remove(connection, FINE)
        await gone(connection, "sending.times")


async def test_no_delay_takes_no_hop(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        await queue(connection, "sending.zero")
        async with Sender(connection, FINE) as sender:
            await sender.send(b"x", "sending.zero", 0)
        delivery = await next_of(connection, "sending.zero")
        assert delivery.exchange == FINE.delivery_exchange
        assert "x-death" not in (delivery.properties.headers or {})
        await remove(connection, FINE)
        await gone(connection, "sending.zero")


async def test_the_application_sees_no_hops_and_may_send_on(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        await queue(connection, "sending.hops")
        layout = dataclasses.replace(FINE, delay_header="delay-ms")
        async with Sender(connection, layout) as sender:
            sent = Properties(message_id="m", headers={"mine": 1})
            await sender.send(b"x", "sending.hops", 0.003, sent)
            delivery = await next_of(connection, "sending.hops")
            headers = delivery.properties.headers or {}
            assert (headers["delay-ms"], "x-death" in headers) == (3, True)
            seen = received(delivery.properties, "delay-ms").headers or {}
            assert [name for name in seen if name.startswith("x-")] == []
            assert seen["mine"] == 1
            await sender.send(b"y", "sending.hops", 0.002, delivery.properties)
            again = await next_of(connection, "sending.hops")
            deaths = (again.properties.headers or {})["x-death"]
            assert isinstance(deaths, list)
            assert len(deaths) == 1, "the hops of the first delay are not told by the second one's message"
        await remove(connection, FINE)
        await gone(connection, "sending.hops")


@pytest.mark.parametrize("routing", [DIRECT, CONVENTIONAL])
async def test_a_destination_without_delays_of_its_own_is_bound(url: str, routing: RoutingTopology) -> None:
    name = f"sending.bound.{routing.value}"
    async with await connect(url, reconnect=False) as connection:
        await queue(connection, name)
        if routing is CONVENTIONAL:
            channel = await connection.channel()
            await channel.declare_exchange(name, kind="fanout")
            await channel.bind_queue(name, name)
        async with Sender(connection, FINE, routing) as sender:
            await sender.send(b"x", name, 0.005)
        assert (await next_of(connection, name)).body == b"x"
        await remove(connection, FINE)
        await gone(connection, name)


@pytest.mark.parametrize("routing", [DIRECT, CONVENTIONAL])
async def test_a_destination_that_does_not_exist_is_an_error(url: str, routing: RoutingTopology) -> None:
    async with await connect(url, reconnect=False) as connection:
        await queue(connection, "sending.exists")
        async with Sender(connection, FINE, routing) as sender:
            for _ in range(2):
                with pytest.raises(DestinationMissing, match=r"'sending\.nobody' does not exist") as missing:
                    await sender.send(b"x", "sending.nobody", 10)
                assert missing.value.destination == "sending.nobody"
            assert await counts(connection, FINE) == {}
            if routing is DIRECT:
                await sender.send(b"x", "sending.exists", 0.001)
                await next_of(connection, "sending.exists")
        await remove(connection, FINE)
        await gone(connection, "sending.exists")


async def test_names_with_dots_do_not_get_each_others_messages(url: str) -> None:
    names = ["sending.dots", "sending.dots.b", "sending.c.dots"]
    async with await connect(url, reconnect=False) as connection:
        for name in names:
            await queue(connection, name)
        async with Sender(connection, FINE) as sender:
            for name in names:
                await sender.send(name.encode(), name, 0.003)
        for name in names:
            assert (await next_of(connection, name)).body == name.encode()
            assert (await (await connection.channel()).declare_queue(name, passive=True)).message_count == 0
        await remove(connection, FINE)
        await gone(connection, *names)


async def test_a_full_level_refuses(url: str) -> None:
    full = dataclasses.replace(FINE, queue_arguments=(("x-max-length", 1), ("x-overflow", "reject-publish")))
    async with await connect(url, reconnect=False) as connection:
        await queue(connection, "sending.full")
        async with Sender(connection, full) as sender:
            await sender.send(b"x", "sending.full", 8.192)
            with pytest.raises(Nacked):
                await sender.send(b"x", "sending.full", 8.192)
        with BlockingConnection(url, reconnect=False) as blocking, BlockingSender(blocking, full) as sender2:
            with pytest.raises(Nacked):
                sender2.send(b"x", "sending.full", 8.192)
            sender2.send(b"x", "sending.full", 0)
        await remove(connection, full)
        await gone(connection, "sending.full")


async def test_a_level_that_has_lost_its_queue_returns_the_message(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        await queue(connection, "sending.lost")
        async with Sender(connection, FINE) as sender:
            await (await connection.channel()).delete_queue(FINE.level_name(13))
            with pytest.raises(Unroutable):
                await sender.send(b"x", "sending.lost", 10)
            await sender.send(b"x", "sending.lost", 0.001)
        await remove(connection, FINE)
        await gone(connection, "sending.lost")


async def test_levels_that_somebody_deleted_fail_one_send_and_are_declared_again(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        await queue(connection, "sending.again")
        with BlockingConnection(url, reconnect=False) as blocking, BlockingSender(blocking, FINE) as blocking_sender:
            async with Sender(connection, FINE) as sender:
                await (await connection.channel()).delete_exchange(FINE.level_name(3))
                with pytest.raises(ChannelClosed, match="no exchange"):
                    await sender.send(b"x", "sending.again", 0.008)
                await sender.send(b"1", "sending.again", 0.008)
                assert (await next_of(connection, "sending.again")).body == b"1"
            await (await connection.channel()).delete_exchange(FINE.level_name(3))
            with pytest.raises(ChannelClosed, match="no exchange"):
                blocking_sender.send(b"x", "sending.again", 0.008)
            blocking_sender.send(b"2", "sending.again", 0.008)
        assert (await next_of(connection, "sending.again")).body == b"2"
        await remove(connection, FINE)
        await gone(connection, "sending.again")


async def test_thousands_may_send_at_once_and_some_may_give_up(url: str) -> None:
    names = [f"sending.many{number}" for number in range(10)]
    async with await connect(url, reconnect=False) as connection:
        for name in names:
            await queue(connection, name)
        async with Sender(connection, FINE) as sender:
            tasks = [
                asyncio.create_task(sender.send(b"x", name, 0.002))
                for _ in range(200)
                for name in ("sending.nobody", *names)
            ]
            await asyncio.sleep(0)
            for task in tasks[::7]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            outcomes = Counter(type(result) for result in results)
            cancelled = len(tasks[::7])
            assert outcomes[asyncio.CancelledError] == cancelled
            assert outcomes[DestinationMissing] == 200 - sum(1 for number in range(0, 2200, 7) if number % 11 == 0)
            assert outcomes[type(None)] == 2200 - cancelled - outcomes[DestinationMissing]
            for name in names:
                assert (await next_of(connection, name)).body == b"x"
        await remove(connection, FINE)
        await gone(connection, *names)


async def test_a_sender_whose_connection_goes_says_so(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        await queue(connection, "sending.cut")
        other = await connect(url, reconnect=False)
        async with Sender(other, FINE) as sender:
            other._stream.abort()
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(sender.send(b"x", "sending.cut", 1), ANSWER_S)
        await remove(connection, FINE)
        await gone(connection, "sending.cut")


def test_many_from_a_script(url: str) -> None:
    with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
        channel.declare_queue("sending.script")
        with BlockingSender(connection, FINE) as sender:
            start = time.time()
            for number in range(500):
                sender.publish(str(number).encode(), "sending.script", 0.3)
            with pytest.raises(DestinationMissing):
                sender.publish(b"x", "sending.nobody", 0.3)
            sender.wait_for_confirms(ANSWER_S)
        channel.consume("sending.script", no_ack=True)
        bodies = []
        for _ in range(500):
            delivery = channel.next_delivery(ANSWER_S)
            assert delivery is not None
            bodies.append(int(delivery.body))
        assert time.time() - start >= 0.3
        assert bodies == list(range(500))
        channel.delete_queue("sending.script")


async def test_a_time_is_reckoned_with_when_the_message_leaves(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Binding, and a broker that blocks publishers, take a part of the delay: 100 s of it here."""
    start = datetime.now(UTC)
    clock = [start]
    monkeypatch.setattr(instant, "now", lambda: clock[0])
    async with await connect(url, reconnect=False) as connection:
        await queue(connection, "sending.at")
        async with Sender(connection, SECONDS) as sender:
            bind = sender._binder.bind

            async def slowly(destination: str) -> None:
                await bind(destination)
                clock[0] += timedelta(seconds=100)

            monkeypatch.setattr(sender._binder, "bind", slowly)
            await sender.send(b"x", "sending.at", at=start + timedelta(seconds=103))
            assert await counts(connection, SECONDS) == {1: 1}
        await remove(connection, SECONDS)
        await gone(connection, "sending.at")
