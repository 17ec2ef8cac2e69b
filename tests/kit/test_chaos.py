"""Random hostile clients, beside a probe that publishes with confirms, consumes and makes RPC calls.

    LEVERET_CHAOS_ROUNDS=500 pytest -s tests/kit/test_chaos.py       a soak
    LEVERET_CHAOS_SEED=17 LEVERET_CHAOS_KINDS=patterns,copies ...    repeat a run, or run a part of the attacks

Assertions are about what a busy machine cannot change: how much work one turn of the broker's loop does (in function
calls on the interpreted core, in processor time of its thread on the compiled one); what the broker holds at the end;
that each message of the probe is confirmed, or its publisher is told why not; and that the log has no traceback.
How long the probe waited is printed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

import leveret
from leveret.client import AuthenticationFailed, ClientError, Connection, Properties, connect
from leveret.testing import LiveBroker, broker
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER, content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import encode_header

ROUNDS = int(os.environ.get("LEVERET_CHAOS_ROUNDS", "6"))
AT_ONCE: Final = 3
"""How many attacks run at the same time in a round."""
HANG_S: Final = 60.0
"""The probe waits this long only if the broker has stopped serving it."""
TURN_CALLS_MAX: Final = 500_000
TURN_US_MAX: Final = 20_000
SLOW_TURNS_MAX: Final = 10
"""How many of some thousand turns may exceed the limit, as a thread's processor time includes page faults and the
hypervisor's share. Without the limits that this test checks, thirty and more turns do.
"""
HELD_OCTETS_MAX: Final = 8 << 20
FRAME_OCTETS: Final = 131072
HANDSHAKES_MAX: Final = 40
CLOSE_OK: Final = method_frame(0, grammar.CONNECTION_CLOSE_OK)

Chance = random.Random
Attack = Callable[[LiveBroker, Chance], Awaitable[None]]


# -- clients that send raw bytes ---------------------------------------------------------------------------------------


def message(key: str, body: bytes, exchange: str = "", **properties: Any) -> bytes:
    """Return the frames of a publish on channel 1."""
    header = encode_header(Properties(**properties), len(body))
    method = method_frame(1, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key)
    return method + content_frames(1, header, body, FRAME_OCTETS)


class Raw:
    """A connection that has logged in and opened channel 1. It reads what the broker sends unless `reads` is false."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, rabbit: LiveBroker, reads: bool = True) -> Raw:
        self = cls(*await asyncio.open_connection(rabbit.host, rabbit.port))
        self.writer.write(
            PROTOCOL_HEADER
            + method_frame(0, grammar.CONNECTION_START_OK, mechanism="PLAIN", response=b"\0guest\0guest")
            + method_frame(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=FRAME_OCTETS)
            + method_frame(0, grammar.CONNECTION_OPEN, virtual_host="/")
            + method_frame(1, grammar.CHANNEL_OPEN)
        )
        if reads:
            self._reading = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        with suppress(OSError):
            last = b""
            while CLOSE_OK not in last and (data := await self._reader.read(1 << 16)):
                last = last[-len(CLOSE_OK) :] + data

    async def say(self, data: bytes) -> None:
        """Write, and ignore the error if the broker does not read any more."""
        with suppress(OSError):
            self.writer.write(data)
            await self.writer.drain()
            await asyncio.sleep(0)  # the probe runs on the same loop

    async def settled(self) -> None:
        """Close the connection properly, so that everything sent before has been handled."""
        await self.say(method_frame(0, grammar.CONNECTION_CLOSE, reply_code=200, reply_text=""))
        if self._reading is not None:
            await asyncio.wait_for(self._reading, HANG_S)
        self.writer.close()

    async def cut(self) -> None:
        """Drop the connection without closing it."""
        self.writer.transport.abort()
        if self._reading is not None:
            await self._reading


async def get_in(rabbit: LiveBroker) -> Connection:
    """Log in. While idle sockets pour in from this address, the broker may drop this one, too: try again."""
    for _ in range(100):
        with suppress(ClientError, OSError):
            return await connect(rabbit, reconnect=False)
    raise AssertionError("a hundred tries to log in were refused")


# -- the attacks -------------------------------------------------------------------------------------------------------


async def huge(rabbit: LiveBroker, chance: Chance) -> None:
    """Publish one message that is larger than what a queue should keep in memory."""
    client = await Raw.open(rabbit)
    await client.say(method_frame(1, grammar.QUEUE_DECLARE, queue="huge"))
    await client.say(message("huge", bytes(100 << 20)))
    await asyncio.sleep(0)
    await client.say(method_frame(1, grammar.QUEUE_DELETE, queue="huge"))
    await client.settled()


