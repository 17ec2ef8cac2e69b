"""The pipeline of one run: starts its parts in order, detects when each has finished, and stops everything."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import SparkSession

from leveret.demo import faults, topology, workspace
from leveret.demo.account.auditing import Audited, audited
from leveret.demo.account.crossing import Copies
from leveret.demo.account.reconcile import Notice, Records
from leveret.demo.children import Child
from leveret.demo.cluster import Loss, own_cluster, settings
from leveret.demo.copies import FOLDER
from leveret.demo.data import Flights, load_flights
from leveret.demo.job import DemoQueries
from leveret.demo.plan import HOUR_MS, DemoPlan
from leveret.demo.progress import Display
from leveret.demo.senders import Senders
from leveret.pipelines import Summary
from leveret.pipelines.engine import started
from leveret.spark.java import short_lived

POLL_S = 0.2

QUIET_S = 4.0
"""Missing messages count as lost when no count has changed for this long."""

SETTLE_S = 0.5
"""How long to wait for duplicates after everything expected has arrived."""

LONGEST_FLIGHT_H = 12

SETTINGS: Final[dict[str, str]] = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    # the run ends before the C2 compiler pays off: with it, Java took almost twice the CPU time
    "spark.driver.extraJavaOptions": short_lived(),
    # so that tasks of both queries alternate; otherwise the second query waits until the first has none
    "spark.scheduler.mode": "FAIR",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@dataclass(frozen=True)
class RunOutcome:
    """The results of a run.

    Attributes:
        records: the ids recorded by every stage.
        rates: messages per second by stage.
        server: the broker's name and version.
        audit: the audit's summary, or None without an audit.
    """

    records: Records
    rates: dict[str, float]
    server: str
    audit: Summary | None = None


class Pipeline:
    """One run of the pipeline on a running broker.

    Args:
        plan: of the run.
        senders: publish the flights.
        display: shows the progress.
        audited: URLs, by name, of the brokers whose recordings are audited; empty for no audit.
    """

    def __init__(self, plan: DemoPlan, senders: Senders, display: Display, audited: Mapping[str, str]) -> None:
        self._plan = plan
        self._senders = senders
        self._display = display
        self._audited = audited
        self._children: dict[str, Child] = {}
        self._loss: Loss | None = None

    def run(self) -> RunOutcome:
        """Run the pipeline, and stop everything it started in every case.

        Raises:
            PipelineError: a part failed.
            DataMissing: the input is missing.
        """
        with ExitStack() as parts:
            server = parts.enter_context(topology.declared(self._plan))
            self._display.phase(f"broker: {server} at {self._plan.url.rpartition('@')[2]}")
            self._senders.prepare(parts, self._display)
            for role in ("lookup", "collector"):
                self._children[role] = parts.enter_context(Child(role, self._plan))
            spark = parts.enter_context(self._spark(parts))
            flights = load_flights(self._plan.flights, self._plan.seed)
            due = flights.due()
            self._display.total("delivered", len(due))
            for role in ("lookup", "collector"):
                self._children[role].wait_ready()
            if self._plan.faults:
                self._senders.start(parts)
                self._wait(lambda: self._senders.finished)
                faults.disturb_flights(self._plan)
            self._display.phase("Spark is reading, enriching, writing and sending notices")
            job = DemoQueries(spark, self._plan, faults.hasty_notice(self._plan, flights))
            started_s = time.monotonic()
            if not self._plan.faults:
                self._senders.start(parts)
            self._drain(job, len(due))
            job_s = job.writing.grown_s - started_s
            self._display.phase("computing punctuality")
            job.compute_punctuality()
            self._senders.stop()
            for child in self._children.values():
                child.stop()
            records = self._records(flights, due)
            found = self._audit(spark, flights)
        if found is not None:
            records = replace(records, audited=found.stage)
        return RunOutcome(records, self._rates(records, job_s), server, found.summary if found is not None else None)

    def _audit(self, spark: SparkSession, flights: Flights) -> Audited | None:
        """Audit the brokers' recordings, if there are any."""
        if not self._audited:
            return None
        self._display.phase(f"auditing the recordings of {len(self._audited)} brokers")
        return audited(spark, self._plan, self._audited, flights.ids)

    def _spark(self, parts: ExitStack) -> AbstractContextManager[SparkSession]:
        """Return a context manager for the session, locally or on a cluster that is started for it."""
        chosen = dict(SETTINGS)
        if self._plan.cluster:
            cluster = parts.enter_context(own_cluster(self._plan.output / "spark"))
            self._loss = Loss(cluster)
            chosen.update(settings(cluster))
            self._display.phase(f"Spark cluster of {len(cluster.workers)} workers at {cluster.master}")
        return started("leveret demo", self._plan.records / "spark.log", **chosen)

    def _drain(self, job: DemoQueries, due: int) -> None:
        """Wait until each part has finished its work."""
        collector = self._children["collector"]
        self._wait(lambda: self._senders.finished, job)
        depth = topology.Depth(self._plan)
        with closing(depth):
            arrived = self._senders.arrived
            writing = job.writing
            self._settle(lambda: writing.rows, arrived, job, lambda: writing.busy or depth.waiting(writing.rows) > 0)
        job.writing.stop()
        written = min(job.writing.rows, self._plan.flights)  # repeats of publishers are written once
        self._settle(lambda: job.noticing.rows, written, job, lambda: job.noticing.busy)
        longest_s = LONGEST_FLIGHT_H * HOUR_MS / 1000
        last_s = time.monotonic()
        self._settle(lambda: collector.count, due, job, lambda: time.monotonic() < last_s + longest_s)

    def _settle(self, count: Callable[[], int], enough: int, job: DemoQueries, busy: Callable[[], bool]) -> None:
        """Wait until a count stops changing: briefly if it has reached `enough`, longer if messages are missing."""
        latest, moved_s = -1, time.monotonic()
        while True:
            self._look(job)
            now, now_s = count(), time.monotonic()
            if now != latest or (now < enough and busy()):
                latest, moved_s = now, now_s
            elif now_s - moved_s >= (SETTLE_S if now >= enough else QUIET_S) and not busy():
                return
            time.sleep(POLL_S)

    def _wait(self, done: Callable[[], bool], job: DemoQueries | None = None) -> None:
        while not done():
            self._look(job)
            time.sleep(POLL_S)

    def _look(self, job: DemoQueries | None = None) -> None:
        """Show the progress; raise DemoError if a part has failed."""
        for child in self._children.values():
            child.finished  # noqa: B018  (asking raises if it failed)
        self._senders.look(self._display)
        self._display.show("looked up", self._children["lookup"].count)
        self._display.show("delivered", self._children["collector"].count)
        if job is not None:
            for query, stage in ((job.writing, "written"), (job.noticing, "notices sent")):
                query.look()
                self._display.show(stage, query.rows)
            if self._loss is not None:
                said = self._loss.step(self._senders.arrived, self._plan.flights, job.writing.busy)
                if said:
                    self._display.phase(said)

    def _records(self, flights: Flights, due: list[str]) -> Records:
        kept = self._plan.records
        published, confirmed = self._senders.published(), self._senders.confirmed()
        copies = Copies(published, confirmed, workspace.read_copies(kept / FOLDER)) if self._plan.federated else None
        return Records(
            expected=flights.ids,
            due=due,
            published=[flight_id for flight_id, _ in published],
            confirmed=[flight_id for flight_id, _ in confirmed],
            read=workspace.read_ids(kept / "read"),
            replies=workspace.read_ids(kept / "replies"),
            written=workspace.read_ids(self._plan.enriched, "message_id"),
            delivered=workspace.read_notices(self._plan),
            copies=copies,
        )

    def _rates(self, records: Records, job_s: float) -> dict[str, float]:
        rates = dict.fromkeys(("published", "confirmed"), len(records.confirmed) / self._senders.seconds)
        rates.update({stage: len(getattr(records, stage)) / job_s for stage in ("read", "replies", "written")})
        rates["delivered"] = _notices_per_second(records.delivered)
        return rates


def _notices_per_second(notices: Sequence[Notice]) -> float:
    received_ns = [notice.received_ns for notice in notices]
    span_ns = max(received_ns) - min(received_ns) if received_ns else 0
    return len(notices) / (span_ns / 1e9) if span_ns else 0.0
