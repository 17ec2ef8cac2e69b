"""The pipeline ``schedule``: turns a table of reminders into delayed messages, and follows its changes. See
docs/guides/spark/schedule.md."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from leveret.pipelines.errors import PipelineError, cause
from leveret.pipelines.reporter import Reporter
from leveret.pipelines.schedules import plan as plans
from leveret.pipelines.schedules.api import DelayedApi
from leveret.pipelines.schedules.reminders import SCHEDULE, Columns, opened, reminders
from leveret.pipelines.schedules.run import PlannedRun, Publishing, facts
from leveret.pipelines.schedules.state import ScheduleState
from leveret.pipelines.schedules.tasks import ApiCheck, CancelAll, Settled, answer
from leveret.pipelines.summary import Summary, Table
from leveret.spark.sink.options import QUERY_OCTETS_MAX

FORMS: Final = ("parquet", "csv", "jdbc", "json", "orc")
PASTS: Final = ("send", "skip")
EXAMPLES: Final = 10
NAME_OCTETS_MAX: Final = QUERY_OCTETS_MAX - 22
"""Limit for a schedule's name: the name of its writes, known to the broker, adds a prefix and a suffix."""


def schedule(
    spark: SparkSession,
    table: DataFrame | str | Path | None,
    *,
    name: str,
    state: str | Path,
    columns: Columns,
    url: str,
    api_url: str | None = None,
    form: str = "parquet",
    options: Mapping[str, str] | None = None,
    content_type: str | None = None,
    past: str = "send",
    cancel: bool = False,
    dry_run: bool = False,
    reporter: Reporter | None = None,
) -> Summary:
    """Publish a delayed message for each row of a table, and follow the table's edits.

    A second run over the same table changes nothing, even if the first one was interrupted. Messages have the
    reminder's id as ``message_id``, and the headers ``x-schedule`` (the name) and ``x-schedule-run``. On leveret each
    is scheduled exactly once; on other brokers at least once, and edits of pending messages are not carried out.

    Args:
        spark: the session.
        table: a frame, or the path of files; None for JDBC, and with ``cancel``.
        name: name of the schedule, which tells its messages from others.
        state: directory for this schedule alone, writable by Spark's executors.
        columns: the table's columns that make a reminder.
        url: the broker, as executors reach it.
        api_url: leveret's HTTP API, as executors reach it; without it pending messages are not changed.
        form: how the table is stored, one of ``FORMS``.
        options: options for Spark's reader of the table.
        content_type: content type of the messages; None for ``application/json`` if bodies are made of columns, else
            none.
        past: whether new reminders whose time is past are sent at once (``send``) or left out (``skip``).
        cancel: cancel all pending messages, and forget the table; needs ``api_url``.
        dry_run: tell what would be done, and change nothing.
        reporter: receives the progress.

    Raises:
        PipelineError: the arguments, the table or the broker are wrong. The next run resumes from there.
    """
    began_s = time.monotonic()
    reporter = reporter if reporter is not None else Reporter()
    _check(table, name, form, past, cancel, api_url)
    api = None if api_url is None else DelayedApi.of(api_url, url, name)
    if content_type is None and columns.has_json:
        content_type = "application/json"
    publishing = Publishing(name, url, content_type)
    try:
        kept = ScheduleState(spark, str(state), name)
        job = _Job(spark, kept, publishing, api, reporter)
        if api is not None:
            answer(spark, ApiCheck(api))
        if cancel:
            return job.cancel(dry_run, began_s)
        source = opened(spark, table if table is not None else "", form, options or {})
        return job.follow(source, columns, past == "skip", dry_run, began_s)
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(_said(cause(error))) from error