async def cut_off(rabbit: LiveBroker, chance: Chance) -> None:
    """Clients that die in the middle of a large message, or close their channel there."""
    for _ in range(4):
        client = await Raw.open(rabbit)
        data = message("nowhere", bytes(4 << 20))
        await client.say(data[: chance.randrange(1000, len(data))])
        if chance.random() < 0.5:
            await client.say(method_frame(1, grammar.CHANNEL_CLOSE, reply_code=200, reply_text=""))
        await client.cut()


async def with_topic_exchange(rabbit: LiveBroker, name: str) -> Raw:
    """Open a client with a topic exchange and a queue of this name."""
    client = await Raw.open(rabbit)
    await client.say(
        method_frame(1, grammar.EXCHANGE_DECLARE, exchange=name, type="topic", auto_delete=True)
        + method_frame(1, grammar.QUEUE_DECLARE, queue=name, exclusive=True)
    )
    return client


async def patterns(rabbit: LiveBroker, chance: Chance) -> None:
    """Binding patterns full of wildcards, and routing keys that match a large part of all of them."""
    exchange = f"topic {chance.random()}"
    client = await with_topic_exchange(rabbit, exchange)
    for _ in range(800):
        key = ".".join(chance.choices("#*a", k=122))
        await client.say(method_frame(1, grammar.QUEUE_BIND, queue=exchange, exchange=exchange, routing_key=key))
    for size in range(40, 122, 4):
        await client.say(message(".".join("a" * size), b"x", exchange))
    await client.settled()


async def copies(rabbit: LiveBroker, chance: Chance) -> None:
    """Thousands of keys in CC, each of which is looked up in an exchange with many bindings."""
    exchange = f"copies {chance.random()}"
    client = await with_topic_exchange(rabbit, exchange)
    for number in range(300):
        await client.say(
            method_frame(1, grammar.QUEUE_BIND, queue=exchange, exchange=exchange, routing_key=f"#.{number}.#.b")
        )
    for _ in range(3):
        await client.say(message("b", b"x", exchange, headers={"CC": [f"{number}.a.b" for number in range(5000)]}))
    await client.settled()


async def cancelled(rabbit: LiveBroker, chance: Chance) -> None:
    """A leveret client that cancels its requests at any moment."""
    async with await get_in(rabbit) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        name = (await channel.declare_queue("", durable=False, exclusive=True)).name
        doings: list[Callable[[], Awaitable[Any]]] = [
            lambda: channel.publish(b"x", routing_key=name),
            lambda: channel.get(name, no_ack=True),
            lambda: channel.consume(name, no_ack=True),
            connection.channel,
        ]
        for _ in range(30):
            task = asyncio.ensure_future(chance.choice(doings)())
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def idle_sockets(rabbit: LiveBroker, chance: Chance) -> None:
    """More idle sockets than the broker allows; other clients must still be able to log in."""
    sockets = []
    for _ in range(2 * HANDSHAKES_MAX):
        with suppress(OSError):
            sockets.append(await asyncio.open_connection(rabbit.host, rabbit.port))
    try:
        async with await get_in(rabbit):
            pass
    finally:
        for _, writer in sockets:
            writer.transport.abort()


async def bad_logins(rabbit: LiveBroker, chance: Chance) -> None:
    """One client guesses passwords. Another user of the same address gets in while later guesses still wait."""
    victim = f"victim {chance.random()}"
    urls = [rabbit.url_for(victim, str(number)) for number in range(10)]
    guesses = [asyncio.create_task(connect(url, reconnect=False)) for url in urls]
    async with await get_in(rabbit):
        pass
    for guess in guesses:
        guess.cancel()
    found = await asyncio.gather(*guesses, return_exceptions=True)
    refused = (AuthenticationFailed, ClientError, OSError, asyncio.CancelledError)
    assert all(isinstance(each, refused) for each in found), found


async def staged(rabbit: LiveBroker, chance: Chance) -> None:
    """Producers that leave their stages open."""
    async with await get_in(rabbit) as connection:
        for number in range(10):
            channel = await connection.channel()
            await channel.confirm_select()
            arguments: dict[str, Any] = {
                "x-leveret-query": f"chaos {chance.random()}", "x-leveret-batch": number, "x-leveret-attempt": "1",
            }  # fmt: skip
            with suppress(ClientError):
                await channel.consume("amq.leveret.stage", no_ack=True, arguments=arguments)
                await channel.publish(bytes(1000), routing_key="probe")


async def ttl_0_and_get(rabbit: LiveBroker, chance: Chance) -> None:
    """A message with TTL 0 is never returned by a get, whenever the broker handles it."""
    async with await get_in(rabbit) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("", durable=False, exclusive=True)
        for _ in range(20):
            channel.publish(b"x", routing_key=queue.name, properties=Properties(expiration="0"))
            assert await channel.get(queue.name) is None


