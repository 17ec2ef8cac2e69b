"""The world: brokers, the network between them, clients, faults, and one seed that decides everything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Final, Self

from leveret.federation.status import PAUSED, REFUSED, RUNNING
from leveret.testing.simulation.client import Client
from leveret.testing.simulation.clock import START_US, Clock
from leveret.testing.simulation.machine import Machine
from leveret.testing.simulation.network import Network
from leveret.testing.simulation.node import Node
from leveret.testing.simulation.publisher import Publisher
from leveret.testing.simulation.sizes import Sizes
from leveret.testing.simulation.trace import Trace

LINES_SHOWN: Final = 40
SETTLE_STEP_US: Final = 50_000
BOTH: Final = "both"
FORTH: Final = "forth"


class Simulation:
    """Use as a context manager: an error in it says which seed it was, and shows the last events.

    seed: the same seed and the same calls are the same world, to the last octet on every wire and disk. latency_ms,
    jitter_ms: of the network between brokers, each way. sizes: of the brokers' files and pages.
    """

    def __init__(self, seed: int = 0, latency_ms: float = 2, jitter_ms: float = 3, sizes: Sizes | None = None) -> None:
        self.seed = seed
        self.clock = Clock()
        self.random = Random(f"{seed}")
        self.trace = Trace(self.clock)
        network_random = Random(f"{seed}/network")
        self.network = Network(self.clock, network_random, self.trace, int(latency_ms * 1000), int(jitter_ms * 1000))
        self.nodes: dict[str, Node] = {}
        self.counts: Counter[str] = self.network.counts
        self._healed = 0  # how often
        self.on_fault: list[Callable[[str], None]] = []  # called before a crash or a reset, with its name
        self._sizes = sizes or Sizes()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"simulation seed {self.seed}, {self.now_s:.6f} s: the same seed reproduces it")
            error.add_note("\n".join(["the last events:", *self.trace.lines(LINES_SHOWN)]))

    @property
    def now_s(self) -> float:
        """Virtual seconds since it began."""
        return (self.clock.now_us - START_US) / 1e6

    def broker(self, name: str, sizes: Sizes | None = None, gives_positions: bool = True) -> Node:
        """A new broker, which is up. name: also of its machine and its cluster; without spaces.

        gives_positions: links from it tell what they have had already. A RabbitMQ does not, so with False this one is
        like a RabbitMQ for links: what was unacknowledged at a cut comes twice.
        """
        if name in self.nodes or " " in name:
            raise ValueError(f"{name!r} can't be the name of another broker")
        machine = Machine(name, str(self.seed), self.clock, self.network, self.trace, sizes or self._sizes)
        machine.gives_positions = gives_positions
        machine.counts = self.counts
        machine.on_fault = self._fault
        node = self.nodes[name] = Node(self, machine)
        machine.start()
        return node

    # -- time ----------------------------------------------------------------------------------------------------------

    def at(self, after_s: float, call: Callable[[], object]) -> None:
        """Do something after so many virtual seconds."""
        self.clock.later(int(after_s * 1e6), call)

    def run(self, for_s: float | None = None, until: Callable[[], bool] | None = None, limit_s: float = 3600) -> None:
        """Let virtual time pass: for_s seconds, or until something is true, which is asked after each event.

        TimeoutError if it is not within limit_s virtual seconds.
        """
        clock = self.clock
        end_us = clock.now_us + int((limit_s if for_s is None else for_s) * 1e6)
        while until is None or not until():
            next_us = clock.next_us()
            if next_us is None or next_us > end_us:
                clock.now_us = end_us
                if for_s is None:
                    raise TimeoutError(f"the condition did not become true within {limit_s:g} virtual seconds")
                return
            clock.step()

    def settle(self, limit_s: float = 600) -> None:
        """Let time pass until all is at rest: links run, their bindings are upstream, nothing waits in an upstream
        queue, publishers have their answers. TimeoutError, which says what is not, after limit_s virtual seconds."""
        end_us = self.clock.now_us + int(limit_s * 1e6)
        quiet = 0
        while quiet < 3:
            self.run(SETTLE_STEP_US / 1e6)
            unrest = self.unrest()
            quiet = 0 if unrest else quiet + 1
            if unrest and self.clock.now_us > end_us:
                raise TimeoutError("not at rest: " + "; ".join(unrest))

    def unrest(self) -> list[str]:
        """What is not at rest, in words."""
        found: list[str] = []
        for node in self.nodes.values():
            life = node.machine.life
            if life is None:
                found.append(f"{node.name} is down")
                continue
            if life.broker.log.size() or life.committer.is_syncing:
                found.append(f"{node.name} writes to its disk")
            for link in node.links():
                what = f"{node.name}'s link of {link.exchange} to {link.upstream}"
                if link.status not in (RUNNING, PAUSED, REFUSED):
                    found.append(f"{what} is {link.status} {link.error}")
                elif link.status == RUNNING and (link.unbound or link.unacknowledged):
                    found.append(f"{what} has {link.unbound} bindings, {link.unacknowledged} messages in transit")
            for name, queue in life.broker.vhosts["/"].queues.items():
                if name.startswith("federation: ") and (queue.count() or queue.unacked):
                    found.append(f"{node.name}'s '{name}' holds {int(queue.count() + queue.unacked)} messages")
        found += [f"{each.name} waits" for each in self._publishers() if not each.is_done]
        return found

    def _publishers(self) -> list[Publisher]:
        return [each for each in self.clients if isinstance(each, Publisher)]

    @property
    def clients(self) -> list[Client]:
        """All clients that were made."""
        return [client for node in self.nodes.values() for client in node.clients]

    # -- faults --------------------------------------------------------------------------------------------------------

    def partition(self, one: Node, other: Node, for_s: float, after_s: float = 0, direction: str = BOTH) -> None:
        """Nothing gets from one broker's machine to the other's, and with direction "both" not back either.

        Connections stall; they are not closed. What is on its way arrives when it is over, if nobody gave up meanwhile.
        """
        pairs = [(one.name, other.name)]
        if direction == BOTH:
            pairs.append((other.name, one.name))

        def begin() -> None:
            self.counts["partition"] += 1
            for pair in pairs:
                self.trace.note("network", "stalls", *pair)
                self.network.block(*pair)
            healed = self._healed
            self.clock.later(int(for_s * 1e6), lambda: end() if self._healed == healed else None)

        def end() -> None:
            for pair in pairs:
                self.trace.note("network", "goes on", *pair)
                self.network.unblock(*pair)

        self.clock.later(int(after_s * 1e6), begin)

    def reset(self, one: Node, other: Node, after_s: float = 0) -> None:
        """Break all connections between two brokers; bytes on their way are cut anywhere."""

        def cut() -> None:
            self._fault("reset")
            self.trace.note("network", "resets", one.name, other.name)
            self.network.reset(one.name, other.name)

        self.clock.later(int(after_s * 1e6), cut)

    def crash(self, node: Node, for_s: float | None = 1, after_s: float = 0, is_power_cut: bool = True) -> None:
        """A broker's machine loses its power, and what was written to its disk but not synced may be lost in any part,
        the last write of it torn. It comes back after for_s virtual seconds, never with None.

        With is_power_cut=False only the process is killed, and what it has written stays.
        """
        off_us = None if for_s is None else int(for_s * 1e6)
        self.clock.later(int(after_s * 1e6), lambda: node.machine.crash(off_us, is_power_cut))

    def crash_at_disk_operation(self, node: Node, number: int, for_s: float | None = 1) -> None:
        """The power fails at the disk operation that is so many ahead, from 1: a write, a sync, a rename."""
        node.machine.crash_at(number, None if for_s is None else int(for_s * 1e6))

    def stop(self, node: Node, for_s: float | None = 1, after_s: float = 0) -> None:
        """An orderly stop of a broker, which comes back after for_s virtual seconds."""

        def stop() -> None:
            node.machine.stop()
            if for_s is not None:
                self.clock.later(int(for_s * 1e6), node.machine.start)

        self.clock.later(int(after_s * 1e6), stop)

    def start(self, node: Node) -> None:
        """Switch on a broker that is down."""
        node.machine.start()

    def slow_disk(self, node: Node, latency_ms: float, for_s: float, after_s: float = 0) -> None:
        """A broker's disk takes so long for each sync, from half of it to twice as long."""
        machine = node.machine

        def begin() -> None:
            self.trace.note(node.name, "has a slow disk")
            machine.disk_latency_us = int(latency_ms * 1000)
            self.clock.later(int(for_s * 1e6), machine.mend_disk)

        self.clock.later(int(after_s * 1e6), begin)

    def heal(self) -> None:
        """All faults that are under way end now: the network lets all through, brokers that are down come back."""
        self._healed += 1
        self.network.heal()
        for node in self.nodes.values():
            node.machine.mend_disk()
            node.machine.start()

    def _fault(self, what: str) -> None:
        for watch in self.on_fault:
            watch(what)
