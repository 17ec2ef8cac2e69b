"""Publisher references in the simulation: each message exactly once, in order, whatever fails.

LEVERET_PUBLISHER_SEEDS: how many worlds (60); LEVERET_PUBLISHER_SEED: only this one, to replay a failure.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from functools import partial
from random import Random

import pytest

from leveret.testing.simulation import BrokerDown, Node, Simulation, Sizes

from .numbered import REFUSED, STORED, NumberedPublisher
from .random_worlds import hits_of, missing_in

SEEDS = int(os.environ.get("LEVERET_PUBLISHER_SEEDS", "60"))
ONLY = os.environ.get("LEVERET_PUBLISHER_SEED")
AGAIN = "LEVERET_PUBLISHER_SEED={} python -m pytest tests/sim/test_publishers.py"
SIZES = Sizes(file_octets=10_500, ready_octets=6_000, page_octets=1_500, batch_octets=5_000)
QUEUES = ("kept", "full", "other")
PLACES = (("", "kept"), ("", "full"), ("", "full"), ("", "nowhere"), ("both", ""))
"""Exchanges and routing keys."""
TARGETS = {"kept": ("kept",), "full": ("full",), "nowhere": (), "": ("kept", "other")}
"""Queues, by routing key."""
RUN_S = 4.0
WANTED = {
    "power cut", "kill", "torn batch", "sent again", "heard late: stored", "heard late: refused", "stored", "refused",
    "attached again unheard", "several files",
}  # fmt: skip
RIVALS_WANTED = {"power cut", "kill", "fenced", "fenced with messages in transit", "sent again"}


def begun(sim: Simulation, random: Random) -> Node:
    """Start a broker whose queue "full" refuses messages, with a limit that grows from time to time."""
    one = sim.broker("one")
    for name in QUEUES:
        one.declare_queue(name, arguments={"x-overflow": "reject-publish"} if name == "full" else None)
    one.declare_exchange("both", "fanout")
    for name in ("kept", "other"):
        one.bind(name, "both")
    limit = 0

    def grow() -> None:
        nonlocal limit
        limit += random.randint(1, 20)
        with suppress(BrokerDown):
            one.set_policy("full", "^full$", {"max-length": limit}, "queues")

    one.set_policy("full", "^full$", {"max-length": 1}, "queues")
    for _ in range(random.randint(0, 6)):
        sim.at(random.uniform(0, RUN_S), grow)
    return one


def load(sim: Simulation, random: Random, publisher: NumberedPublisher, name: str, one: Node) -> None:
    """Let a publisher send bursts of messages, whose bodies are in the order of publishing; some answers are lost."""

    def burst() -> None:
        if publisher.is_stopped:
            return
        exchange, key = random.choice(PLACES)
        first = len(publisher.messages)
        numbers = range(first, first + random.choice((1, 1, 3, 40)))
        publisher.publish(exchange, key, *(f"{name} {number:05}".encode() for number in numbers))
        if random.random() < 0.05:
            sim.at(random.uniform(0, 0.01), lambda: sim.network.reset(publisher.name, one.name))

    for _ in range(random.randint(5, 50)):
        sim.at(random.uniform(0, RUN_S), burst)


def disturb(sim: Simulation, random: Random, one: Node, *publishers: NumberedPublisher) -> None:
    for _ in range(random.randint(1, 10)):
        after_s = random.uniform(0, RUN_S)
        match random.randrange(6):
            case 0 | 1:
                sim.crash(one, random.uniform(0.01, 1), after_s, is_power_cut=random.random() < 0.7)
            case 2:
                sim.at(after_s, lambda: sim.crash_at_disk_operation(one, random.randint(1, 30), 0.1))
            case 3:
                sim.stop(one, 0.2, after_s)
            case 4:
                sim.slow_disk(one, random.choice((20, 200)), 1, after_s)
            case _:
                publisher, cuts = random.choice(publishers), random.choice((1, 3))
                sim.at(after_s, partial(_cut, sim, one, publisher, cuts))


def _cut(sim: Simulation, one: Node, publisher: NumberedPublisher, times: int) -> None:
    """Break a publisher's connection, so many times in a row."""
    publisher.cuts = times - 1
    sim.reset(publisher, one)


def settled(sim: Simulation, one: Node, *publishers: NumberedPublisher) -> None:
    sim.run(2 * RUN_S)  # a rival begins later
    sim.heal()
    sim.run(until=lambda: all(each.is_done or each.is_stopped for each in publishers), limit_s=60)