async def stuck_consumer(rabbit: LiveBroker, chance: Chance) -> None:
    """A consumer that does not read its socket, on a queue that gets many messages."""
    name = f"stuck {chance.random()}"
    client = await Raw.open(rabbit, reads=False)
    await client.say(
        method_frame(1, grammar.QUEUE_DECLARE, queue=name, exclusive=True)
        + method_frame(1, grammar.BASIC_CONSUME, queue=name, consumer_tag="stuck", no_ack=True)
    )
    for _ in range(40):
        await client.say(message(name, bytes(1 << 18)))
    await client.cut()


async def deletion(rabbit: LiveBroker, chance: Chance) -> None:
    """A queue with very many messages is deleted, by a client or with its connection."""
    client = await Raw.open(rabbit)
    name = f"long {chance.random()}"
    await client.say(method_frame(1, grammar.QUEUE_DECLARE, queue=name, exclusive=True))
    chunk = b"".join(message(name, bytes(number % 2)) for number in range(500))
    for _ in range(12):
        await client.say(chunk)
    if chance.random() < 0.5:
        await client.say(method_frame(1, chance.choice([grammar.QUEUE_DELETE, grammar.QUEUE_PURGE]), queue=name))
    await client.settled()


async def declares(rabbit: LiveBroker, chance: Chance) -> None:
    """Very many declarations, then the end of the connection."""
    client = await Raw.open(rabbit)
    mine = chance.random()
    frames = [
        method_frame(1, grammar.QUEUE_DECLARE, queue=f"declared {mine} {number}", exclusive=True, no_wait=True)
        for number in range(20_000)
    ]
    await client.say(b"".join(frames))
    await (client.cut() if chance.random() < 0.5 else client.settled())


ATTACKS: Final[dict[str, Attack]] = {
    "huge": huge, "cut-off": cut_off, "patterns": patterns, "copies": copies, "cancelled": cancelled,
    "idle-sockets": idle_sockets, "bad-logins": bad_logins, "staged": staged, "ttl-0-and-get": ttl_0_and_get,
    "stuck-consumer": stuck_consumer, "deletion": deletion, "declares": declares,
}  # fmt: skip


# -- measurements ------------------------------------------------------------------------------------------------------


