"""A run of a schedule: carries out a plan step by step, and repeats what a crash has interrupted.

The order of steps ensures that a crash loses nothing. Old versions are first held, a day after their time, so that they
are not delivered while they are replaced, and those that were still pending are noted; then the new versions are
published, and the old ones cancelled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leveret.pipelines.reporter import Reporter
from leveret.pipelines.schedules import plan as plans
from leveret.pipelines.schedules.api import DelayedApi
from leveret.pipelines.schedules.reminders import DAY_US, DELAY_MAX, RUN, SCHEDULE
from leveret.pipelines.schedules.state import ScheduleState
from leveret.pipelines.schedules.tasks import Released, Retime, Settled, TakeBack, answer, asked

MESSAGE: Final = ("id as message_id", "destination as routing_key", "at", "body", "headers")


@dataclass(frozen=True)
class Publishing:
    """How new reminders are published."""

    name: str
    url: str
    content_type: str | None

    def options(self, query: str, run: int) -> dict[str, str]:
        """Return the options for the sink."""
        options = {"url": self.url, "query": query, "batch": str(run)}
        return options if self.content_type is None else options | {"contentType": self.content_type}


class PlannedRun:
    """A planned run. ``api`` is None if the plan has no edits, or they are not carried out."""

    def __init__(
        self,
        spark: SparkSession,
        state: ScheduleState,
        publishing: Publishing,
        api: DelayedApi | None,
        reporter: Reporter,
    ) -> None:
        assert state.begun is not None
        self.number = state.begun.run
        self.counts: dict[str, int] = state.begun.facts["counts"]
        self._spark = spark
        self._state = state
        self._publishing = publishing
        self._api = api
        self._reporter = reporter

    def finish(self) -> bool:
        """Do the steps that are not done yet; return False if the reporter requested the end before all were."""
        steps: tuple[tuple[str, str, Callable[[], dict[str, Any]]], ...] = (
            ("held", "holding old versions of {content:,} reminders", self._hold),
            ("published", "publishing {new:,} reminders, and new versions", self._publish),
            ("retimed", "changing the time of {time:,} reminders", self._retime),
            ("taken", "cancelling {gone:,} reminders, and old versions", self._take_back),
        )
        for step, text, do in steps:
            if self._state.has_done(step, self.number):
                continue
            if self._reporter.is_ended:
                return False
            if self._concerns(step):
                self._reporter.phase(text.format(**self.counts))
                self._state.note(step, self.number, do())
        self._remember()
        return True

    def _concerns(self, step: str) -> bool:
        """Whether a step has anything to do."""
        of = {"held": ("content",), "published": ("new", "content"), "retimed": ("time",), "taken": ("gone", "content")}
        with_api = [] if self._api is None else [plans.TIME, plans.CONTENT, plans.GONE]
        return any(self.counts[action] for action in of[step] if action in (plans.NEW, *with_api))

    @property
    def is_staged(self) -> bool:
        """Whether its messages were published exactly once."""
        return bool(self._state.facts("published", self.number).get("is_staged", True))

    @property
    def may_be_finished(self) -> bool:
        """Whether an interrupted run can be completed. If the broker does not have its messages, the table may be what
        kept them from being published, so the run is planned anew."""
        if self._state.has_done("published", self.number) or not self._concerns("published"):
            return True
        return bool(answer(self._spark, Released(self._publishing.url, self._state.query, self.number)))

    def give_up(self) -> None:
        """Undo what was done before anything was published: held messages get their old times again."""
        answer(self._spark, Settled(self._publishing.url, self._state.query, abort=self.number))
        if self._concerns("held"):
            rows = self._planned(plans.CONTENT).withColumn("at_us", F.greatest(F.unix_micros("was_at"), F.lit(0)))
            self._ask("held", rows.select("id", _ms("at_us")), Retime(self._reach()), self.counts[plans.CONTENT])
        self._state.note("given_up", self.number, {})

    def tally(self) -> dict[str, int]:
        """Return the numbers of reminders that were scheduled, retimed, replaced, taken back, and too late for an
        edit."""
        found = {"scheduled": self.counts[plans.NEW], "retimed": 0, "replaced": 0, "taken_back": 0, "too_late": 0}
        edits = (("held", "replaced", plans.CONTENT), ("retimed", "retimed", plans.TIME))
        for step, figure, action in (*edits, ("taken", "taken_back", plans.GONE)):
            if self._api is None or not self.counts[action]:
                continue
            answers = self._state.read(step)
            if step == "taken":
                answers = answers.join(self._planned(plans.GONE).select("id"), "id", "left_semi")
            row = answers.agg(F.count_if("found").alias("found"), F.count("*").alias("all")).collect()[0]
            found[figure] += row["found"]
            found["too_late"] += row["all"] - row["found"]
        return found

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _hold(self) -> dict[str, Any]:
        """Hold old versions until after both the old and the new time, as far as delays allow, so that none is
        early."""
        now_us = int(datetime.now(UTC).timestamp() * 1_000_000)
        latest_us = now_us + int(DELAY_MAX.total_seconds() * 1_000_000) + DAY_US
        times = F.greatest(F.unix_micros("at"), F.unix_micros("was_at"), F.lit(now_us)) + DAY_US
        rows = self._planned(plans.CONTENT).withColumn("at_us", F.least(times, F.lit(latest_us)))
        return self._ask("held", rows.select("id", _ms("at_us")), Retime(self._reach()), self.counts[plans.CONTENT])

    def _publish(self) -> dict[str, Any]:
        messages = self._planned(plans.NEW)
        if self._api is not None and self.counts[plans.CONTENT]:
            held = self._state.read("held").where("found").select("id")
            messages = messages.unionByName(self._planned(plans.CONTENT).join(held, "id", "left_semi"))
        marks = F.create_map(
            F.lit(SCHEDULE), F.lit(self._publishing.name), F.lit(RUN), F.lit(str(self.number))
        )  # fmt: skip
        own = F.map_filter("headers", lambda name, _: ~name.isin(SCHEDULE, RUN))
        messages = messages.withColumn("headers", F.map_concat(own, marks)).selectExpr(*MESSAGE)
        options = self._publishing.options(self._state.query, self.number)
        messages.write.format("leveret").mode("append").options(**options).save()
        return {"is_staged": bool(answer(self._spark, Settled(self._publishing.url, self._state.query)))}

    def _retime(self) -> dict[str, Any]:
        rows = self._planned(plans.TIME).withColumn("at_us", F.greatest(F.unix_micros("at"), F.lit(0)))
        return self._ask("retimed", rows.select("id", _ms("at_us")), Retime(self._reach()), self.counts[plans.TIME])

    def _take_back(self) -> dict[str, Any]:
        rows = self._planned(plans.GONE).select("id")
        if self.counts[plans.CONTENT]:
            rows = rows.unionByName(self._state.read("held").where("found").select("id"))
        count = self.counts[plans.GONE] + self.counts[plans.CONTENT]
        return self._ask("taken", rows.withColumn("at_ms", F.lit(0)), TakeBack(self._reach(), self.number), count)

    def _remember(self) -> None:
        self._reporter.phase("recording what is scheduled now")
        rows = self._state.rows + self.counts[plans.NEW] - (self.counts[plans.GONE] if self._api is not None else 0)
        known = self._state.reminders()
        self._state.write_version(plans.remembered(known, self._state.read("plan"), self._api is not None))
        self._state.finish(self.number, rows)

    # -- shared by steps ---------------------------------------------------------------------------------------------

    def _planned(self, action: str) -> DataFrame:
        return self._state.read("plan").where(F.col("action") == action)

    def _reach(self) -> DelayedApi:
        assert self._api is not None
        return self._api

    def _ask(self, step: str, rows: DataFrame, job: Retime | TakeBack, count: int) -> dict[str, Any]:
        self._state.write(step, asked(rows, job, count))
        return {}


def facts(counts: dict[str, int], has_edits: bool, begun: datetime) -> dict[str, Any]:
    """Return a plan's facts for the log."""
    return {"counts": counts, "edits": has_edits, "begun": begun.isoformat()}


def _ms(column: str) -> Any:
    """Convert microseconds to milliseconds, rounded up so that nothing is early."""
    return F.expr(f"({column} + 999) div 1000").alias("at_ms")
