"""One run of the demo from the empty directory to the printed account."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from leveret.demo import picture, report, workspace
from leveret.demo.broker import own_broker
from leveret.demo.data import DataMissing, load_airlines
from leveret.demo.errors import DemoError
from leveret.demo.pipeline import Outcome, Pipeline
from leveret.demo.plan import HOUR_MS, SLOW_HOUR_MS, Plan
from leveret.demo.progress import Display
from leveret.demo.reconcile import Reconciliation, reconcile


@dataclass
class Show:
    """A run that has not begun: what ``leveret demo`` was asked for.

    Attributes:
        flights, seed, url, faults: as of ``leveret.demo.run``.
        output: directory for the results.
        console: where to print.
    """

    flights: int
    url: str | None
    seed: int
    output: Path
    faults: tuple[str, ...] = ()
    console: Console = field(default_factory=Console)

    def run(self) -> Reconciliation:
        """Runs everything, prints the account, leaves picture and Parquet files in the output directory.

        Raises:
            DemoError: something is missing or failed; everything that was started is stopped.
        """
        started_s = time.monotonic()
        workspace.prepare(self.output)
        try:
            with self._broker() as url, Display(self.console, self.flights) as display:
                hour_ms = SLOW_HOUR_MS if self.faults else HOUR_MS
                plan = Plan(url, self.flights, self.seed, self.output.resolve(), self.faults, hour_ms)
                outcome = Pipeline(plan, display).run()
            account = reconcile(outcome.records)
            shares = picture.punctuality_by_hour(plan.enriched)
            picture.draw(shares, load_airlines(), plan.output / "punctuality.png")
        except DataMissing as error:
            raise DemoError(str(error)) from error
        self._tell(plan, account, outcome, time.monotonic() - started_s)
        return account

    @contextmanager
    def _broker(self) -> Iterator[str]:
        """The URL of the broker: the one that was named, or one of our own for as long as the run lasts."""
        if self.url is not None:
            yield self.url
            return
        data = self.output / "broker"
        with own_broker(data, self.output / "records" / "broker.log") as url:
            yield url
        # Only after a run that came to its end: what a broker leaves after a failure may explain it.
        shutil.rmtree(data, ignore_errors=True)

    def _tell(self, plan: Plan, account: Reconciliation, outcome: Outcome, seconds: float) -> None:
        due = len(outcome.records.due)
        lateness_ms = [notice.lateness_ms for notice in outcome.records.delivered]
        median_ms = statistics.median(lateness_ms) if lateness_ms else 0.0
        self.console.print(report.table(account, due, outcome.rates))
        self.console.print(f"notices came {median_ms:.1f} ms after they were due (median), none may come before")
        for name in ("flights.parquet", "punctuality.parquet", "punctuality.png", "report.json"):
            self.console.print(f"  {plan.output / name}", highlight=False, soft_wrap=True)
        for fault in account.faults():
            self.console.print(f"[bold red]{fault}[/]", highlight=False)
        verdict = "[bold green]everything adds up[/]" if account.adds_up else "[bold red]it does not add up[/]"
        self.console.print(f"{verdict}: {plan.flights:,} flights in {seconds:.1f} s")
        facts = {
            "seconds": round(seconds, 1),
            "broker": outcome.server,
            "flights": plan.flights,
            "seed": plan.seed,
            "lateness_ms_median": round(median_ms, 2),
        }
        report.write(plan.output / "report.json", account, due, outcome.rates, facts)