@dataclass
class _Job:
    spark: SparkSession
    state: ScheduleState
    publishing: Publishing
    api: DelayedApi | None
    reporter: Reporter

    def follow(self, source: DataFrame, columns: Columns, skips_past: bool, dry_run: bool, began_s: float) -> Summary:
        """Finish an interrupted run, then carry out what the table asks for."""
        now = datetime.now(UTC)
        found = reminders(source, columns, now)
        done = _Done()
        if self.state.begun is not None and not dry_run:
            self._resume(done)
        if done.is_stopped:
            return self._summary(done, None, began_s)
        self.reporter.phase("comparing the table with what is scheduled")
        compared = plans.compared(found, self.state.reminders(), now, skips_past)
        if dry_run:
            done.planned = compared
            row = compared.agg(*plans.counted()).collect()[0].asDict()
            return self._summary(done, {action: int(row[action]) for action in plans.ACTIONS}, began_s, is_dry=True)
        counts = self._plan(compared)
        done.planned = self.state.read("plan")
        has_edits = self.api is not None
        if any(counts[action] for action in (plans.NEW, *(plans.EDITS if has_edits else ()))):
            self.state.make()
            self.state.note("planned", self.state.next_run, facts(counts, has_edits, now))
            done.add(self._run(self.api))
        return self._summary(done, counts, began_s)

    def _plan(self, compared: DataFrame) -> dict[str, int]:
        """Write the plan; return the number of rows of each action."""
        noted = Observation()
        changes = compared.observe(noted, *plans.counted()).where(F.col("action") != plans.SAME)
        self.state.write("plan", changes)
        return {action: int(noted.get[action]) for action in plans.ACTIONS}

    def _resume(self, done: _Done) -> None:
        """Finish an interrupted run, or undo it if none of its messages was published."""
        begun = self.state.begun
        assert begun is not None
        has_edits = bool(begun.facts["edits"])
        if has_edits and self.api is None:
            raise PipelineError(f"run {begun.run} changes pending reminders and is not finished: give --api-url")
        run = self._made(self.api if has_edits else None)
        if run.may_be_finished:
            self.reporter.phase(f"finishing run {begun.run}, which was interrupted")
            done.add(_finished(run))
            done.resumed = begun.run
        else:
            self.reporter.phase(f"run {begun.run} was interrupted before anything was scheduled, and starts again")
            run.give_up()

    def _run(self, api: DelayedApi | None) -> tuple[PlannedRun, bool]:
        return _finished(self._made(api))

    def _made(self, api: DelayedApi | None) -> PlannedRun:
        return PlannedRun(self.spark, self.state, self.publishing, api, self.reporter)

    def cancel(self, dry_run: bool, began_s: float) -> Summary:
        """Cancel all pending messages, and forget what was scheduled."""
        assert self.api is not None
        self.reporter.phase("cancelling everything that is pending")
        if not dry_run:
            begun = self.state.begun
            abort = begun.run if begun is not None else -1
            answer(self.spark, Settled(self.publishing.url, self.state.query, abort))
        count = answer(self.spark, CancelAll(self.api, dry_run))
        if not dry_run and not self.state.is_new:
            self.state.finish(self.state.next_run, 0)
        seconds = round(time.monotonic() - began_s, 1)
        note = f"The next run of {self.publishing.name} schedules its whole table again."
        return Summary("schedule", {"taken_back": count, "seconds": seconds}, notes=(note,), is_dry=dry_run)

    # -- the summary ---------------------------------------------------------------------------------------------------

    def _summary(self, done: _Done, counts: dict[str, int] | None, began_s: float, is_dry: bool = False) -> Summary:
        notes, tables = list(done.notes), []
        figures: dict[str, int | float | str | None] = dict(done.figures)
        undone = 0
        if counts is not None:
            if is_dry:
                figures = _expected(counts, self.api is not None)
                if self.state.begun is not None:
                    notes.append(f"Run {self.state.begun.run} was interrupted: it will be finished or restarted first.")
            figures |= {"unchanged": counts[plans.SAME], "past": counts[plans.PAST], "invalid": counts[plans.INVALID]}
            undone = 0 if self.api is not None else sum(counts[action] for action in plans.EDITS)
            figures["not_carried_out"] = undone
            tables = self._examples(done, counts, undone)
        if undone:
            notes.append("Pending reminders can be changed only over leveret's HTTP API: run it again with --api-url.")
        if figures.get("too_late"):
            notes.append("Too late: reminders that were delivered before their rows were changed. They stay delivered.")
        seconds = time.monotonic() - began_s
        scheduled = int(figures.get("scheduled") or 0)
        figures |= {"run": self.state.run, "seconds": round(seconds, 1)}
        figures["reminders_per_second"] = round(scheduled / seconds, 1)
        is_fine = not undone and not (counts or {}).get(plans.INVALID)
        return Summary("schedule", figures, tuple(tables), tuple(notes), adds_up=is_fine, is_dry=is_dry)

    def _examples(self, done: _Done, counts: dict[str, int], undone: int) -> list[Table]:
        tables = []
        if done.planned is not None and counts[plans.INVALID]:
            rows = _some(done.planned, plans.INVALID)
            title = f"invalid rows, {len(rows)} of {counts[plans.INVALID]:,}"
            tables.append(Table(title, ("id", "why"), tuple((row.id, row.reason) for row in rows)))
        if done.planned is not None and undone:
            rows = _some(done.planned, *plans.EDITS)
            title = f"edits that were not carried out, {len(rows)} of {undone:,}"
            tables.append(Table(title, ("id", "edit"), tuple((row.id, row.action) for row in rows)))
        return tables


