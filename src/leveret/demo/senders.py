"""Who publishes the flights: one publisher here; with ``--federated`` one at each airport (airports.py)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol

from leveret.demo import workspace
from leveret.demo.children import Child
from leveret.demo.crossing import Copy
from leveret.demo.plan import Plan
from leveret.demo.progress import Display


class Senders(Protocol):
    """What the pipeline knows of them. Whatever they start ends with the parts of the pipeline."""

    def prepare(self, parts: ExitStack, display: Display) -> None:
        """Does what can be done while Spark is not there."""

    def start(self, parts: ExitStack) -> None:
        """Has everything on its way from now on: Spark is there."""

    def look(self, display: Display) -> None:
        """Shows how far they are. Raises DemoError if one of them failed."""

    @property
    def finished(self) -> bool:
        """Whether everything is published, confirmed, and in the queue that Spark reads."""

    @property
    def arrived(self) -> int:
        """How many messages have come into that queue once they are finished, their repeats included."""

    def stop(self) -> None:
        """Ends them, after which their records are there."""

    @property
    def seconds(self) -> float:
        """What publishing took."""

    def published(self) -> list[Copy]:
        """Each message that was sent; those of a single publisher have no app_id ("")."""

    def confirmed(self) -> list[Copy]:
        """Of these, what was confirmed."""


class OnePublisher:
    """One publisher of all flights, to the broker where the pipeline runs. See ``Senders``."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._children: list[Child] = []

    def prepare(self, parts: ExitStack, display: Display) -> None:
        display.phase("publishing while Spark starts")
        self._children.append(parts.enter_context(Child("publisher", self._plan)))

    def start(self, parts: ExitStack) -> None:
        """It has begun already."""

    def look(self, display: Display) -> None:
        for child in self._children:
            child.finished  # noqa: B018  (asking raises if it failed)
            display.show("confirmed", child.count)

    @property
    def finished(self) -> bool:
        return all(child.finished for child in self._children)

    @property
    def arrived(self) -> int:
        return self._plan.flights

    def stop(self) -> None:
        for child in self._children:
            child.stop()

    @property
    def seconds(self) -> float:
        return sum(child.reported["seconds"] for child in self._children)

    def published(self) -> list[Copy]:
        return [(flight_id, "") for flight_id in workspace.read_ids(self._plan.records / "published.parquet")]

    def confirmed(self) -> list[Copy]:
        return [(flight_id, "") for flight_id in workspace.read_ids(self._plan.records / "confirmed.parquet")]