class Turns:
    """Measures the turns of the broker's loop: the `worst` in calls or microseconds, and how many were `slow`."""

    def __init__(self) -> None:
        self.count = self.worst = self.slow = 0
        self.is_counted = leveret.core() != "compiled"
        self._calls = 0

    @contextmanager
    def watched(self, rabbit: LiveBroker) -> Iterator[None]:
        life = rabbit._fixture.living()
        loop: Any = life.server.loop
        once = loop._run_once

        def watch() -> None:
            for vhost in life.server.broker.vhosts.values():
                vhost.tracing = None  # what the kit records of each message is extra work
                vhost.changed()
            loop._run_once = lambda: self._turn(once)
            if self.is_counted:
                sys.setprofile(self._called)

        def let_go() -> None:
            sys.setprofile(None)
            del loop._run_once

        life.call(watch)
        try:
            yield
        finally:
            life.call(let_go)

    def _called(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            self._calls += 1

    def _turn(self, once: Callable[[], None]) -> None:
        self._calls = 0
        before_ns = time.thread_time_ns()
        once()
        took = self._calls if self.is_counted else (time.thread_time_ns() - before_ns) // 1000
        self.count += 1
        self.worst = max(self.worst, took)
        self.slow += took > (TURN_CALLS_MAX if self.is_counted else TURN_US_MAX)

    def check(self) -> None:
        most = 0 if self.is_counted else SLOW_TURNS_MAX
        unit = "calls" if self.is_counted else "µs"
        assert self.slow <= most, f"{self.slow} of {self.count} turns did too much, the worst {self.worst} {unit}"


class Probe:
    """A client that must be served in each round: messages are confirmed and delivered, RPC calls answered."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.waits_ms: list[float] = []

    async def run(self, is_over: asyncio.Event) -> None:
        """Send requests until `is_over` is set, and once after that."""
        connection = self._connection
        channel = await connection.channel()
        await channel.confirm_select()
        queue = (await channel.declare_queue("", durable=False, exclusive=True)).name
        questions = (await channel.declare_queue("", durable=False, exclusive=True)).name
        deliveries = await channel.consume(queue, no_ack=True)
        asked = await channel.consume(questions, no_ack=True)

        async def answer() -> None:
            async for question in asked:
                properties = Properties(correlation_id=question.properties.correlation_id)
                await channel.publish(question.body, "", question.properties.reply_to or "", properties)

        answering = asyncio.create_task(answer())
        number = 0
        async with await connection.rpc() as rpc:
            while True:
                is_last = is_over.is_set()
                number += 1
                body = b"%d" % number
                began_s = time.monotonic()
                await self._served(channel.publish(body, routing_key=queue), "a confirm")
                assert (await self._served(anext(deliveries), "a delivery")).body == body
                reply = await self._served(rpc.call(body, routing_key=questions, timeout_s=HANG_S), "a reply")
                assert reply.body == body
                self.waits_ms.append((time.monotonic() - began_s) * 1000)
                if is_last:
                    break
        await deliveries.cancel()
        await asked.cancel()
        answering.cancel()

    async def _served(self, wanted: Awaitable[Any], what: str) -> Any:
        waiting = asyncio.ensure_future(wanted)
        done, _ = await asyncio.wait([waiting], timeout=HANG_S)
        if not done and self._connection.blocked is not None:
            return await waiting  # it was told why; the alarm must end without help
        assert done, f"the probe waits for {what}, and was told nothing"
        return waiting.result()

    def told(self) -> str:
        waits = sorted(self.waits_ms)
        return f"{len(waits)} rounds of the probe, p50 {waits[len(waits) // 2]:.0f} ms, longest {waits[-1]:.0f} ms"


class Lines(logging.Handler):
    """Collects what the broker logs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        self.found.append(record.getMessage() + trace)


def held(rabbit: LiveBroker) -> dict[str, int]:
    """Return what the broker holds for its clients, by its own counters and by the objects that exist."""
    life = rabbit._fixture.living()

    def look() -> dict[str, int]:
        server, broker = life.server, life.server.broker
        queues = [queue for vhost in broker.vhosts.values() for queue in vhost.queues.values()]
        return {
            "octets": int(broker.log.ready_octets + broker.log.tail_octets)
            + sum(map(server.unsent_octets, server.peers())),
            "connections": len(server.peers()),
            "queues": len(queues),
        }

    return life.call(look)


def assemblies() -> int:
    """Return how many partly received messages exist, whatever still refers to them."""
    return sum(type(each).__name__ == "Assembly" for each in gc.get_objects())


@contextmanager
def uncollected() -> Iterator[None]:
    """Turn the garbage collector off, as in a broker, so that reference cycles stay in memory."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.timeout(0 if ROUNDS > 100 else 600)
async def test_whatever_random_clients_do_a_probe_is_served_and_nothing_stays() -> None:
    seed = int(os.environ.get("LEVERET_CHAOS_SEED", "1"))
    kinds = os.environ.get("LEVERET_CHAOS_KINDS", ",".join(ATTACKS)).split(",")
    print(f"LEVERET_CHAOS_SEED={seed} LEVERET_CHAOS_KINDS={','.join(kinds)}")
    chance, turns, lines = random.Random(seed), Turns(), Lines()
    logging.getLogger("leveret").addHandler(lines)
    try:
        with uncollected(), broker(quotas={"handshake_max": HANDSHAKES_MAX}) as rabbit, turns.watched(rabbit):
            async with await connect(rabbit, name="probe", reconnect=False) as connection:
                probe, is_over = Probe(connection), asyncio.Event()
                before = held(rabbit)
                probing = asyncio.create_task(probe.run(is_over))
                for number in range(ROUNDS):
                    chosen = chance.choices(kinds, k=AT_ONCE)
                    print(f"round {number}: {', '.join(chosen)}")
                    attacks = [ATTACKS[kind](rabbit, random.Random(chance.random())) for kind in chosen]
                    await asyncio.gather(*attacks)
                    assert not probing.done(), probing.exception()
                is_over.set()
                await probing
                after = await calm(rabbit, before)
                print(probe.told(), f"{turns.count} turns, the worst {turns.worst}", before, after, sep="; ")
            assert after["octets"] <= before["octets"] + HELD_OCTETS_MAX
            assert assemblies() == 0
        turns.check()
        assert not [line for line in [*lines.found, *rabbit.log] if "Traceback" in line or "internal error" in line]
    finally:
        logging.getLogger("leveret").removeHandler(lines)


async def calm(rabbit: LiveBroker, before: dict[str, int]) -> dict[str, int]:
    """Return what is held after the broker has noticed that the attackers are gone and has removed what they left."""
    deadline_s = time.monotonic() + HANG_S
    while (after := held(rabbit))["connections"] > before["connections"] or after["octets"] > HELD_OCTETS_MAX:
        assert time.monotonic() < deadline_s, f"this stays: {after}; at the beginning: {before}"
        await asyncio.sleep(0.01)
    return after
