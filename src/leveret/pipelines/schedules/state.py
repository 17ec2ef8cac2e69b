"""What a schedule remembers: which reminders the broker was given, and how far the last run has come.

A directory that Spark reads and writes, so that it may be wherever executors can write:

    log/made                    who this is: drawn once
    log/planned, log/held, …    the last run that has done this step
    log/done-0, log/done-1      the last two runs that are done
    plan, held, retimed, taken  what the last run has found
    versions/0, versions/1      the reminders as of the last two runs that are done

A step is done when its line of the log is there, and that is one file, written last. Whatever is done again overwrites
what it did before, and never what the run before has left.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from leveret.pipelines.errors import PipelineError

LINE: Final = "step STRING, run BIGINT, facts STRING"
REMINDERS: Final = "id STRING, at TIMESTAMP, said STRING, destination STRING, content BIGINT"


@dataclass(frozen=True)
class Entry:
    """A line of the log: in which run, and what there is to say of it."""

    run: int
    facts: dict[str, Any] = field(default_factory=dict)


class State:
    """The directory of one schedule. ``PipelineError`` if it belongs to another one."""

    def __init__(self, spark: SparkSession, path: str, name: str) -> None:
        self._spark = spark
        self._path = path.rstrip("/")
        self._log = self._read_log()
        made = self._log.get("made")
        if made is not None and made.facts["name"] != name:
            raise PipelineError(f"{path} is the state of the schedule {made.facts['name']!r}, not of {name!r}")
        self.is_new = made is None
        self._made = made or Entry(0, {"name": name, "id": uuid.uuid4().hex[:12]})

    @property
    def query(self) -> str:
        """What the broker calls the writes of this schedule: each directory counts its runs anew."""
        return f"schedule.{self._made.facts['name']}.{self._made.facts['id']}"

    def make(self) -> None:
        """Write down who this is, the first time."""
        if self.is_new:
            self.note("made", 0, self._made.facts)
            self.is_new = False

    @property
    def run(self) -> int:
        """The last run that is done, 0 = none."""
        return max((self._log[slot].run for slot in ("done-0", "done-1") if slot in self._log), default=0)

    @property
    def _slot(self) -> int:
        """Where the last run that is done stands; the next one takes the other place."""
        return int(self.run > 0 and "done-1" in self._log and self._log["done-1"].run == self.run)

    @property
    def rows(self) -> int:
        """How many reminders there are as of the last run."""
        return int(self._log[f"done-{self._slot}"].facts["rows"]) if self.run else 0

    @property
    def next_run(self) -> int:
        """A number that no run has had: the broker takes a batch of an old one for a repetition."""
        return max((entry.run for entry in self._log.values()), default=0) + 1

    @property
    def begun(self) -> Entry | None:
        """The plan of a run that is neither done nor given up, None = there is none."""
        planned = self._log.get("planned")
        if planned is None or planned.run <= self.run or self.has_done("given_up", planned.run):
            return None
        return planned

    def has_done(self, step: str, run: int) -> bool:
        """Whether a run has done a step."""
        entry = self._log.get(step)
        return entry is not None and entry.run == run

    def facts(self, step: str, run: int) -> dict[str, Any]:
        """What a run has noted of a step, nothing if it has not done it."""
        return self._log[step].facts if self.has_done(step, run) else {}

    def note(self, step: str, run: int, facts: dict[str, Any]) -> None:
        """A step is done."""
        line = self._spark.createDataFrame([(step, run, json.dumps(facts))], LINE)
        line.coalesce(1).write.mode("overwrite").json(f"{self._path}/log/{step}")
        self._log[step] = Entry(run, facts)

    def finish(self, run: int, rows: int) -> None:
        """A run is done, and its version is the current one."""
        self.note(f"done-{1 - self._slot}", run, {"rows": rows})

    def reminders(self) -> DataFrame:
        """Those that the broker was given, as of the last run that is done."""
        if self.rows == 0:
            return self._spark.createDataFrame([], REMINDERS)
        return self._spark.read.schema(REMINDERS).parquet(f"{self._path}/versions/{self._slot}")

    def write_version(self, reminders: DataFrame) -> None:
        """The reminders as of a run that is nearly done."""
        reminders.write.mode("overwrite").parquet(f"{self._path}/versions/{1 - self._slot}")

    def write(self, what: str, rows: DataFrame) -> None:
        """What a step has found."""
        rows.write.mode("overwrite").parquet(f"{self._path}/{what}")

    def read(self, what: str) -> DataFrame:
        """The same."""
        return self._spark.read.parquet(f"{self._path}/{what}")

    def _read_log(self) -> dict[str, Entry]:
        try:
            lines = self._spark.read.schema(LINE).json(f"{self._path}/log/*").collect()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return {}
        return {line.step: Entry(line.run, json.loads(line.facts)) for line in lines}
