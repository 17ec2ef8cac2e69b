"""A clock that stands still until a test advances it; its brokers then do everything that is due, in order of time."""

from __future__ import annotations

import itertools
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.testing.kit.run import BrokerRun

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
# one advance checks at most this many times for deliveries that are unacknowledged for too long
LOOKS_MAX: Final = 4096
_numbers = itertools.count(1)


class VirtualClock:
    """A clock for any number of brokers, which stands still until it is advanced.

    Args:
        start: its first time, with a time zone; by default the present.
    """

    def __init__(self, start: datetime | None = None) -> None:
        if start is not None and start.tzinfo is None:
            raise ValueError(f"the start {start!r} must have a time zone, such as datetime.UTC")
        start = start or datetime.now(UTC).replace(microsecond=0)
        self.now_us = (start - _EPOCH) // _US  # the current time, in microseconds since 1970
        self.boot_id = f"virtual-{next(_numbers)}"  # the boot id of the machine that its brokers believe to run on
        self._began_us = self.now_us
        self._runs: dict[BrokerRun, None] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<VirtualClock at {self.now().isoformat()}>"

    def now(self) -> datetime:
        """Return the current time of the clock."""
        return _EPOCH + timedelta(microseconds=self.now_us)

    def next_due(self) -> datetime | None:
        """Return the time of the next timer of any of its brokers; None if no timer is set."""
        due_us = self._next_us()
        return _EPOCH + timedelta(microseconds=max(due_us, self.now_us)) if due_us else None

    def advance(
        self, delta: timedelta | None = None, *, days: float = 0, hours: float = 0, minutes: float = 0,
        seconds: float = 0, milliseconds: float = 0,
    ) -> datetime:  # fmt: skip
        """Advance the clock and return its new time.

        When this returns, everything that was due has happened, one event after the other, each at its own time, and
        has been written to the sockets. Clients react at the new time. Raises ValueError for a negative time.
        """
        passed = (delta or timedelta()) + timedelta(
            days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )
        if passed < timedelta():
            raise ValueError(f"time does not go back: {passed}")
        with self._lock:
            self._move(self.now_us + passed // _US)
            return self.now()

    def advance_to(self, instant: datetime) -> datetime:
        """Advance the clock to this time."""
        return self.advance(instant - self.now())

    def advance_to_next(self) -> datetime | None:
        """Advance the clock to the next timer and let it fire. Without a timer, return None and change nothing."""
        due = self.next_due()
        return None if due is None else self.advance_to(due)

    # -- for the brokers -----------------------------------------------------------------------------------------------

    def boot_us(self, now_us: int) -> int:
        """Return the machine's uptime in microseconds: one second plus the time since the clock was created."""
        return now_us - self._began_us + 1_000_000

    def join(self, broker_run: BrokerRun) -> None:
        """Make this broker run use the clock."""
        with self._lock:
            self._runs[broker_run] = None

    def leave(self, broker_run: BrokerRun) -> None:
        """Remove a broker run that has ended."""
        self._runs.pop(broker_run, None)

    def _next_us(self) -> int:
        return min((due for broker_run in list(self._runs) if (due := broker_run.next_due_us())), default=0)

    def _move(self, target_us: int) -> None:
        look_us_min = (target_us - self.now_us) // LOOKS_MAX
        while True:
            due = [self._next_us(), *(self.now_us + max(us, look_us_min) for us in self._looks_us())]
            stop_us = max(self.now_us, min((us for us in due if us), default=target_us))
            is_last = stop_us >= target_us
            self.now_us = min(stop_us, target_us)
            for broker_run in list(self._runs):
                broker_run.move(self.now_us)
            # a federation link may have moved a dead letter to another broker, where a timer is due now
            if is_last and not 0 < self._next_us() <= target_us:
                return

    def _looks_us(self) -> list[int]:
        return [us for broker_run in list(self._runs) if (us := broker_run.look_interval_us())]
