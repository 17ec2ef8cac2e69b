"""The pipeline of one run: starts its parts in order, detects when each has finished, and stops everything."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from leveret.demo import faults, topology, workspace
from leveret.demo.account.auditing import Audited, audited
from leveret.demo.account.crossing import Copies
from leveret.demo.account.reconcile import Notice, Reconciliation, Records, reconcile
from leveret.demo.children import Child
from leveret.demo.cluster import Loss, own_cluster, settings
from leveret.demo.copies import FOLDER
from leveret.demo.data import Flights, load_flights
from leveret.demo.job import DemoQueries, start_workers
from leveret.demo.plan import HASTY_MS, MINUTE_MS, DemoPlan
from leveret.demo.progress import Display
from leveret.demo.senders import Senders
from leveret.pipelines import Summary
from leveret.pipelines.engine import started
from leveret.spark.java import short_lived

POLL_S = 0.2

PATIENCE_S = 4.0
"""Missing notices count as lost when they are this late."""

NICE = 5
"""By how much Spark's processes are nicer than the others (see nice(1))."""

LONGEST_FLIGHT_MIN = 720

SETTINGS: Final[dict[str, str]] = {
    # two tasks at a time, and up to four attempts of each
    "spark.master": "local[2,4]",
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
        spark_s: how long Spark took to start, in seconds.
        is_exactly_once: whether the sink could stage notices, and so repeats nothing after a crash.
        account: what became of every message.
        audit: the audit's summary, or None without an audit.
    """

    records: Records
    rates: dict[str, float]
    server: str
    spark_s: float
    is_exactly_once: bool
    account: Reconciliation
    audit: Summary | None = None

    def guarantee(self) -> str:
        """Return a sentence about what would have happened to messages in a crash of Spark."""
        if self.is_exactly_once:
            return "exactly once from the stream to the files and the notices, also over a crash of Spark"
        return (
            f"exactly once from the stream to the files; notices at least once, because {self.server} has no stages: "
            "after a crash of Spark some could come twice"
        )


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
        self._aside = ThreadPoolExecutor(1, "demo-aside")

    def run(self) -> RunOutcome:
        """Run the pipeline, and stop everything it started in every case.

        Raises:
            PipelineError: a part failed.
            DataMissing: the input is missing.
        """
        with ExitStack() as parts:
            parts.callback(self._aside.shutdown, wait=False)
            server = parts.enter_context(topology.declared(self._plan))
            self._display.phase(f"broker: {server} at {self._plan.url.rpartition('@')[2]}")
            self._senders.prepare(parts, self._display)
            for role in ("lookup", "collector"):
                self._children[role] = parts.enter_context(Child(role, self._plan))
            loading = self._aside.submit(load_flights, self._plan.flights, self._plan.seed)
            asked_s = time.monotonic()
            spark = parts.enter_context(self._spark(parts))
            _give_way()
            spark_s = time.monotonic() - asked_s
            flights = loading.result()
            self._aside.submit(start_workers, spark)
            due = flights.due()
            self._display.total("delivered", len(due))
            for role in ("lookup", "collector"):
                self._children[role].wait_ready()
            if self._plan.faults:
                self._senders.start(parts)
                self._wait(lambda: self._senders.finished)
                faults.disturb_flights(self._plan)
            self._display.phase("Spark is reading, enriching, writing and sending notices")
            hasty = faults.hasty_notice(self._plan, flights)
            job = DemoQueries(spark, self._plan, hasty)
            started_s = time.monotonic()
            if not self._plan.faults:
                self._senders.start(parts)
            self._wait(lambda: self._senders.finished, job)
            self._run_aside(job.finish, job)
            job_s = job.writing.grown_s - started_s
            released_s = time.monotonic()
            self._display.phase("computing punctuality, while the last notices wait")
            painter = parts.enter_context(Child("painter", self._plan))
            computing = self._aside.submit(job.compute_punctuality)
            self._senders.stop()
            records = self._records(flights, due)
            self._wait(lambda: computing.done() and painter.finished)
            computing.result()
            self._await_notices(released_s, len(due))
            for child in self._children.values():
                child.stop()
            records = replace(records, delivered=self._notices(flights, hasty))
            found = self._audit(spark, flights)
            if found is not None:
                records = replace(records, audited=found.stage)
            account = self._aside.submit(reconcile, records)
        is_staged = not due or any((self._plan.records / "released").iterdir())
        summary = found.summary if found is not None else None
        rates = self._rates(records, job_s)
        return RunOutcome(records, rates, server, spark_s, is_staged, account.result(), summary)

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

    def _run_aside(self, action: Callable[[], None], job: DemoQueries) -> None:
        """Run an action that waits for Spark, and show the progress meanwhile."""
        running = self._aside.submit(action)
        self._wait(running.done, job)
        self._look(job)  # says which query has failed, and why
        running.result()

    def _await_notices(self, released_s: float, due: int) -> None:
        """Wait for all notices, also for one too many: none waits longer than the longest flight demands."""
        collector = self._children["collector"]
        longest_s = LONGEST_FLIGHT_MIN * MINUTE_MS / 1000
        self._wait(lambda: time.monotonic() > released_s + longest_s + (0 if collector.count >= due else PATIENCE_S))

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

    def _notices(self, flights: Flights, hasty: str | None) -> list[Notice]:
        delays_ms = {row: minutes * MINUTE_MS for row, minutes in zip(flights.ids, flights.air_min, strict=True)}
        if hasty is not None:
            delays_ms[hasty] = HASTY_MS
        return workspace.read_notices(self._plan, delays_ms)

    def _records(self, flights: Flights, due: list[str]) -> Records:
        """Return the records of all stages but the last one."""
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
            delivered=[],
            copies=copies,
        )

    def _rates(self, records: Records, job_s: float) -> dict[str, float]:
        rates = dict.fromkeys(("published", "confirmed"), len(records.confirmed) / self._senders.seconds)
        rates.update({stage: len(getattr(records, stage)) / job_s for stage in ("read", "replies", "written")})
        rates["delivered"] = _notices_per_second(records.delivered)
        return rates


def _give_way() -> None:
    """Let Spark's processes wait for all others: notices are due to the millisecond, and pass several processes."""
    java = getattr(SparkContext._gateway, "proc", None)
    threads = Path(f"/proc/{java.pid}/task") if java is not None else None
    if threads is not None and threads.exists():  # Linux; elsewhere notices are later
        for thread in threads.iterdir():
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), os.getpriority(os.PRIO_PROCESS, 0) + NICE)


def _notices_per_second(notices: Sequence[Notice]) -> float:
    received_ns = [notice.received_ns for notice in notices]
    span_ns = max(received_ns) - min(received_ns) if received_ns else 0
    return len(notices) / (span_ns / 1e9) if span_ns else 0.0
