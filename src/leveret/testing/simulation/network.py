"""The simulated network: hosts, connections between them, and faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from leveret.testing.simulation.clock import Clock
from leveret.testing.simulation.stream import End, EndUser
from leveret.testing.simulation.trace import Trace

# roughly as long as Linux retransmits a SYN before it gives up
DIAL_TIMEOUT_US: Final = 30_000_000
# a stalled connection resumes within this time after the network does: TCP retransmits
RETRANSMIT_US: Final = 200_000

# called with the accepted end of a new connection; returns the end's user
Accept = Callable[[End], EndUser]


class SimulatedHost:
    """A machine on the network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.accept: Accept | None = None  # accepts connections; None if nobody listens
        self.is_on = True  # whether it answers at all
        self.ends: list[End] = []

    def went_down(self) -> None:
        """Drop all its connections without telling their other ends."""
        ends, self.ends = self.ends, []
        for end in ends:
            end.die()


class Network:
    """A network with latency and faults."""

    def __init__(self, clock: Clock, random: Random, trace: Trace, latency_us: int, jitter_us: int) -> None:
        self.clock = clock
        self.random = random  # for delays, and for the sizes of packets
        self.trace = trace
        self.latency_us = latency_us  # a packet takes latency_us plus up to jitter_us, in each direction
        self.jitter_us = jitter_us
        self.counts: Counter[str] = Counter()  # connections by fault
        self.hosts: dict[str, SimulatedHost] = {}
        self._blocked: Counter[tuple[str, str]] = Counter()

    def host(self, name: str) -> SimulatedHost:
        """Return the host of this name, created if it does not exist."""
        return self.hosts.setdefault(name, SimulatedHost(name))

    def delay_us(self, source: str, target: str) -> int:
        """Return the delay of the next packet. Packets between a host and itself or its own clients are quick."""
        if source.partition(" ")[0] == target.partition(" ")[0]:
            return self.random.randrange(20, 200)
        return self.latency_us + self.random.randrange(self.jitter_us + 1)

    def is_blocked(self, source: str, target: str) -> bool:
        """Whether packets from one host to another are blocked."""
        return self._blocked[source, target] > 0

    # -- connections ---------------------------------------------------------------------------------------------------

    def dial(self, source: SimulatedHost, name: str, user: EndUser, connected: Callable[[], None]) -> End:
        """Begin to connect; later, `connected` or user.lost is called."""
        end = End(self, source, user, name)
        source.ends.append(end)
        self._knock(end, name, connected, self.clock.now_us + DIAL_TIMEOUT_US)
        return end

    def _knock(self, end: End, name: str, connected: Callable[[], None], until_us: int) -> None:
        """Retry until the target answers, or the time is up."""
        source = end.host

        def arrive() -> None:
            if end.is_over:
                return
            target = self.hosts.get(name)
            if target is None:
                end.fail(f"unknown host {name!r}")
            elif self.is_blocked(source.name, name) or self.is_blocked(name, source.name) or not target.is_on:
                if self.clock.now_us > until_us:
                    end.fail("timed out")
                else:
                    self.clock.later(4 * RETRANSMIT_US, arrive)
            elif target.accept is None:
                end.fail("connection refused")
            else:
                end.meet(target, target.accept)
                connected()

        self.clock.later(self.delay_us(source.name, name) + self.delay_us(name, source.name), arrive)

    # -- faults --------------------------------------------------------------------------------------------------------

    def block(self, source: str, target: str) -> None:
        """Block packets from one host to another; open connections stall. Blocks add up."""
        self._blocked[source, target] += 1

    def unblock(self, source: str, target: str) -> None:
        """Undo one block."""
        self._blocked[source, target] -= 1
        if not self.is_blocked(source, target):
            for end in list(self.host(target).ends):
                if end.comes_from(source):
                    end.wake(self.random.randrange(RETRANSMIT_US))

    def heal(self) -> None:
        """Undo all blocks."""
        for pair in [pair for pair, count in self._blocked.items() if count]:
            self._blocked[pair] = 1
            self.unblock(*pair)

    def reset(self, one: str, other: str) -> int:
        """Break all connections between two hosts, at any byte; return their number."""
        ends = [end for end in list(self.host(one).ends) if end.comes_from(other)]
        for end in ends:
            end.break_off()
        self.counts["reset"] += len(ends)
        return len(ends)
