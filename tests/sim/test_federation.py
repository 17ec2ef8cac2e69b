"""Federations in the simulation. LEVERET_FEDERATION_SEEDS: how many random ones (500); LEVERET_FEDERATION_SEED: only
this one, to replay a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from leveret.federation.stages import BINDING, REPLACING, RUNNING
from leveret.testing.simulation import Node, Simulation
from leveret.wire.table import Value

from .federation_seeds import HITS, simulate
from .federation_shapes import SHAPES
from .federation_world import EXCHANGE, KEYS, FederationWorld
from .random_worlds import EACH_CHUNK, hits_of, missing_in, seeds_of

TESTS = Path(__file__).parents[1]
SEEDS = int(os.environ.get("LEVERET_FEDERATION_SEEDS", "500"))
ONLY = os.environ.get("LEVERET_FEDERATION_SEED")


@pytest.mark.parametrize("name", SHAPES)
def test_without_faults_every_consumer_sees_every_message_exactly_once(name: str) -> None:
    shape = SHAPES[name]
    world = FederationWorld(1, shape, {each: ["#"] for each in shape.names})
    with world.simulation as sim:
        publishers = [world.publisher(at) for at in (shape.names if name != "tree" else ["root"])]
        for publisher in publishers:
            publisher.publish_every(0.01, 10, *KEYS)
        sim.run(1)
        sim.settle()
        sent = {id: 1 for publisher in publishers for id in publisher.messages}
        assert len(sent) == 10 * len(publishers)
        for consumer in world.consumers.values():
            assert Counter(each.id for each in consumer.deliveries) == sent
        world.check(has_faults=False)


def pair_of_one_way(sim: Simulation, arguments: dict[str, Value]) -> tuple[Node, Node]:
    """Return headquarters, with a queue of these arguments, and an airport upstream of it."""
    hq, ewr = sim.broker("hq"), sim.broker("ewr")
    hq.declare_exchange(EXCHANGE)
    hq.declare_queue("departures", arguments=arguments)
    hq.bind("departures", EXCHANGE, "#")
    hq.federate(EXCHANGE, upstream=ewr, prefetch_count=7)
    sim.settle()
    return hq, ewr


@pytest.mark.parametrize("seed", range(30))
def test_what_a_full_queue_refuses_waits_upstream_and_comes_once(seed: int) -> None:
    """Messages behind a refused one are journalled with their positions: the refused one must not count as arrived,
    whatever fails before it is delivered again."""
    with Simulation(seed) as sim:
        hq, ewr = pair_of_one_way(sim, {"x-max-length": 3, "x-overflow": "reject-publish"})
        publisher = ewr.publisher(EXCHANGE, repeats=False)
        consumer = hq.consumer("departures", prefetch=1, work_ms=130)
        publisher.publish_every(0.01, 20, *KEYS)
        random = Random(seed)
        breaks_hq = seed % 2 == 0
        for _ in range(3):
            after_s = random.uniform(0.1, 3)
            match random.randrange(3):
                case 0:
                    sim.reset(hq, ewr, after_s)
                case 1:
                    sim.crash(ewr, random.uniform(0.1, 1), after_s, is_power_cut=random.random() < 0.5)
                case 2:
                    sim.crash(hq if breaks_hq else ewr, random.uniform(0.1, 1), after_s)
        sim.run(4)
        sim.run(until=lambda: publisher.is_done and not sim.unrest() and hq.messages("departures") == 0)
        copies = consumer.copies()
        assert set(publisher.confirmed) <= copies.keys()
        assert breaks_hq or set(copies.values()) == {1}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_known_but_not_on_the_disk_is_not_acknowledged(seed: int) -> None:
    """The link reconnects before its broker's slow disk has synced earlier messages: a power cut loses those."""
    with Simulation(seed) as sim:
        hq, ewr = pair_of_one_way(sim, {})
        publisher = ewr.publisher(EXCHANGE)
        sim.run(0.1)
        sim.slow_disk(hq, 600, for_s=3)
        publisher.publish_every(0.001, 10, *KEYS)
        sim.run(0.05)
        sim.reset(hq, ewr)
        sim.run(0.15 + 0.01 * seed)
        sim.crash(hq)
        sim.run(5)
        sim.settle()
        assert len(publisher.confirmed) == hq.messages("departures") == 10


def is_at(node: Node, state: str) -> bool:
    """Whether the one link of a broker is in this state."""
    life = node.machine.life
    assert life is not None
    [link] = life.federator._links()
    return link._attempt is not None and link._attempt.state == state


