"""One seed is one federation: its shape, its messages, and the faults of brokers, disks and network."""

from __future__ import annotations

import functools
from collections.abc import Callable
from random import Random

from leveret.testing.simulation import BrokerDown, Node
from leveret.testing.simulation.simulation import BOTH, FORTH

from .federation_shapes import Link, random_shape
from .federation_world import KEYS, PATTERNS, SIZES, FederationWorld, random_bindings

# faults that the run must have hit
HITS = (
    "message on both sides", "swap in flight", "partition", "torn batch", "take-over",
    "dropped by position", "power cut", "kill", "reset", "changed upstream",
)  # fmt: skip
DURATION_S = 8.0
# fault -> relative frequency
FAULTS = {
    "power": 5, "kill": 2, "operation": 4, "stop": 1, "partition": 4, "one way": 2, "reset": 5, "slow disk": 2,
    "restart link": 1, "setting": 2,
}  # fmt: skip
# upstream settings that may change at any time; none of them loses messages
SETTINGS: dict[str, tuple[str | int, ...]] = {
    "prefetch_count": (1, 2, 10, 1000), "message_ttl": (10**8, 10**9), "expires": (10**8, 10**9),
    "bind_nowait": (0, 1), "channel_use_mode": ("multiple", "single"),
}  # fmt: skip


class Chaos:
    """Random faults in a world."""

    def __init__(self, world: FederationWorld, random: Random) -> None:
        self._world = world
        self._random = random
        self._sim = world.simulation
        self._aims_at_swaps = random.random() < 0.5
        self._strikes = random.randrange(0, 3)

    def unleash(self, count: int) -> None:
        """Schedule `count` faults within the next seconds."""
        names, weights = list(FAULTS), list(FAULTS.values())
        for _ in range(count):
            fault = self._random.choices(names, weights)[0]
            self._sim.at(self._random.uniform(0, DURATION_S), functools.partial(self._befall, fault))

    def _befall(self, fault: str) -> None:
        random, sim, world = self._random, self._sim, self._world
        node = world.nodes[random.choice(world.shape.names)]
        link = random.choice(world.shape.links)
        down, up = (world.nodes[name] for name in link)
        for_s = random.choice((0.01, 0.3, 2, 9)) * random.uniform(0.5, 2)
        match fault:
            case "power":
                sim.crash(node, for_s)
            case "kill":
                sim.crash(node, for_s, is_power_cut=False)
            case "operation":
                sim.crash_at_disk_operation(node, random.randrange(1, 12), for_s)
            case "stop":
                sim.stop(node, for_s)
            case "partition":
                sim.partition(down, up, for_s, direction=BOTH)
            case "one way":
                one, other = random.choice(((down, up), (up, down)))
                sim.partition(one, other, for_s, direction=FORTH)
            case "reset":
                sim.reset(down, up)
            case "slow disk":
                sim.slow_disk(node, random.choice((5, 50)), for_s)
            case "restart link":
                self._restart_link(down)
            case "setting":
                # without positions, changing these replaces the upstream queue, and a cut during that may lose messages
                names = [name for name in SETTINGS if world.gives_positions or name not in ("message_ttl", "expires")]
                self._change(link, random.choice(names))

    def reconfigure(self) -> None:
        """Change the settings of all links at random times."""
        for link in self._world.shape.links:
            call = functools.partial(self._change, link, self._random.choice(list(SETTINGS)))
            self._sim.at(self._random.uniform(0, DURATION_S), call)

    def aim(self) -> bool:
        """Strike, sometimes, if this is the moment that the seed aims at; return whether all strikes are done."""
        for link in self._world.shape.links:
            if self._is_met(link) and self._random.random() < 0.2:
                self._strike(link)
                self._strikes -= 1
        return self._strikes <= 0

    def _is_met(self, link: Link) -> bool:
        return self._world.swaps(link) if self._aims_at_swaps else self._world.has_on_both(link)

    def _strike(self, link: Link) -> None:
        """Crash one side of a link, or break the network between both."""
        down, up = (self._world.nodes[name] for name in link)
        match self._random.randrange(4):
            case 0:
                self._sim.reset(down, up)
            case 1:
                self._sim.partition(down, up, self._random.choice((0.5, 20)))
            case _:
                node, is_power_cut = self._random.choice((down, up)), self._random.random() < 0.7
                self._sim.crash(node, self._random.choice((0.1, 2)), is_power_cut=is_power_cut)

    def _change(self, link: Link, name: str) -> None:
        world = self._world
        world.hits["changed upstream"] += 1
        world.settings[link][name] = self._random.choice(SETTINGS[name])
        self._try(functools.partial(world.federate, link))

    def _restart_link(self, node: Node) -> None:
        links = node.links()
        if links:
            self._try(functools.partial(node.restart_link, self._random.choice(links).id))

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BrokerDown:
            pass


def simulate(seed: int, has_faults: bool = True, gives_positions: bool = True) -> FederationWorld:
    """Run one seed.

    Args:
        has_faults: Whether brokers, disks and network fail.
        gives_positions: As in sim.broker().

    Raises:
        AssertionError: A promise was broken.
        TimeoutError: The world did not come to rest.
    """
    random = Random(seed)
    shape = random_shape(random)
    world = FederationWorld(seed, shape, random_bindings(random, shape), random.choice(SIZES), gives_positions)
    sim = world.simulation
    with sim:
        for _ in range(random.randrange(1, 4)):
            _publish(world, random)
        for _ in range(random.randrange(0, 8)):
            name, key = random.choice(shape.names), random.choice(PATTERNS)
            sim.at(random.uniform(0, DURATION_S), functools.partial(world.bind_casually, name, key))
        chaos, end_s = Chaos(world, random), sim.now_s + DURATION_S
        if not has_faults:
            chaos.reconfigure()
        if has_faults:
            chaos.unleash(random.randrange(1, 7))
            sim.run(DURATION_S, until=chaos.aim)
        sim.run(max(0.0, end_s - sim.now_s))
        sim.heal()
        for link in shape.links:  # a change that was made while the broker was down
            world.federate(link)
        sim.settle()
        world.check(has_faults)
    world.count()
    return world


def _publish(world: FederationWorld, random: Random) -> None:
    """A publisher sends its messages, at a steady rate or all at once."""
    publisher = world.publisher(random.choice(world.shape.names))
    count = random.randrange(5, 25)
    start_s = random.uniform(0, DURATION_S - 1)
    interval_s = random.choice((0.0005, 0.02, (DURATION_S - start_s) / count))
    is_persistent = random.random() < 0.9
    octets = random.choice((0, 0, 200, 2000, 140_000 if random.random() < 0.1 else 0))

    def publish() -> None:
        for index in range(count):
            key = KEYS[(index + count) % len(KEYS)]
            call = functools.partial(publisher.publish, key, bytes(octets), persistent=is_persistent)
            world.simulation.at(index * interval_s, call)

    world.simulation.at(start_s, publish)
