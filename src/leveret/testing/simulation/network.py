"""The network: hosts, connections between them, and what befalls these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from leveret.testing.simulation.clock import Clock
from leveret.testing.simulation.stream import End, EndUser
from leveret.testing.simulation.trace import Trace

# as long as Linux retransmits a SYN before it gives up, more or less
DIAL_TIMEOUT_US: Final = 30_000_000
# a stalled connection goes on so soon after the network does: TCP sends again
RETRANSMIT_US: Final = 200_000

# a connection came in: its end here; returns who uses it
Accept = Callable[[End], EndUser]


class Host:
    """A machine on the network. accept: who listens, None = nobody does; is_on: it answers at all."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.accept: Accept | None = None
        self.is_on = True
        self.ends: list[End] = []

    def went_down(self) -> None:
        """Its connections end, and nobody says so."""
        ends, self.ends = self.ends, []
        for end in ends:
            end.die()


class Network:
    """latency_us and jitter_us: of each direction of each connection; a packet takes the one and up to the other.

    random: for delays and for where packets are cut. counts: of what befell connections.
    """

    def __init__(self, clock: Clock, random: Random, trace: Trace, latency_us: int, jitter_us: int) -> None:
        self.clock = clock
        self.random = random
        self.trace = trace
        self.latency_us = latency_us
        self.jitter_us = jitter_us
        self.counts: Counter[str] = Counter()
        self.hosts: dict[str, Host] = {}
        self._blocked: Counter[tuple[str, str]] = Counter()

    def host(self, name: str) -> Host:
        """The host of this name, a new one if there is none."""
        return self.hosts.setdefault(name, Host(name))

    def delay_us(self, source: str, target: str) -> int:
        """How long the next packet takes. A host's packets to itself, and to its own clients, are quick."""
        if source.partition(" ")[0] == target.partition(" ")[0]:
            return self.random.randrange(20, 200)
        return self.latency_us + self.random.randrange(self.jitter_us + 1)

    def is_blocked(self, source: str, target: str) -> bool:
        """Whether packets of one host do not reach another."""
        return self._blocked[source, target] > 0

    # -- connections ---------------------------------------------------------------------------------------------------

    def dial(self, source: Host, name: str, user: EndUser, connected: Callable[[], None]) -> End:
        """Begin to connect; connected, or user.lost, is called later."""
        end = End(self, source, user, name)
        source.ends.append(end)
        self._knock(end, name, connected, self.clock.now_us + DIAL_TIMEOUT_US)
        return end

    def _knock(self, end: End, name: str, connected: Callable[[], None], until_us: int) -> None:
        """Try until somebody answers."""
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
        """From now on nothing gets from one host to another; what is under way stalls."""
        self._blocked[source, target] += 1

    def unblock(self, source: str, target: str) -> None:
        """It does again, unless it was blocked twice."""
        self._blocked[source, target] -= 1
        if not self.is_blocked(source, target):
            for end in list(self.host(target).ends):
                if end.comes_from(source):
                    end.wake(self.random.randrange(RETRANSMIT_US))

    def heal(self) -> None:
        """Nothing is blocked any more."""
        for pair in [pair for pair, count in self._blocked.items() if count]:
            self._blocked[pair] = 1
            self.unblock(*pair)

    def reset(self, one: str, other: str) -> int:
        """Break all connections between two hosts, at any byte; how many there were."""
        ends = [end for end in list(self.host(one).ends) if end.comes_from(other)]
        for end in ends:
            end.break_off()
        self.counts["reset"] += len(ends)
        return len(ends)