@pytest.mark.parametrize("mode", ["multiple", "single"])
def test_what_an_older_connection_said_late_does_not_undo_a_swap(mode: str) -> None:
    """A network holds up the older connection's frames that replace the internal exchange, until the newer one has
    replaced it."""
    with Simulation(1) as sim:
        hq, ewr = pair_of_one_way(sim, {})
        hq.federate(EXCHANGE, upstream=ewr, channel_use_mode=mode)
        sim.run(until=lambda: is_at(hq, REPLACING))
        [late] = [end for end in ewr.machine.host.ends if end.comes_from("hq")]
        late.pause(True)
        sim.run(1)
        assert late.incoming_octets()
        hq.restart_link(hq.links()[0].id)
        sim.run(until=lambda: is_at(hq, RUNNING))
        late.pause(False)
        sim.run(1)
        publisher = ewr.publisher(EXCHANGE)
        publisher.publish_every(0.001, 10, *KEYS)
        sim.run(0.1)
        sim.settle()
        assert len(publisher.confirmed) == hq.messages("departures") == 10


@pytest.mark.parametrize("seed", range(20))
def test_a_swap_that_comes_to_nothing_leaves_the_old_exchange_whole(seed: int) -> None:
    """Changes of bindings are cut at any octet, and again when the link reconnects; messages flow all the time."""
    with Simulation(seed) as sim:
        hq, ewr = pair_of_one_way(sim, {})
        hq.unbind("departures", EXCHANGE, "#")
        keys = [f"key.{number}" for number in range(12)]
        for key in keys:
            hq.bind("departures", EXCHANGE, key)
        sim.settle()
        publisher = ewr.publisher(EXCHANGE)
        publisher.publish_every(0.003, 400, *keys)
        sim.run(0.1)

        sim.reset(hq, ewr)
        for _ in range(2):
            sim.run(0.001)
            sim.run(until=lambda: is_at(hq, BINDING), limit_s=60)
            sim.reset(hq, ewr)
        sim.run(2)
        sim.settle()
        assert len(publisher.confirmed) == hq.messages("departures") == 400


@pytest.mark.parametrize("name", ["unfederate", "delete_exchange"])
def test_a_link_that_is_wanted_no_more_leaves_nothing_but_the_upstream_exchange(name: str) -> None:
    with Simulation(3) as sim:
        hq, ewr = pair_of_one_way(sim, {})
        host = ewr.core.vhosts["/"]
        assert [each for each in host.queues if each.startswith("federation: ")]
        if name == "unfederate":
            hq.unfederate(EXCHANGE, upstream=ewr)
        else:
            hq.delete_exchange(EXCHANGE)
        sim.settle()
        sim.run(5)
        assert not host.queues
        assert not [each for each in host.exchanges if each.startswith("federation: ")]
        assert EXCHANGE in host.exchanges
        assert not hq.links()


@pytest.mark.timeout(600 + 2 * SEEDS)
@pytest.mark.parametrize("chunk", range(1) if ONLY else EACH_CHUNK)
def test_random_federations_lose_nothing_confirmed_and_double_nothing(chunk: int) -> None:
    seeds = seeds_of(chunk, SEEDS, ONLY)
    again = "LEVERET_FEDERATION_SEED={} python -m pytest tests/sim/test_federation.py -k random"
    hits = hits_of(lambda seed: simulate(seed).hits, seeds, again)
    missing = missing_in(hits, HITS, f"{len(seeds)} federations")
    assert ONLY or not missing, f"not seen in {len(seeds)} federations: {missing}"


@pytest.mark.parametrize("gives_positions", [True, False])
def test_random_federations_without_faults_see_all_exactly_once_whatever_is_reconfigured(gives_positions: bool) -> None:
    """Bindings come and go, and the settings of all links change, while messages flow."""
    for seed in range(50):
        assert simulate(seed, has_faults=False, gives_positions=gives_positions).hits["changed upstream"]


def test_over_upstreams_that_give_no_positions_nothing_is_lost() -> None:
    """Such as RabbitMQ: messages that were unacknowledged at a cut arrive twice, and none is lost."""
    for seed in range(100):
        assert not simulate(seed, gives_positions=False).hits["dropped by position"]


def digests() -> list[str]:
    """Run some worlds; return a hash of all events of each."""
    return [simulate(seed).simulation.trace.digest() for seed in range(3)]


def test_the_same_seed_is_the_same_federation() -> None:
    """The same to the last byte on the wire and the disk, and in another process, where strings have other hashes."""
    program = "from sim.test_federation import digests; print(*digests())"
    traces = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, check=True,
        ).stdout.split()
        for hash_seed in ("1", "2")
    ]  # fmt: skip
    assert traces[0] == traces[1] == digests()
    assert len(set(traces[0])) == 3
