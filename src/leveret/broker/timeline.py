"""The broker's time and the wall's, side by side: what the journal knows of them, so that a restart can go on.

Everything in the broker happens at the broker's time, which goes evenly, whatever becomes of the wall clock
(net/clock.py). People are told the wall's time: `wall_us`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mypy_extensions import i64

from leveret.broker.storage.log import Log, meta_record
from leveret.wire.table import Value

OP: Final = "clock"


class Sample(NamedTuple):
    """One moment by all clocks, in µs: the broker's, the wall's, and that of the machine since it was booted.

    boot_id: which boot that was, "" = the system does not say. Until the next sample the wall clock was not set.
    """

    broker_us: int
    wall_us: int
    boot_us: int
    boot_id: str


class Timeline:
    """sample: the last one; a journal file begins with it. offset_us: how far the wall is ahead of the broker."""

    def __init__(self, log: Log) -> None:
        self.sample: Sample | None = None
        self.offset_us: i64 = 0
        self._log = log

    def wall_us(self, us: i64) -> i64:
        """What a clock on the wall shows at this time of the broker's, as it is set now."""
        return us + self.offset_us

    def note(self, sample: Sample) -> None:
        """Write a sample down."""
        self._set(sample)
        self._log.meta(_record(sample))

    def restore(self, record: dict[str, Value]) -> None:
        """The journal has this sample. KeyError or ValueError if it is none."""
        broker_us, wall_us, boot_us = (int(str(record[name])) for name in ("broker_us", "wall_us", "boot_us"))
        self._set(Sample(broker_us, wall_us, boot_us, str(record["boot_id"])))

    def _set(self, sample: Sample) -> None:
        self.sample = sample
        self.offset_us = sample.wall_us - sample.broker_us

    def snapshot(self) -> list[bytes]:
        """What a journal file says of it at its beginning."""
        return [] if self.sample is None else [meta_record(_record(self.sample))]


def _record(sample: Sample) -> dict[str, Value]:
    return {"op": OP, **sample._asdict()}
