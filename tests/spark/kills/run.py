"""One run: flows are killed step by step and restarted, until everything that was produced has come out."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from leveret.client import BlockingConnection
from leveret.testing.processes import LeveretProcess

from ...waiting import ASK_AGAIN_S, until
from .drivers import Death, Driver, deaths
from .inotify import CLOSE_WRITE, CREATE, MOVED_TO, Inotify
from .on_path.leveret_failpoints import append, claim, due, kill_and_see
from .outputs import ParquetOutput, QueueOutput, Row
from .plan import EXACT, SPOOL, Step
from .producers import Producer

STUCK_S: Final = 300.0
"""The run fails if there is no progress for this time."""

REPORT_S: Final = 0.2

MISSES_MAX: Final = 5
"""How often the commit log may be written before the kernel reports the sink's commit."""

WINDOW: Final = 2
"""Batches of a queue that may be repeated: the last one, and the one before if its acknowledgement was lost with the
broker."""

WATCHED: Final = {"write": CREATE, "write-end": CLOSE_WRITE, "committed": MOVED_TO}


class Run:
    """A plan's steps, the broker and the driver that they kill, and the checks at the end."""

    def __init__(self, directory: Path, flows: Sequence[str], steps: Sequence[Step]) -> None:
        self.directory = directory
        self.flows = list(flows)
        self.steps = list(steps)
        self.deaths: list[Death] = []
        self.broker_kills = 0
        self.misses = 0
        self._last: dict[str, set[int]] = {flow: set() for flow in flows}
        self._state = directory / "state"
        for name in ("fired", "repeated"):
            (self._state / name).mkdir(parents=True)
        (self._state / "plan.json").write_text(json.dumps([vars(step) for step in steps]))
        self._broker = LeveretProcess(directory / "broker")
        self._driver: Driver | None = None
        self._standby: Driver | None = None
        self._seen_s = time.monotonic()
        self._reported_s = 0.0
        self._fired = 0

    def execute(self) -> None:
        """Carry out the plan and check it. Raises AssertionError if messages are lost or duplicated, or a kill
        fails."""
        with self._broker, Inotify() as files:
            self._broker_is_up()
            self._declare()
            watches = self._watch(files)
            producer = Producer(self._broker.url, self.flows)
            try:
                self._next_driver()
                self._kill_all(producer, files, watches)
                producer.stop()
                self._until_all_is_out(producer)
                assert self._driver.stop() == 0, f"the driver failed:\n{self._driver.account()}"
                self._check(producer)
            except BaseException as error:
                error.add_note(self.account())
                raise
            finally:
                producer.stop()
                for driver in (self._driver, self._standby):
                    if driver is not None:
                        driver.kill()

    def _kill_all(self, producer: Producer, files: Inotify, watches: dict[int, str]) -> None:
        """Keep the flows running until the last step has been carried out."""
        while (step := due(self._state)) is not None:
            self._on_files(step, files, watches)
            self._supervise()
            self._report_to(producer)

    def _report_to(self, producer: Producer) -> None:
        """Tell the producer the progress of the flows, at intervals, because counting is expensive."""
        if time.monotonic() > self._reported_s + REPORT_S:
            for flow, output in self._outputs.items():
                producer.came_out[flow] = output.count()
            self._reported_s = time.monotonic()

    # -- restarts

    def _supervise(self) -> None:
        assert self._driver is not None
        if not self._driver.is_running:
            self._replace_driver()
        if not self._broker.is_running:
            self._broker.kill()
            self.broker_kills += 1
            for flow in self._note():
                # messages collected before the broker's death may be delivered after it
                self._last[flow.flow].add(flow.planned + 1)
            self._broker.start()
            self._broker_is_up()
        fired = len(list((self._state / "fired").iterdir()))
        if fired > self._fired:
            self._fired, self._seen_s = fired, time.monotonic()
        assert time.monotonic() < self._seen_s + STUCK_S, f"the flows do not come to: {self._next()}"

    def _next(self) -> str:
        step = due(self._state)
        return "the end" if step is None else str(self.steps[step["number"]])

    def _replace_driver(self) -> None:
        """Record the state that the dead driver left, and start the next one."""
        assert self._driver is not None
        self._driver.kill()
        found = self._note()
        self._judge(found)
        self.deaths += found
        self._next_driver()

    def _next_driver(self) -> None:
        number = 0 if self._driver is None else self._driver.number + 1
        self._driver = self._standby or Driver(number, self.directory)
        self._driver.begin()
        self._standby = Driver(number + 1, self.directory) if self._is_needed(number + 1) else None

    def _is_needed(self, number: int) -> bool:
        """Return whether the plan needs a driver of this number."""
        return number <= sum(step.victim == "driver" for step in self.steps)

    def _note(self) -> list[Death]:
        """Record the progress of the flows after a death."""
        assert self._driver is not None
        found = deaths(self._driver.number, self.directory, self.flows)
        for flow in found:
            self._last[flow.flow].add(flow.planned)
        return found

    def _judge(self, found: list[Death]) -> None:
        """Check that the driver died where the plan says; a step that came too late is repeated."""
        assert self._driver is not None
        struck = [step for step in self._carried_out() if step.victim == "driver"]
        by_plan = len(struck) == self._driver.number + 1 - self.misses
        assert by_plan, f"driver {self._driver.number} died by itself:\n{self._driver.account()}"
        step = struck[-1]
        hit = next(death for death in found if death.flow == step.flow)
        if step.is_on_files and not hit.in_flight:
            self._again(step)
            return
        told = f"{step}: planned {hit.planned}, committed {hit.committed}"
        assert step.is_planned is None or hit.in_flight == step.is_planned, told

    def _carried_out(self) -> list[Step]:
        return [step for number, step in enumerate(self.steps) if (self._state / "fired" / str(number)).exists()]

    def _again(self, step: Step) -> None:
        """Repeat the step, because the commit log was written before the kill."""
        self.misses += 1
        assert self.misses <= MISSES_MAX, f"{step}: the commit log is always faster"
        number = max(int(path.name) for path in (self._state / "fired").iterdir())
        (self._state / "fired" / str(number)).unlink()

    def _broker_is_up(self) -> None:
        (self._state / "broker.pid").write_text(str(self._broker.pid))

    # -- arrows detected by files

    def _watch(self, files: Inotify) -> dict[int, str]:
        watches = {}
        for flow in self.flows:
            if flow.endswith("-parquet"):
                for name in ("out", "out/_spark_metadata"):
                    directory = self.directory / flow / name
                    directory.mkdir(parents=True)
                    watches[files.watch(directory, CREATE | CLOSE_WRITE | MOVED_TO)] = flow
        return watches

    def _on_files(self, step: dict[str, Any], files: Inotify, watches: dict[int, str]) -> None:
        assert self._driver is not None
        now = self.steps[step["number"]]
        for watch, mask, name in files.events(0.02):
            if step["is_held"] or not now.is_on_files or watches[watch] != now.flow or not mask & WATCHED[now.arrow]:
                continue
            is_log = name.partition(".")[0].isdigit()
            if is_log != (now.arrow == "committed") or not (is_log or name.startswith("part-")):
                continue
            if append(self._state / f"passed-{step['number']}", ".") > now.skip and claim(self._state, step):
                if now.victim == "driver":
                    self._driver.kill()
                else:
                    kill_and_see(self._broker.pid)
                return

    # -- sources and outputs

    def _declare(self) -> None:
        with BlockingConnection(self._broker.url, reconnect=False) as connection:
            channel = connection.channel()
            for flow in self.flows:
                # messages older than a second are sealed and read from files, newer ones over AMQP
                stream = {"x-queue-type": "stream", "x-leveret-seal-after-ms": 1000}
                arguments = stream if flow.startswith("stream") else {}
                channel.declare_queue(flow, arguments=arguments)
                if flow.endswith("-leveret"):
                    channel.declare_queue(f"{flow}.target")
        job = {"url": self._broker.url, "flows": self.flows, "directory": str(self.directory)}
        (self.directory / "job.json").write_text(json.dumps(job))
        self._outputs = {
            flow: ParquetOutput(self.directory / flow / "out")
            if flow.endswith("-parquet")
            else QueueOutput(self._broker.url, f"{flow}.target")
            for flow in self.flows
        }

    def _until_all_is_out(self, producer: Producer) -> None:
        """Wait, as long as there is progress, until all confirmed messages have come out and are acknowledged."""
        wanted = {flow: len(producer.confirmed[flow]) for flow in self.flows}
        found: dict[str, int] = {}
        while not self._is_all_out(found, wanted):
            self._supervise()
            now = {flow: output.count() for flow, output in self._outputs.items()}
            if now != found:
                found, self._seen_s = now, time.monotonic()
            time.sleep(ASK_AGAIN_S)

    def _is_all_out(self, found: dict[str, int], wanted: dict[str, int]) -> bool:
        is_out = all(found.get(flow, 0) >= count for flow, count in wanted.items())
        return is_out and all(self._is_acknowledged(flow) for flow in self.flows)

    def _is_acknowledged(self, flow: str) -> bool:
        """Return whether a source with acknowledgements has acknowledged its last batch."""
        if flow.startswith("stream"):
            return True
        owed = "spooled" if flow == SPOOL else "latest"
        arrows = [event["arrow"] for event in self.events() if event["flow"] == flow]
        return next((arrow for arrow in reversed(arrows) if arrow in (owed, "acked")), None) == "acked"

    def events(self) -> list[dict[str, Any]]:
        return _lines(self._state / "events.jsonl")

    def failures(self) -> list[dict[str, Any]]:
        """Return all queries that ended with an exception."""
        return _lines(self.directory / "failures.jsonl")

    # -- checks at the end

    def _check(self, producer: Producer) -> None:
        for flow in self.flows:
            rows = self._outputs[flow].rows()
            times = Counter(row.message_id for row in rows)
            lost = producer.confirmed[flow] - times.keys()
            strange = times.keys() - producer.confirmed[flow] - producer.uncertain[flow]
            twice = {one: count for one, count in times.items() if count > 1}
            print(f"{flow}: {len(rows)} rows of {len(producer.confirmed[flow])}, {len(twice)} twice")
            assert not lost, f"{flow}: {len(lost)} lost: {sorted(lost)[:5]}"
            assert not strange, f"{flow}: {sorted(strange)[:5]} were never published"
            if flow in EXACT:
                assert not twice, f"{flow}: {len(twice)} came twice: {sorted(twice)[:5]}"
            else:
                self._check_window(flow, rows)
            if not flow.startswith("stream"):
                self._check_queue_is_empty(flow)
        self._check_hits()

    def _check_window(self, flow: str, rows: list[Row]) -> None:
        """Check that second copies are marked as redelivered, and their first was in one of the last batches before a
        death."""
        first: dict[str, Row] = {}
        for row in sorted(rows, key=_batch):
            before = first.setdefault(row.message_id, row)
            if before is row:
                continue
            assert row.redelivered, f"{flow}: {before} came again as {row}"
            window = any(last - WINDOW < _batch(before) <= last for last in self._last[flow])
            assert window, f"{flow}: {before} came again as {row}, and died {sorted(self._last[flow])}"

    def _check_queue_is_empty(self, flow: str) -> None:
        with BlockingConnection(self._broker.url, reconnect=False) as connection:
            channel = connection.channel()
            until(lambda: not channel.declare_queue(flow, passive=True).consumer_count, "the consumer is still there")
            left = channel.declare_queue(flow, passive=True).message_count
            assert not left, f"{flow}: {left} messages are in the sink and were never acknowledged"

    def _check_hits(self) -> None:
        """Check that every kill had an effect: batches replayed, tasks repeated, brokers restarted."""
        committed = {death.flow: death.committed for death in deaths(0, self.directory, self.flows)}
        replayed = [death for death in self.deaths if death.in_flight and committed[death.flow] >= death.planned]
        retried = [event for event in self.events() if event["attempt"]]
        print(f"{len(replayed)} batches replayed, {len({(e['flow'], e['batch']) for e in retried})} tasks repeated,")
        print(f"{self.broker_kills} times a broker came back, {len(self.failures())} failed queries started again,")
        print(f"{self.misses} misses")
        assert replayed or not self.deaths, "no batch was replayed"
        self._check_steps({event["flow"] for event in retried})

    def _check_steps(self, repeated: set[str]) -> None:
        """Check that each step of the plan had an effect; `repeated` are the flows with a repeated task."""
        victims = Counter(step.victim for step in self.steps)
        assert self.broker_kills == victims["broker"]
        for step in self.steps:
            assert step.victim != "executor" or step.flow in repeated, f"{step}: no task was repeated"
        # Spark's limit of 10 s for a new process to call back only shows that the machine is slow
        failed = [failure for failure in self.failures() if "failed to connect back" not in failure["error"]]
        assert self.broker_kills or not failed, f"queries failed: {failed}"

    def account(self) -> str:
        driver = "" if self._driver is None else self._driver.account()
        events = "\n".join(json.dumps(event) for event in self.events()[-30:])
        failures = "\n".join(failure["error"][-3000:] for failure in self.failures()[-3:])
        return f"next: {self._next()}\n{events}\nfailures:\n{failures}\ndriver:\n{driver}"


def _batch(row: Row) -> int:
    assert row.batch is not None
    return row.batch


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
