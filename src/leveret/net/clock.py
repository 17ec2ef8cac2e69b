"""The broker's time: it begins with the wall clock's, and runs evenly from then on, even if the wall clock is set.

While the broker runs, and over its restart, time is counted by a clock that nobody can set: the machine's time since
boot, including suspension. Over a reboot there is only the wall clock: the time it shows as passed since the last
sample in the journal counts, but never less than nothing. A sample is written whenever the wall clock was set, so a
step that was noticed never counts as time that has passed.

So nothing falls due early because somebody sets the wall clock. What no broker can know is how the wall clock was set
in the last second before a power cut, or between a boot and the first sample after it. If it is behind then, messages
come late, not early.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from leveret.broker.timeline import ClockSample, Timeline

logger = logging.getLogger("leveret")

# both clocks are slewed alike, so a difference of more than this since the last sample is a step
STEP_US_MIN: Final = 1_000
# after a reboot with a wall clock that is behind, the broker's time goes back to the last sample, so one is written
# this often
SAMPLE_US: Final = 600_000_000
# how often reading both clocks within half of STEP_US_MIN is tried, as they cannot be read at the same instant
READS_MAX: Final = 8
EARLIEST_US: Final = 1_000_000  # times count from 1970, and 0 means "never" in many places
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class Sources(NamedTuple):
    """The clocks that time is read from.

    Attributes:
        wall_ns: Returns ns since 1970, according to the wall clock.
        boot_ns: Returns ns since the boot, including suspension.
        boot_id: Identifies that boot.
        runs: Time passes by itself. If not, a test moves it on, and then runs what is due (leveret.testing).
    """

    wall_ns: Callable[[], int]
    boot_ns: Callable[[], int]
    boot_id: str
    runs: bool = True


def system_sources() -> Sources:
    """The clocks of this machine. If it does not say which boot this is, each start counts as another boot."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    try:
        with open(_BOOT_ID) as file:
            boot_id = file.read().strip()
    except OSError:
        boot_id = ""
    return Sources(time.time_ns, partial(time.clock_gettime_ns, boot_clock), boot_id)


class Clock:
    """The broker's time; also writes the timeline's samples."""

    def __init__(self, timeline: Timeline, sources: Sources) -> None:
        self._timeline = timeline
        self._boot_ns = sources.boot_ns
        self._sources = sources
        wall_us, boot_us = self._read()
        self._began_us = max(wall_us, EARLIEST_US) - boot_us  # the broker's time at the boot

    @property
    def runs(self) -> bool:
        """Whether time passes by itself (`Sources`)."""
        return self._sources.runs

    def now_us(self) -> int:
        """The broker's time, in µs."""
        return self._boot_ns() // 1000 + self._began_us

    def resume(self) -> int:
        """Continue from the end of the last epoch, as the timeline knows it by now; returns `now_us`."""
        last = self._timeline.sample
        if last is not None:
            wall_us, boot_us = self._read()
            if last.boot_id and last.boot_id == self._sources.boot_id and boot_us >= last.boot_us:
                self._began_us = last.broker_us - last.boot_us
            else:
                passed_us = wall_us - last.wall_us - STEP_US_MIN  # steps that are too small to be seen have not passed
                self._began_us = last.broker_us + max(0, passed_us) - boot_us
        return self.now_us()

    def look(self, is_ending: bool = False) -> None:
        """Write a sample if the clock was set, after a reboot, or when the last one is old. Called about once a second.

        is_ending: write one in any case.
        """
        wall_us, boot_us = self._read()
        sample = ClockSample(boot_us + self._began_us, wall_us, boot_us, self._sources.boot_id)
        last = self._timeline.sample
        if last is None:
            self._timeline.note(sample)
            return
        step_us = sample.wall_us - sample.broker_us - int(self._timeline.offset_us)
        is_new = last.boot_id != sample.boot_id or sample.broker_us - last.broker_us >= SAMPLE_US
        if abs(step_us) >= STEP_US_MIN:
            _tell(step_us)
        elif not (is_new or is_ending):
            return
        self._timeline.note(sample)

    def _read(self) -> tuple[int, int]:
        """The wall clock's time and the time since boot, at nearly the same instant, in µs."""
        boot_ns, wall_ns = self._boot_ns(), self._sources.wall_ns()
        for _ in range(READS_MAX):
            after_ns = self._boot_ns()
            if after_ns - boot_ns < STEP_US_MIN * 500:
                break
            boot_ns, wall_ns = after_ns, self._sources.wall_ns()
        return wall_ns // 1000, boot_ns // 1000


def _tell(step_us: int) -> None:
    way = "forward" if step_us > 0 else "back"
    logger.warning(
        "the wall clock was set %s by %.3f s; the broker's own clock is not affected", way, abs(step_us) / 1e6
    )
