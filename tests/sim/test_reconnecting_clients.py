"""Clients that reconnect, under all that can fail between them and their broker: no promise of theirs is broken.

LEVERET_CLIENT_SEEDS: how many worlds (60); LEVERET_CLIENT_SEED: only this one, to replay a failure.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from functools import partial
from random import Random

import pytest

from leveret.testing.simulation import BrokerDown, Consumer, Node, Publisher, Simulation, Sizes
from leveret.testing.simulation.client import Client
from leveret.testing.simulation.publisher import CONFIRMED
from leveret.testing.simulation.simulation import BOTH, FORTH

from .random_worlds import hits_of, missing_in
from .requesters import CALLS, Answerer, Caller, Requester

SEEDS = int(os.environ.get("LEVERET_CLIENT_SEEDS", "60"))
ONLY = os.environ.get("LEVERET_CLIENT_SEED")
AGAIN = "LEVERET_CLIENT_SEED={} python -m pytest tests/sim/test_reconnecting_clients.py"
SIZES = Sizes(file_octets=10_500, ready_octets=6_000, page_octets=1_500, batch_octets=5_000)
KEPT, READ, FULL = "kept", "read", "full"
NOWHERE = "nowhere"
"""A routing key without a queue: the broker keeps nothing of such a publish, not even its id before the next sync."""
RUN_S = 6.0
WANTED = (
    "alarm", "call repeated", "interrupted", "kill", "late ack", "locked", "lost while it was restored", "power cut",
    "refused", "reset", "restored", "stored twice without a reference", "unconfirmed when lost",
)  # fmt: skip


class World:
    """One broker with clients of all kinds."""

    def __init__(self, sim: Simulation, random: Random) -> None:
        self.sim, self.random = sim, random
        self.hits: Counter[str] = Counter()
        self.one: Node = sim.broker("one")
        for name in (KEPT, READ, CALLS):
            self.one.declare_queue(name)
        self.one.declare_queue(FULL, arguments={"x-overflow": "reject-publish"})
        self.one.set_policy(FULL, f"^{FULL}$", {"max-length": random.randint(1, 40)}, "queues")
        references = [random.random() < 0.6 for _ in range(random.randint(1, 4))]
        self.numbered, self.plain = list[Publisher](), list[Publisher]()
        for number, has_reference in enumerate(references):
            publisher = self.one.publisher("", f"reference {number}" if has_reference else None)
            (self.numbered if has_reference else self.plain).append(publisher)
        self.consumers: list[Consumer] = [
            self.one.consumer(READ, random.choice((1, 3, 100)), random.choice((0, 2, 300))) for _ in range(2)
        ]
        self.requester = Requester(sim, self.one)
        self.caller = Caller(sim, self.one, random.choice(("", "replies")))
        self.clients: list[Client] = [
            *self.numbered, *self.plain, *self.consumers, self.requester, self.caller, Answerer(sim, self.one)
        ]  # fmt: skip
        self.watched: set[str] = set()

    def watch(self) -> None:
        """Follow each client's losses from its first connection on."""
        for client in self.clients:
            if client.channel is not None and client.name not in self.watched:
                self.watched.add(client.name)
                self._watch(client)

    def _watch(self, client: Client) -> None:
        channel, is_lost = client.channel, False
        assert channel is not None
        restored = channel.on_restored

        def on_interrupted() -> None:
            nonlocal is_lost
            assert not is_lost, f"{client.name} was told twice that its connection is lost"
            is_lost = True
            self.hits["interrupted"] += 1
            if channel.confirms is not None:
                self.hits["unconfirmed when lost"] += len(channel.confirms.outstanding)

        def on_restored() -> None:
            nonlocal is_lost
            assert is_lost, f"{client.name} was told twice that its connection is restored"
            is_lost = False
            restored()
            self.hits["restored"] += 1

        channel.on_interrupted, channel.on_restored = on_interrupted, on_restored

    def load(self) -> None:
        """Let all clients do something from time to time."""
        sim, random = self.sim, self.random
        for publisher in (*self.numbered, *self.plain):
            for _ in range(random.randint(1, 8)):
                keys = random.choices((KEPT, READ, FULL, NOWHERE), (5, 3, 1, 1), k=random.randint(1, 3))
                burst = partial(publisher.publish_every, random.choice((0, 0.0002, 0.05)), random.randint(1, 30), *keys)
                at_s = random.uniform(0, RUN_S)
                sim.at(at_s, burst)
                if random.random() < 0.2:
                    sim.reset(publisher, self.one, at_s + random.uniform(0, 0.002))  # about when confirms are due
        for call in (self.requester.request, self.caller.call):
            for _ in range(random.randint(5, 40)):
                sim.at(random.uniform(0, RUN_S), call)

    def disturb(self) -> None:
        """Schedule faults."""
        for _ in range(self.random.randint(2, 12)):
            self.sim.at(self.random.uniform(0, RUN_S), self._fault)

    def _fault(self) -> None:
        sim, random, one = self.sim, self.random, self.one
        client = random.choice(self.clients)
        for_s = random.choice((0.01, 0.3, 2, 10)) * random.uniform(0.5, 2)
        match random.randrange(12):
            case 0 | 1:
                sim.crash(one, for_s / 2)
            case 2:
                sim.crash(one, for_s / 2, is_power_cut=False)
            case 3:
                sim.crash_at_disk_operation(one, random.randint(1, 30), for_s / 2)
            case 4:
                sim.stop(one, for_s / 2)
            case 5:
                sim.slow_disk(one, random.choice((20, 200)), for_s)
            case 6:
                sim.partition(*random.choice(((client, one), (one, client))), for_s, direction=FORTH)
            case 7:
                sim.partition(client, one, for_s, direction=BOTH)
            case 8:
                sim.low_on(one, random.choice(("memory", "disk")), for_s)
                self.hits["alarm"] += 1
            case 9:
                client.lose()
            case _:
                for _ in range(random.choice((1, 1, 4))):
                    sim.reset(client, one, random.choice((0, random.uniform(0, 0.001), random.uniform(0, 0.3))))
        with suppress(BrokerDown):
            one.set_policy(FULL, f"^{FULL}$", {"max-length": random.randint(40, 80)}, "queues")

    def settle(self) -> None:
        """Wait until nothing fails any more and everybody has what he wanted."""
        sim = self.sim
        sim.run(RUN_S + 2)  # the last burst takes up to 1.5 s
        sim.heal()
        sim.run(until=lambda: all(client.core.interruption is None for client in self.clients), limit_s=60)
        publishers = [*self.numbered, *self.plain]
        sim.run(until=lambda: all(each.is_done for each in publishers), limit_s=60)
        sim.run(until=lambda: self.caller.is_done, limit_s=60)
        sim.run(until=lambda: all(answer.done for answer in self.requester.answers), limit_s=60)
        sim.run(until=lambda: self.one.messages(READ) == 0, limit_s=60)

    def check(self) -> None:
        """Check what everybody was promised."""
        for client in self.clients:
            assert client.error is None, f"{client.name} has ended: {client.error}"
            assert client.core.error is None
        assert [answer.error for answer in self.requester.answers if answer.error is not None] == []
        found = {queue: self._read(queue) for queue in (KEPT, FULL)}
        found[READ] = [each.id for consumer in self.consumers for each in consumer.deliveries]
        for publisher in (*self.numbered, *self.plain):
            for queue, ids in found.items():
                self._check(publisher, queue, ids)
        self.hits["late ack"] += sum(consumer.late_acks for consumer in self.consumers)
        self.hits["call repeated"] += self.caller.repeated
        self.hits += self.sim.counts

    def _read(self, queue: str) -> list[str]:
        count = self.one.messages(queue)
        consumer = self.one.consumer(queue, prefetch=0)
        self.sim.run(until=lambda: self.one.messages(queue) == 0, limit_s=60)
        self.sim.run(0.1)
        assert len(consumer.deliveries) == count
        return [each.id for each in consumer.deliveries]

    def _check(self, publisher: Publisher, queue: str, ids: list[str]) -> None:
        sent = [message for message in publisher.messages.values() if message.key == queue]
        wanted = [message.id for message in sent if message.state == CONFIRMED]
        own = {message.id for message in sent}
        came = [id for id in ids if id in own]
        self.hits["refused"] += len(sent) - len(wanted)
        if queue != FULL:
            assert len(wanted) == len(sent)
        assert set(came) >= set(wanted), f"{publisher.name}, {queue}"
        if queue != FULL or publisher in self.numbered:  # else it was stored, not confirmed, and its repeat refused
            assert set(came) == set(wanted), f"{publisher.name}, {queue}"
        if publisher in self.numbered and queue == KEPT:
            assert came == wanted, f"{publisher.name}: not once or not in order"
        if publisher in self.numbered and queue == FULL:
            assert len(came) == len(wanted), f"{publisher.name}: not once"
        if publisher in self.plain and queue == KEPT:
            self.hits["stored twice without a reference"] += len(came) - len(wanted)


