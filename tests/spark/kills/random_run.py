"""One run of random kills: at random moments, of the driver, one of its Python processes, or the broker."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .drivers import Death
from .inotify import Inotify
from .on_path.leveret_failpoints import command, kill_and_see, processes
from .producers import Producer
from .run import STUCK_S, Run

VICTIMS: Final = {"driver": 1, "process": 12, "broker": 8}
"""Relative frequency of victims: a driver takes ten times as long to restart as a broker."""

DELAY_S: Final = 1.0
"""The longest time from the progress of the flows to the next kill."""


class RandomRun(Run):
    """A run with a number of kills, each at a random moment after the flows have made progress again."""

    def __init__(self, directory: Path, flows: Sequence[str], kills: int, seed: int) -> None:
        super().__init__(directory, flows, [])
        self.killed: Counter[str] = Counter()
        self._kills = kills
        self._random = random.Random(seed)

    def _kill_all(self, producer: Producer, files: Inotify, watches: dict[int, str]) -> None:
        for _ in range(self._kills):
            known = self._arrows()
            patience_s = time.monotonic() + STUCK_S
            while self._arrows() == known:
                self._go_on(producer, files)
                assert time.monotonic() < patience_s, f"after {dict(self.killed)}: the flows do not go on"
            due_s = time.monotonic() + self._random.uniform(0.0, DELAY_S)
            while time.monotonic() < due_s:
                self._go_on(producer, files)
            victim = self._random.choices(list(VICTIMS), list(VICTIMS.values()))[0]
            self.killed[victim] += 1
            print(f"{self.killed.total()}: {victim}", flush=True)
            self._kill(victim)
        print(f"killed {dict(self.killed)}")

    def _go_on(self, producer: Producer, files: Inotify) -> None:
        files.events(0.02)
        self._seen_s = time.monotonic()
        self._supervise()
        self._report_to(producer)

    def _kill(self, victim: str) -> None:
        assert self._driver is not None
        if victim == "driver":
            self._driver.kill()
        elif victim == "broker":
            kill_and_see(self._broker.pid)
        else:
            found = [pid for pid in processes(self._driver.session) if command(pid).startswith("python")]
            # a source, sink or task process; not the script itself, which is the driver
            kill_and_see(self._random.choice([pid for pid in found if pid != self._driver.session]))
            self._note()

    def _is_needed(self, number: int) -> bool:
        # a standby driver that waits through a dozen other kills costs more than it saves
        return False

    def _judge(self, found: list[Death]) -> None:
        killed = self.killed["driver"] == len(self.deaths) // len(self.flows) + 1
        assert killed, f"a driver died by itself:\n{self._driver and self._driver.account()}"

    def _check_steps(self, repeated: set[str]) -> None:
        assert self.broker_kills == self.killed["broker"]

    def _arrows(self) -> int:
        """Return the size of the event log, which shows progress of the flows."""
        path = self._state / "events.jsonl"
        return path.stat().st_size if path.exists() else 0
