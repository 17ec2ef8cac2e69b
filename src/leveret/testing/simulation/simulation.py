"""The simulated world: brokers, the network, clients and faults, all determined by one seed."""

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
Place = Node | Client


class Simulation:
    """A simulation. As a context manager it adds the seed and the last events to errors.

    Args:
        seed: the same seed and calls give the same run, to the last byte on every connection and disk.
        latency_ms, jitter_ms: of the network between brokers, in each direction.
        sizes: of the brokers' files and pages.
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
        self._healed = 0  # how often `heal` was called
        self.on_fault: list[Callable[[str], None]] = []  # called before a crash or reset, with its name
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
        """Virtual seconds since the start."""
        return (self.clock.now_us - START_US) / 1e6

    def broker(self, name: str, sizes: Sizes | None = None, gives_positions: bool = True) -> Node:
        """Create a broker and start it.

        Args:
            name: also of its machine and its cluster; without spaces.
            sizes: of its files and pages; None for those of the simulation.
            gives_positions: whether the broker, as an upstream, gives links the positions of messages, by which they
                recognize repeats. With False it is like RabbitMQ: messages unacknowledged at a cut are transferred
                    twice.
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
        """Call a function after `after_s` virtual seconds."""
        self.clock.later(int(after_s * 1e6), call)

    def run(self, for_s: float | None = None, until: Callable[[], bool] | None = None, limit_s: float = 3600) -> None:
        """Let virtual time pass: `for_s` seconds, or until a condition is true, which is checked after each event.

        Raises TimeoutError if it is not true within `limit_s` virtual seconds.
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
        """Run until nothing is pending.

        Links run, their bindings are upstream, upstream queues are empty, publishers have their confirms, and all that
        was sent has been read. Raises TimeoutError, with what is pending, after `limit_s` virtual seconds.
        """
        end_us = self.clock.now_us + int(limit_s * 1e6)
        quiet = 0
        while quiet < 3:
            self.run(SETTLE_STEP_US / 1e6)
            unrest = self.unrest()
            quiet = 0 if unrest else quiet + 1
            if unrest and self.clock.now_us > end_us:
                raise TimeoutError("not at rest: " + "; ".join(unrest))

    def unrest(self) -> list[str]:
        """Describe what is pending."""
        found: list[str] = []
        for node in self.nodes.values():
            life = node.machine.life
            if life is None:
                found.append(f"{node.name} is down")
                continue
            if life.is_writing:
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
        found += [f"{each.name} waits" for each in self.clients if isinstance(each, Publisher) and not each.is_done]
        ends = (end for host in self.network.hosts.values() for end in host.ends)
        found += [f"{end.host.name} has not read all from {end.peer_name}" for end in ends if end.incoming_octets()]
        return found

    @property
    def clients(self) -> list[Client]:
        """All clients of all brokers."""
        return [client for node in self.nodes.values() for client in node.clients]

    # -- faults --------------------------------------------------------------------------------------------------------

    def partition(self, one: Place, other: Place, for_s: float, after_s: float = 0, direction: str = BOTH) -> None:
        """Drop packets from one broker's or client's machine to the other's and, with direction "both", those back too.

        Connections stall but stay open; delayed data arrives afterwards, unless a side has given up.
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

    def reset(self, one: Place, other: Place, after_s: float = 0) -> None:
        """Break all connections between two brokers, or a client and its broker, at any byte."""

        def cut() -> None:
            self._fault("reset")
            self.trace.note("network", "resets", one.name, other.name)
            self.network.reset(one.name, other.name)

        self.clock.later(int(after_s * 1e6), cut)

    def crash(self, node: Node, for_s: float | None = 1, after_s: float = 0, is_power_cut: bool = True) -> None:
        """Cut the power of a broker's machine: any part of the unsynced data may be lost, and the last write torn.

        It restarts after `for_s` virtual seconds, never with None. With is_power_cut=False only the process is killed,
        and everything written stays.
        """
        off_us = None if for_s is None else int(for_s * 1e6)
        self.clock.later(int(after_s * 1e6), lambda: node.machine.crash(off_us, is_power_cut))

    def crash_at_disk_operation(self, node: Node, number: int, for_s: float | None = 1) -> None:
        """Cut the power at the `number`th disk operation (write, sync, rename …) from now, counted from 1."""
        node.machine.crash_at(number, None if for_s is None else int(for_s * 1e6))

    def stop(self, node: Node, for_s: float | None = 1, after_s: float = 0) -> None:
        """Stop a broker in order; it restarts after `for_s` virtual seconds, never with None."""

        def stop() -> None:
            node.machine.stop()
            if for_s is not None:
                self.clock.later(int(for_s * 1e6), node.machine.start)

        self.clock.later(int(after_s * 1e6), stop)

    def start(self, node: Node) -> None:
        """Switch on a broker that is down."""
        node.machine.start()

    def slow_disk(self, node: Node, latency_ms: float, for_s: float, after_s: float = 0) -> None:
        """Make each sync of a broker take between half and twice `latency_ms`, for `for_s` virtual seconds."""
        machine = node.machine

        def begin() -> None:
            self.trace.note(node.name, "has a slow disk")
            machine.disk_latency_us = int(latency_ms * 1000)
            self.clock.later(int(for_s * 1e6), machine.mend_disk)

        self.clock.later(int(after_s * 1e6), begin)

    def low_on(self, node: Node, what: str, for_s: float, after_s: float = 0) -> None:
        """Let a broker's "memory" or "disk" be short for `for_s` virtual seconds: its alarm blocks publishers."""
        machine = node.machine

        def begin() -> None:
            self.trace.note(node.name, "is low on", what)
            machine.low_on = what
            self.clock.later(int(for_s * 1e6), end)

        def end() -> None:
            machine.low_on = ""

        self.clock.later(int(after_s * 1e6), begin)

    def heal(self) -> None:
        """End all current faults: the network is unblocked, disks are normal, and brokers restart."""
        self._healed += 1
        self.network.heal()
        for node in self.nodes.values():
            node.machine.mend_disk()
            node.machine.low_on = ""
            node.machine.start()

    def _fault(self, what: str) -> None:
        for watch in self.on_fault:
            watch(what)
