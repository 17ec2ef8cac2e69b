"""One broker under load, its disk and its consumers slow, its memory short: whoever is held up goes on, or is told why.

LEVERET_PRESSURE_SEEDS: how many worlds (60); LEVERET_PRESSURE_SEED: only this one, to replay a failure.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

from leveret.testing.simulation import Simulation, Sizes

from .random_worlds import hits_of, missing_in

SEEDS = int(os.environ.get("LEVERET_PRESSURE_SEEDS", "60"))
ONLY = os.environ.get("LEVERET_PRESSURE_SEED")
READY_OCTETS = 6_000
SIZES = Sizes(
    file_octets=60_000, ready_octets=READY_OCTETS, page_octets=1_500, batch_octets=5_000, socket_octets=4_000
)
# most of the messages are small; a few are alone larger than all the memory that messages should take
BODIES = (10, 10, 100, 100, 1_000, 4_000, 3 * READY_OCTETS, 20 * READY_OCTETS)
QUEUES = ("kept", "read", "slowly", "copies 1", "copies 2", "copies 3")
FAULT_S = 3  # how long a disturbance lasts
RUN_S = 10
HELD_S_MAX = 30  # how long publishers may wait after the last disturbance: a write that has begun takes up to 12 s
WANTED = ("journal", "pages", "slow", "alarm", "told", "page-out")


def simulate(seed: int) -> Counter[str]:
    """Run one world; returns what held its publishers up."""
    random = Random(f"back-pressure {seed}")
    with Simulation(seed, sizes=SIZES) as sim:
        one = sim.broker("one")
        one.declare_exchange("copies", "fanout")
        for name in QUEUES:
            one.declare_queue(name)
            if name.startswith("copies"):
                one.bind(name, "copies")
        quick, slow = one.consumer("read"), one.consumer("slowly", prefetch=0)
        publishers = [one.publisher(random.choice(("", "", "copies"))) for _ in range(random.randint(1, 4))]
        sim.run(1)
        for publisher in publishers:
            keys = random.sample(QUEUES[:3], random.randint(1, 3))
            for _ in range(random.randint(1, 4)):
                publisher.publish_every(
                    random.choice((0, 0.001, 0.05)), random.randint(1, 60), *keys, body_octets=random.choice(BODIES)
                )
        for _ in range(random.randint(0, 4)):
            after_s = random.uniform(0, FAULT_S)
            match random.randrange(4):
                case 0:
                    sim.slow_disk(one, random.choice((20, 200, 2_000)), FAULT_S, after_s)
                case 1:
                    sim.low_on(one, random.choice(("memory", "disk")), FAULT_S, after_s)
                case 2:
                    sim.at(after_s, lambda: slow.stop_reading(FAULT_S))
                case _:
                    sim.at(after_s, lambda: quick.stop_reading(FAULT_S))
        hits: Counter[str] = Counter()
        for _ in range(RUN_S):
            sim.run(1)
            life = one.machine.life
            assert life is not None
            hits["told"] += life.broker.block_reason == "waiting for the disk"
        sim.heal()
        sim.run(until=lambda: all(publisher.is_done for publisher in publishers), limit_s=HELD_S_MAX)
        sim.run(until=lambda: not life.paused_count(), limit_s=HELD_S_MAX)
        sim.settle()
        hits.update(reason for reason, waited_s in life.waits_s().items() if waited_s)
        hits["page-out"] += life.segments.numbers() != []
        confirmed = sum(len(publisher.confirmed) for publisher in publishers if publisher.exchange == "")
        kept = one.messages("kept") + one.messages("read") + one.messages("slowly")
        assert kept + len(quick.copies()) + len(slow.copies()) == confirmed
    return hits


def test_whoever_is_held_up_goes_on() -> None:
    seeds = [int(ONLY)] if ONLY else range(SEEDS)
    again = "LEVERET_PRESSURE_SEED={} python -m pytest tests/sim/test_back_pressure.py"
    missing = missing_in(hits_of(simulate, seeds, again), WANTED, f"{len(seeds)} worlds")
    assert ONLY or not missing, f"{len(seeds)} worlds had none of these: {missing}"
