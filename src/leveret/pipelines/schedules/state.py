"""The state of a schedule: the reminders that the broker was given, and the progress of the last run.

Spark reads and writes this directory, so it may be wherever executors can write:

    log/made                    name and random id of the schedule
    log/planned, log/held, …    the last run that has done this step
    log/done-0, log/done-1      the last two completed runs
    plan, held, retimed, taken  results of the last run's steps
    versions/0, versions/1      the reminders after the last two completed runs

A step is done when its line of the log exists, which is one file, written last. A repeated step overwrites its own
results, and never those of the previous run.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leveret.pipelines.errors import PipelineError

LINE: Final = "step STRING, run BIGINT, facts STRING"
REMINDERS: Final = "id STRING, at TIMESTAMP, said STRING, destination STRING, content BIGINT"


@dataclass(frozen=True)
class LogEntry:
    """A line of the log: the run, and its facts."""

    run: int
    facts: dict[str, Any] = field(default_factory=dict)


class ScheduleState:
    """The directory of one schedule. ``PipelineError`` if it belongs to another one."""

    def __init__(self, spark: SparkSession, path: str, name: str) -> None:
        self._spark = spark
        self._path = path.rstrip("/")
        self._log = self._read_log()
        made = self._log.get("made")
        if made is not None and made.facts["name"] != name:
            raise PipelineError(f"{path} is the state of the schedule {made.facts['name']!r}, not of {name!r}")
        self.is_new = made is None
        self._made = made or LogEntry(0, {"name": name, "id": uuid.uuid4().hex[:12]})

    @property
    def query(self) -> str:
        """The broker's name for the writes of this schedule; with the directory's id, since each directory counts its
        own runs."""
        return f"schedule.{self._made.facts['name']}.{self._made.facts['id']}"

    def make(self) -> None:
        """Write name and id on first use."""
        if self.is_new:
            self.note("made", 0, self._made.facts)
            self.is_new = False

    @property
    def run(self) -> int:
        """The last completed run, or 0."""
        return max((self._log[slot].run for slot in ("done-0", "done-1") if slot in self._log), default=0)

    @property
    def _slot(self) -> int:
        """The slot of the last completed run; the next run takes the other one."""
        return int(self.run > 0 and "done-1" in self._log and self._log["done-1"].run == self.run)

    @property
    def rows(self) -> int:
        """The number of reminders after the last completed run."""
        return int(self._log[f"done-{self._slot}"].facts["rows"]) if self.run else 0

    @property
    def next_run(self) -> int:
        """An unused run number: the broker would take a batch with an old number for a repetition."""
        return max((entry.run for entry in self._log.values()), default=0) + 1

    @property
    def begun(self) -> LogEntry | None:
        """The plan of a run that is neither completed nor given up, or None."""
        planned = self._log.get("planned")
        if planned is None or planned.run <= self.run or self.has_done("given_up", planned.run):
            return None
        return planned

    def has_done(self, step: str, run: int) -> bool:
        """Whether a run has done a step."""
        entry = self._log.get(step)
        return entry is not None and entry.run == run

    def facts(self, step: str, run: int) -> dict[str, Any]:
        """Return a run's facts about a step, empty if it has not done it."""
        return self._log[step].facts if self.has_done(step, run) else {}

    def note(self, step: str, run: int, facts: dict[str, Any]) -> None:
        """Note that a step is done."""
        line = self._spark.createDataFrame([(step, run, json.dumps(facts))], LINE)
        line.coalesce(1).write.mode("overwrite").json(f"{self._path}/log/{step}")
        self._log[step] = LogEntry(run, facts)

    def finish(self, run: int, rows: int) -> None:
        """Note that a run is complete; its version becomes the current one."""
        self.note(f"done-{1 - self._slot}", run, {"rows": rows})

    def reminders(self) -> DataFrame:
        """Return the reminders that the broker was given, as of the last completed run."""
        if self.rows == 0:
            # Spark's optimizer knows that a false condition leaves nothing, so it joins nothing
            return self._spark.createDataFrame([], REMINDERS).where(F.lit(False))
        return self._spark.read.schema(REMINDERS).parquet(f"{self._path}/versions/{self._slot}")

    def write_version(self, reminders: DataFrame) -> None:
        """Write the reminders as of the run that is about to complete."""
        reminders.write.mode("overwrite").parquet(f"{self._path}/versions/{1 - self._slot}")

    def write(self, what: str, rows: DataFrame) -> None:
        """Write the results of a step."""
        rows.write.mode("overwrite").parquet(f"{self._path}/{what}")

    def read(self, what: str) -> DataFrame:
        """Read the results of a step."""
        return self._spark.read.parquet(f"{self._path}/{what}")

    def _read_log(self) -> dict[str, LogEntry]:
        try:
            lines = self._spark.read.schema(LINE).json(f"{self._path}/log/*").collect()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return {}
        return {line.step: LogEntry(line.run, json.loads(line.facts)) for line in lines}
