"""Leveret and RabbitMQ side by side: where do their answers to a script differ?"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, Self

from .justified import KINDS
from .player import Seen
from .script import Script, Step, show

REPLAYS = 5


@dataclass(frozen=True)
class Difference:
    """The first step after which the two results differ."""

    script: Script
    index: int
    leveret: Seen
    rabbitmq: Seen

    @property
    def step(self) -> Step:
        return self.script[self.index]

    @property
    def kind(self) -> str:
        """The name of the intended kind of difference; "" if it is a defect."""
        seen = (self.step, self.leveret, self.rabbitmq)
        return next((each.name for each in KINDS if each.covers is not None and each.covers(*seen)), "")

    def show(self) -> str:
        """Return a readable text: the script up to there, and both results."""
        script = show(self.script[: self.index + 1])
        return f"{script}\n--- leveret\n{self.leveret.show()}\n--- RabbitMQ\n{self.rabbitmq.show()}"


class Plays(Protocol):
    """A broker, or its recorded answers."""

    def play(self, script: Script) -> list[Seen]:
        """Return the results, step by step."""


class Pair:
    """Both brokers for a whole run; a recording may replace RabbitMQ.

    Attributes:
        scripts: How many scripts were compared so far.
        steps: How many of their steps.
        undefined: Scripts that were not compared to their end, as RabbitMQ disagreed with itself.
        justified: Intended kind of difference -> how many steps were left out for it.
    """

    def __init__(self, leveret: Plays, rabbitmq: Plays) -> None:
        self.leveret, self.rabbitmq = leveret, rabbitmq
        self._threads = ThreadPoolExecutor(2)
        self.scripts = 0
        self.steps: Counter[str] = Counter()
        self.undefined = 0
        self.justified: Counter[str] = Counter()

    def show(self) -> str:
        """Return a summary of what was compared."""
        steps = ", ".join(f"{method} {count}" for method, count in sorted(self.steps.items()))
        kinds = ", ".join(f"{name} {count}" for name, count in self.justified.items()) or "none"
        return (f"{self.scripts} scripts, {self.steps.total()} steps: {steps}\n"
                f"RabbitMQ disagreed with itself over {self.undefined} of them, which ended early\n"
                f"justified differences, after which a script went on without the step: {kinds}")

    def difference(self, script: Script) -> Difference | None:
        """Return the difference that is a defect of leveret; None if there is none.

        If several of its processes are involved, RabbitMQ's own answers vary. So it is asked again: a difference counts
        if RabbitMQ always gives the same answer, and never leveret's.

        After an intended difference the two are in different states, so both begin again without that step.
        """
        self.scripts += 1
        self.steps.update(each.does for each in script)
        while True:
            ours = self._threads.submit(self.leveret.play, script)
            theirs = self._threads.submit(self.rabbitmq.play, script)
            found = first_difference(script, ours.result(), theirs.result())
            if found is None:
                return None
            if not found.kind:
                break
            self.justified[found.kind] += 1
            script = script[: found.index] + script[found.index + 1 :]
        for _ in range(REPLAYS):
            again = first_difference(script, ours.result(), self.rabbitmq.play(script))
            if again is None or (again.index, again.rabbitmq) != (found.index, found.rabbitmq):
                self.undefined += 1
                return None
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()


def first_difference(script: Script, ours: list[Seen], theirs: list[Seen]) -> Difference | None:
    """Return where two results of a script differ."""
    for index, (leveret, rabbitmq) in enumerate(zip(ours, theirs, strict=True)):
        if leveret != rabbitmq:
            return Difference(script, index, leveret, rabbitmq)
    return None