class _Done:
    """The results so far."""

    def __init__(self) -> None:
        self.figures = dict.fromkeys(("scheduled", "retimed", "replaced", "taken_back", "too_late"), 0)
        self.resumed: int | None = None  # number of an interrupted run that was finished first
        self.is_stopped = False
        self.is_staged = True
        self.planned: DataFrame | None = None

    def add(self, finished: tuple[PlannedRun, bool]) -> None:
        """Add an ended run, and whether it is complete."""
        run, is_whole = finished
        self.is_stopped = not is_whole
        if is_whole:
            self.is_staged = self.is_staged and run.is_staged
            for figure, count in run.tally().items():
                self.figures[figure] += count

    @property
    def notes(self) -> list[str]:
        """Notes for the summary."""
        notes = []
        if self.resumed is not None:
            notes.append(f"Run {self.resumed} had been interrupted and was finished first; these figures include it.")
        if self.is_stopped:
            notes.append("It was stopped before it was done: the next run continues from there.")
        if not self.is_staged:
            notes.append(
                "The broker does not support stages: messages of an interrupted run are published again (with "
                "the same id)."
            )
        return notes


def _finished(run: PlannedRun) -> tuple[PlannedRun, bool]:
    return run, run.finish()


def _expected(counts: dict[str, int], has_edits: bool) -> dict[str, int | float | str | None]:
    edits = {"retimed": plans.TIME, "replaced": plans.CONTENT, "taken_back": plans.GONE}
    found = {figure: counts[action] if has_edits else 0 for figure, action in edits.items()}
    return {"scheduled": counts[plans.NEW], **found}


def _some(planned: DataFrame, *actions: str) -> list[Any]:
    rows = planned.where(F.col("action").isin(*actions)).select("id", "action", "reason")
    return rows.orderBy(F.col("id").asc_nulls_first()).limit(EXAMPLES).collect()


def _check(
    table: DataFrame | str | Path | None, name: str, form: str, past: str, cancel: bool, api_url: str | None
) -> None:
    checks: tuple[tuple[Callable[[], bool], str], ...] = (
        (
            lambda: 0 < len(name.encode()) <= NAME_OCTETS_MAX,
            f"a schedule's name must have 1 to {NAME_OCTETS_MAX} octets",
        ),
        (name.isprintable, f"the name {name!r} can't be the value of the header {SCHEDULE}"),
        (lambda: form in FORMS, f"a table must be {', '.join(FORMS)}, not {form!r}"),
        (lambda: past in PASTS, f"the treatment of past rows must be {' or '.join(PASTS)}, not {past!r}"),
        (lambda: not cancel or api_url is not None, "cancelling needs leveret's HTTP API: give --api-url"),
        (lambda: cancel or table is not None or form == "jdbc", "the path of the table is missing"),
    )
    for is_fine, text in checks:
        if not is_fine():
            raise PipelineError(text)


def _said(line: str) -> str:
    """Return an executor's error without the name of its class."""
    kind, is_there, text = line.partition(": ")
    return text if is_there and kind.endswith(("Error", "Refusal")) and " " not in kind else line