def losses_of(sim: Simulation, client: Client) -> Counter[str]:
    """Count what the trace tells of a client's losses."""
    hits: Counter[str] = Counter()
    is_lost = False
    for line in sim.trace.lines():
        _, is_mine, what = line.partition(f" {client.name}: is ")
        if is_mine and what.startswith("interrupted"):
            hits["locked"] += "405 RESOURCE_LOCKED" in what
            hits["lost while it was restored"] += is_lost
        if is_mine:
            is_lost = what.startswith("interrupted")
    return hits


def simulate(seed: int) -> Counter[str]:
    """Run one world; return what it hit."""
    random = Random(f"clients {seed}")
    with Simulation(seed, sizes=SIZES) as sim:
        world = World(sim, random)
        sim.run(until=lambda: all(client.channel is not None for client in world.clients))
        world.watch()
        world.load()
        world.disturb()
        world.settle()
        world.check()
        for client in world.clients:
            world.hits += losses_of(sim, client)
        return world.hits


@pytest.mark.timeout(60 + SEEDS)
def test_clients_that_reconnect_keep_their_promises() -> None:
    seeds = [int(ONLY)] if ONLY else range(SEEDS)
    missing = missing_in(hits_of(simulate, seeds, AGAIN), WANTED, f"{len(seeds)} worlds")
    assert ONLY or not missing, f"{len(seeds)} worlds had none of these: {missing}"
