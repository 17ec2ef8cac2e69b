"""The publishers of the flights, as seen by the pipeline: one here, or with ``--federated`` one at each airport.

For the latter see airports.py.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Protocol

from leveret.demo import workspace
from leveret.demo.account.crossing import Copy
from leveret.demo.children import Child
from leveret.demo.plan import DemoPlan
from leveret.demo.progress import Display


class Senders(Protocol):
    """The interface that the pipeline uses. Processes that senders start end with `parts`."""

    def prepare(self, parts: ExitStack, display: Display) -> None:
        """Do what can be done before Spark has started."""

    def start(self, parts: ExitStack) -> None:
        """Start to publish, at the latest; Spark is running."""

    def look(self, display: Display) -> None:
        """Show the progress. Raises DemoError if a sender failed."""

    @property
    def finished(self) -> bool:
        """Whether everything is published, confirmed, and in the queue that Spark reads."""

    @property
    def arrived(self) -> int:
        """The number of messages that have arrived in that queue, repeats included; valid once `finished`."""

    def stop(self) -> None:
        """End the processes; their records are then complete."""

    @property
    def seconds(self) -> float:
        """The duration of publishing."""

    def published(self) -> list[Copy]:
        """Return each published copy; with a single publisher, app_id is ""."""

    def confirmed(self) -> list[Copy]:
        """Return the copies that were confirmed."""


class OnePublisher:
    """One publisher of all flights, to the pipeline's broker. Implements ``Senders``."""

    def __init__(self, plan: DemoPlan) -> None:
        self._plan = plan
        self._children: list[Child] = []

    def prepare(self, parts: ExitStack, display: Display) -> None:
        display.phase("publishing while Spark starts")
        self._children.append(parts.enter_context(Child("publisher", self._plan)))

    def start(self, parts: ExitStack) -> None:
        """Do nothing: publishing has begun in `prepare`."""

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
