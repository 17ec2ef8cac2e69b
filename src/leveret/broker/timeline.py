"""The broker's time and the wall clock, as the journal records them, so that a restart can continue.

Everything in the broker uses the broker's time, which runs evenly whatever happens to the wall clock (net/clock.py).
Users are shown the wall clock's time: `wall_us`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mypy_extensions import i64

from leveret.broker.storage.log import Log, meta_record
from leveret.wire.table import Value

OP: Final = "clock"


class ClockSample(NamedTuple):
    """One moment by all clocks, in µs: the broker's, the wall clock, and the time since the machine was booted.

    boot_id identifies the boot, "" = unknown. The wall clock was not set between two samples.
    """

    broker_us: int
    wall_us: int
    boot_us: int
    boot_id: str


class Timeline:
    """Converts the broker's time to that of the wall clock."""

    def __init__(self, log: Log) -> None:
        self.sample: ClockSample | None = None  # the last one; a journal file begins with it
        self.offset_us: i64 = 0  # how far the wall clock is ahead of the broker
        self._log = log

    def wall_us(self, us: i64) -> i64:
        """Return what the wall clock, as it is set now, shows at this broker's time."""
        return us + self.offset_us

    def note(self, sample: ClockSample) -> None:
        """Set and journal a sample."""
        self._set(sample)
        self._log.meta(_record(sample))

    def restore(self, record: dict[str, Value]) -> None:
        """Set a sample from the journal. Raises KeyError or ValueError if the record is malformed."""
        broker_us, wall_us, boot_us = (int(str(record[name])) for name in ("broker_us", "wall_us", "boot_us"))
        self._set(ClockSample(broker_us, wall_us, boot_us, str(record["boot_id"])))

    def _set(self, sample: ClockSample) -> None:
        self.sample = sample
        self.offset_us = sample.wall_us - sample.broker_us

    def snapshot(self) -> list[bytes]:
        """Return its record for the beginning of a journal file."""
        return [] if self.sample is None else [meta_record(_record(self.sample))]


def _record(sample: ClockSample) -> dict[str, Value]:
    return {"op": OP, **sample._asdict()}