def read(sim: Simulation, one: Node) -> dict[str, list[str]]:
    """Return the bodies in each queue, in order."""
    found = {}
    for name in QUEUES:
        count = one.messages(name)
        consumer = one.consumer(name, prefetch=0)
        sim.run(until=lambda: len(consumer.deliveries) >= count, limit_s=60)  # noqa: B023
        sim.run(1)
        found[name] = [each.body.decode() for each in consumer.deliveries]
        consumer.stop()
    return found


def expected(publisher: NumberedPublisher, queue: str) -> list[str]:
    """Return the bodies of a publisher that a queue must have, in order."""
    return [each.body.decode() for each in publisher.messages if each.outcome == STORED and queue in TARGETS[each.key]]


def simulate(seed: int) -> Counter[str]:
    """Run a world with one publisher; return what it hit."""
    random = Random(f"publishers {seed}")
    with Simulation(seed, sizes=SIZES) as sim:
        one = begun(sim, random)
        publisher = NumberedPublisher(sim.network, one, "publisher", "P")
        load(sim, random, publisher, "a", one)
        disturb(sim, random, one, publisher)
        settled(sim, one, publisher)
        assert not publisher.is_fenced
        assert all(each.outcome for each in publisher.messages)
        assert all(each.outcome == REFUSED for each in publisher.messages if not TARGETS[each.key])
        found = read(sim, one)
        assert found == {queue: expected(publisher, queue) for queue in QUEUES}
        reference = one.core.vhosts["/"].publishers.by_name["P"]
        assert reference.epoch == publisher.epoch
        hits = publisher.hits + sim.counts
        hits["several files"] += one.machine.life is not None and one.machine.life.journal.current > 5
        return hits


def simulate_rivals(seed: int) -> Counter[str]:
    """Run a world in which a second publisher takes the reference over; return what it hit."""
    random = Random(f"rivals {seed}")
    with Simulation(seed, sizes=SIZES) as sim:
        one = begun(sim, random)
        old = NumberedPublisher(sim.network, one, "old", "P")
        load(sim, random, old, "old", one)
        rivals: list[NumberedPublisher] = []
        begin_s = random.uniform(0.5, RUN_S - 1)

        def begin() -> None:
            rivals.append(NumberedPublisher(sim.network, one, "new", "P"))
            load(sim, random, rivals[0], "new", one)

        sim.at(begin_s, begin)
        sim.run(begin_s / 2)
        disturb(sim, random, one, old)
        settled(sim, one, old)
        (new,) = rivals
        sim.run(until=lambda: new.is_done, limit_s=60)
        sim.run(until=lambda: old.is_fenced, limit_s=60)
        assert not new.is_fenced
        found = read(sim, one)
        for queue in ("kept", "full", "other"):
            bodies = found[queue]
            of_old = [body for body in bodies if body.startswith("old")]
            assert bodies == of_old + expected(new, queue)
            sent = [each.body.decode() for each in old.messages if queue in TARGETS[each.key]]
            refused = {each.body.decode() for each in old.messages if each.outcome == REFUSED}
            known = set(expected(old, queue))
            assert known <= set(of_old)
            if queue != "full":
                assert of_old == sent[: len(of_old)]
            assert not refused & set(of_old)
        hits = old.hits + sim.counts
        hits["fenced"] += 1
        hits["fenced with messages in transit"] += not old.is_done
        return hits


@pytest.mark.timeout(600 + 2 * SEEDS)
def test_each_message_of_a_reference_is_there_once_and_in_order() -> None:
    seeds = [int(ONLY)] if ONLY else range(SEEDS)
    missing = missing_in(hits_of(simulate, seeds, AGAIN), WANTED, f"{len(seeds)} worlds")
    assert ONLY or not missing, f"{len(seeds)} worlds had none of these: {missing}"


@pytest.mark.timeout(600 + 2 * SEEDS)
def test_a_publisher_that_was_taken_over_gets_no_message_in() -> None:
    seeds = [int(ONLY)] if ONLY else range(SEEDS)
    missing = missing_in(hits_of(simulate_rivals, seeds, AGAIN), RIVALS_WANTED, f"{len(seeds)} worlds")
    assert ONLY or not missing, f"{len(seeds)} worlds had none of these: {missing}"
