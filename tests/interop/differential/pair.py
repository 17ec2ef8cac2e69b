"""Leveret and RabbitMQ side by side: where do they differ on a script?"""

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
    """The first step after which the two saw different things."""

    script: Script
    index: int
    leveret: Seen
    rabbitmq: Seen

    @property
    def step(self) -> Step:
        return self.script[self.index]

    @property
    def kind(self) -> str:
        """The name of the justified kind of difference that this is; "" if it is a defect."""
        seen = (self.step, self.leveret, self.rabbitmq)
        return next((each.name for each in KINDS if each.covers is not None and each.covers(*seen)), "")

    def show(self) -> str:
        """Text for a person: the script up to there, and both sides."""
        script = show(self.script[: self.index + 1])
        return f"{script}\n--- leveret\n{self.leveret.show()}\n--- RabbitMQ\n{self.rabbitmq.show()}"


class Plays(Protocol):
    """A broker, or what stands for it."""

    def play(self, script: Script) -> list[Seen]:
        """Everything that is seen, step by step."""


class Pair:
    """Both brokers for a whole run; a recording may stand for RabbitMQ.

    Attributes:
        scripts, steps: what was compared so far.
        undefined: the scripts that were not compared to their end, as RabbitMQ disagreed with itself.
        justified: how often steps were left out for a kind of difference that is meant to be.
    """

    def __init__(self, leveret: Plays, rabbitmq: Plays) -> None:
        self.leveret, self.rabbitmq = leveret, rabbitmq
        self._threads = ThreadPoolExecutor(2)
        self.scripts = 0
        self.steps: Counter[str] = Counter()
        self.undefined = 0
        self.justified: Counter[str] = Counter()

    def show(self) -> str:
        """What was compared, in a few lines."""
        steps = ", ".join(f"{method} {count}" for method, count in sorted(self.steps.items()))
        kinds = ", ".join(f"{name} {count}" for name, count in self.justified.items()) or "none"
        return (f"{self.scripts} scripts, {self.steps.total()} steps: {steps}\n"
                f"RabbitMQ disagreed with itself over {self.undefined} of them, which ended early\n"
                f"justified differences, after which a script went on without the step: {kinds}")

    def difference(self, script: Script) -> Difference | None:
        """The difference that is a defect of leveret; None if there is none.

        Where several of its processes have a part in it, RabbitMQ itself answers now so, now so. So it is asked again:
        a difference counts if RabbitMQ always says the same, and never what leveret says.

        After a difference that is meant to be the two are in different states. So both begin again without that step.
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
    """Where two records of a script part."""
    for index, (leveret, rabbitmq) in enumerate(zip(ours, theirs, strict=True)):
        if leveret != rabbitmq:
            return Difference(script, index, leveret, rabbitmq)
    return None
