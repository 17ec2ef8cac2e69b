"""One run of the demo, from the empty directory to the printed account."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from leveret.cli.spark.telling import drawn, figures
from leveret.demo import workspace
from leveret.demo.account import picture, report
from leveret.demo.account.reconcile import Reconciliation
from leveret.demo.airports import Airports
from leveret.demo.broker import own_broker
from leveret.demo.data import DataMissing, load_flights
from leveret.demo.errors import DemoError
from leveret.demo.federation import Brokers, four_brokers
from leveret.demo.pipeline import Pipeline, RunOutcome
from leveret.demo.plan import DemoPlan
from leveret.demo.progress import FEDERATED, STAGES, Display
from leveret.demo.senders import OnePublisher

RECORDED = ("--trace", "/")
"""Options of brokers that record their firehose from the start on, also after a crash."""


@dataclass
class Show:
    """A run with the options of ``leveret demo``.

    Attributes:
        flights, seed, url, faults, federated, cluster: as in ``leveret.demo.run``.
        output: directory for the results.
        console: the output.
    """

    flights: int
    url: str | None
    seed: int
    output: Path
    faults: tuple[str, ...] = ()
    federated: bool = False
    cluster: bool = False
    console: Console = field(default_factory=Console)

    def run(self) -> Reconciliation:
        """Run everything, print the account, and write pictures and Parquet files to the output directory.

        Raises:
            PipelineError: something is missing or failed; everything that was started is stopped.
        """
        started_s = time.monotonic()
        workspace.prepare(self.output)
        stages = FEDERATED if self.federated else STAGES
        try:
            with self._brokers() as place, Display(self.console, self.flights, stages) as display:
                plan = self._plan(place if isinstance(place, str) else place.hq.url)
                senders = self._senders(plan, place)
                recorded = place.urls() if self.cluster and isinstance(place, Brokers) else {}
                outcome = Pipeline(plan, senders, display, recorded).run()
            account = outcome.account
            if isinstance(senders, Airports):
                report.write_samples(plan.records / "samples.jsonl", senders.samples)
                picture.draw_crossing(senders.samples, senders.outages, plan.output / "federation.png")
        except DataMissing as error:
            raise DemoError(str(error)) from error
        self._tell(plan, account, outcome, senders, time.monotonic() - started_s)
        return account

    @contextmanager
    def _brokers(self) -> Iterator[str | Brokers]:
        """Yield the URL of the given broker, or the demo's own brokers, which run within the context."""
        if self.url is not None:
            yield self.url
            return
        data, records = self.output / "broker", self.output / "records"
        if self.federated:
            with four_brokers(data, records, RECORDED if self.cluster else ()) as brokers:
                yield brokers
        else:
            with own_broker(data, records / "broker.log") as url:
                yield url
        # only after success: the data of a broker may explain a failure
        shutil.rmtree(data, ignore_errors=True)

    def _plan(self, url: str) -> DemoPlan:
        output = self.output.resolve()
        return DemoPlan(url, self.flights, self.seed, output, self.faults, self.federated, self.cluster)

    def _senders(self, plan: DemoPlan, place: str | Brokers) -> OnePublisher | Airports:
        if isinstance(place, str):
            return OnePublisher(plan)
        return Airports(plan, place, load_flights(plan.flights, plan.seed))

    def _tell(
        self,
        plan: DemoPlan,
        account: Reconciliation,
        outcome: RunOutcome,
        senders: OnePublisher | Airports,
        seconds: float,
    ) -> None:
        due = len(outcome.records.due)
        lateness_ms = [notice.lateness_ms for notice in outcome.records.delivered]
        median_ms, p99_ms = report.quantiles(lateness_ms)
        pictures = ["punctuality.png"]
        self.console.print(report.table(account, due, outcome.rates))
        if isinstance(senders, Airports) and outcome.records.copies is not None:
            pictures.append("federation.png")
            self.console.print(report.crossings(account, outcome.records.copies, senders.flights))
            for outage in senders.outages:
                again = senders.links[outage.airport].known
                text = f"{outage.story()}; {again:,} messages arrived a second time and were dropped by the link"
                self.console.print(text, highlight=False, soft_wrap=True)
        if outcome.audit is not None:
            pictures.append("audit.html")
            self.console.print(drawn(figures(outcome.audit)))
        late = f"{median_ms:.1f} ms after they were due (median), 99 % of them within {p99_ms:.1f} ms"
        self.console.print(f"notices arrived {late}; none may arrive early", highlight=False, soft_wrap=True)
        self.console.print(outcome.guarantee(), highlight=False, soft_wrap=True)
        for name in ("flights.parquet", "punctuality.parquet", *pictures, "report.json"):
            self.console.print(f"  {plan.output / name}", highlight=False, soft_wrap=True)
        for fault in account.faults():
            self.console.print(f"[bold red]{fault}[/]", highlight=False)
        verdict = "[bold green]everything adds up[/]" if account.adds_up else "[bold red]it does not add up[/]"
        spark = f"of which Spark's start took {outcome.spark_s:.1f} s"
        told = f"{verdict}: {plan.flights:,} flights in {seconds:.1f} s, {spark}"
        self.console.print(told, highlight=False, soft_wrap=True)
        facts = {
            "seconds": round(seconds, 1),
            "broker": outcome.server,
            "flights": plan.flights,
            "seed": plan.seed,
            "lateness_ms_median": round(median_ms, 2),
            "lateness_ms_p99": round(p99_ms, 2),
            "exactly_once": outcome.is_exactly_once,
            "spark_started_s": round(outcome.spark_s, 1),
            **(report.federation(senders) if isinstance(senders, Airports) else {}),
            **({"audit": outcome.audit.document()} if outcome.audit is not None else {}),
        }
        report.write(plan.output / "report.json", account, due, outcome.rates, facts)
