"""A machine that runs a broker: its disk can lose unsynced data, and the broker can be restarted many times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from leveret.net.alarms import Gauges
from leveret.store.disk import MemoryDisk
from leveret.testing.simulation.clock import Clock
from leveret.testing.simulation.network import Network
from leveret.testing.simulation.process import JOURNAL, Crash, Process
from leveret.testing.simulation.sizes import Sizes
from leveret.testing.simulation.trace import Trace

RESTART_US: Final = 1_000_000
DISK_US: Final = 500


class Machine:
    """A simulated machine."""

    def __init__(self, name: str, seed: str, clock: Clock, network: Network, trace: Trace, sizes: Sizes) -> None:
        self.name = name
        self.clock = clock
        self.network = network
        self.trace = trace
        self.sizes = sizes
        self.host = network.host(name)
        self.random = Random(f"{seed}/{name}")
        self.disk = MemoryDisk(self._before)
        self.disk_latency_us = DISK_US  # a sync takes between half and twice this time
        self.gives_positions = True
        self.low_on = ""  # the resource that is short: "disk", "memory", or none
        self.boots = 1
        self.life: Process | None = None  # None while the broker is down
        self.counts: Counter[str] = Counter()  # power cuts, kills and torn batches
        self._link_counts: Counter[str] = Counter()
        self.on_fault: Callable[[str], None] = lambda what: None  # called before a crash
        self.on_started: Callable[[], None] = lambda: None
        self._seed = seed
        self._starts = 0
        self._crash_at = 0
        self._off_us: int | None = RESTART_US

    def gauges(self) -> Gauges:
        """Return what its broker's alarms measure, for limits of 1."""
        free = lambda: 0 if self.low_on == "disk" else 2  # noqa: E731
        used = lambda: 2 if self.low_on == "memory" else 0  # noqa: E731
        return Gauges(free, used, lambda: None)

    def disk_us(self) -> int:
        """Return the duration of the next disk operation, in microseconds."""
        return self.random.randrange(self.disk_latency_us // 2, 2 * self.disk_latency_us + 1)

    def mend_disk(self) -> None:
        """Restore the disk's normal latency, and cancel a planned power cut."""
        self.disk_latency_us = DISK_US
        self._crash_at = 0

    def on_synced(self, batch: int) -> None:
        """Trace that a batch was synced."""
        self.trace.note(self.name, "synced", batch)

    def _before(self, operation: str, path: str) -> None:
        self.trace.note(self.name, operation, path)
        if self.disk.operations == self._crash_at:
            raise Crash

    # -- faults --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Switch the machine on. No effect if it is running."""
        if self.life is not None:
            return
        self._starts += 1
        self.trace.note(self.name, "starts")
        self.host.is_on = True
        life = self.life = Process(self, Random(f"{self._seed}/{self.name}/{self._starts}"))
        life.run(life.start)
        if self.life is life:
            self.on_started()

    def stop(self) -> None:
        """Stop the broker in order."""
        if self.life is not None:
            self._count_links()
            self.life.run(self.life.stop)
            self._kill()

    def crash_at(self, operations: int, off_us: int | None) -> None:
        """Cut the power at a disk operation `operations` ahead, for `off_us` microseconds; None means for good."""
        self._crash_at = self.disk.operations + operations
        self._off_us = off_us

    def crash(self, off_us: int | None, is_power: bool) -> None:
        """Cut the power, or only kill the process, for `off_us` microseconds; None means for good."""
        if self.life is None:
            return
        self._off_us = off_us
        work = self.life.work
        if is_power and work.is_waiting and self.random.random() < 0.6 and not work.has_begun:
            # the sync thread is working; it would wait for a sync that the kernel has begun
            self._crash_at = self.disk.operations + self.random.randrange(1, 5)
            try:
                work.perform()
            except Crash:
                pass
        self.crashed(is_power)

    def crashed(self, is_power: bool = True) -> None:
        """Handle a power cut or kill that has just happened."""
        life = self.life
        assert life is not None
        self.on_fault("power cut" if is_power else "kill")
        self._crash_at = 0
        self._count_links()
        life.is_alive = False
        if is_power:
            self._lose_unsynced()
            self.boots += 1
            self.host.is_on = False
            self.host.accept = None
            self.host.went_down()
        self.counts["power cut" if is_power else "kill"] += 1
        self._kill()
        if self._off_us is not None:
            self.trace.note(self.name, "is down for", f"{self._off_us / 1e6:.3f} s")
            self.clock.later(self._off_us, self.start)

    def _kill(self) -> None:
        """End the process: the operating system closes its connections."""
        self.life = None
        self.host.accept = None
        for end in list(self.host.ends):
            end.abort()

    def _lose_unsynced(self) -> None:
        """Let a random part of the unsynced writes reach the disk; the last write may be torn."""
        pending, random = self.disk.pending, self.random
        kept = set(range(random.randrange(len(pending) + 1)))
        if random.random() < 0.5:
            kept = {index for index in range(len(pending)) if random.random() < 0.5}
        writes = [pending[index] for index in sorted(kept) if pending[index].kind == "write"]
        torn = random.randrange(writes[-1].size) if writes and writes[-1].size and random.random() < 0.7 else None
        is_torn = torn is not None and writes[-1].path.startswith(JOURNAL)
        self.counts["torn batch"] += is_torn
        self.trace.note(self.name, "power cut,", len(pending) - len(kept), "of", len(pending), "writes lost", str(torn))
        self.disk.crash(kept, torn, random.random() < 0.3)

    def links_counted(self) -> Counter[str]:
        """Return the totals over all lives of the links' counters: messages, looped, known, reconnects."""
        found = self._link_counts.copy()
        if self.life is not None:
            found += self._counts_of(self.life)
        return found

    def _count_links(self) -> None:
        assert self.life is not None
        self._link_counts += self._counts_of(self.life)

    @staticmethod
    def _counts_of(life: Process) -> Counter[str]:
        found: Counter[str] = Counter()
        for status in life.federator.statuses():
            for name in ("messages", "looped", "known", "reconnects"):
                found[name] += getattr(status, name)
        return found
