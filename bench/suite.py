#!/usr/bin/env python3
"""Everything that docs/internals/performance.md shows, in one run: some 35 minutes on two quiet cores. `make bench`.

    bench/suite.py
    bench/suite.py --rounds 2 --seconds 1 --only t16,confirm-1,start
    bench/suite.py --resume

Parts: starting and idling (start), the scenarios of bench/scenarios.py, streams (of bench/streams.py) and a federation
link (of bench/federation.py). In each part the brokers take turns, A B C A B C …, so that a disturbance of the machine
affects all of them. Brokers: those of bench/run.py that are installed; in scenarios with durable messages also
RabbitMQ's other kinds of queues, and for the confirm of one message the bare disk, which does one pwrite and one
fdatasync for each.

If a broker fails, its cell says so; it is restarted on an empty directory, and the run continues. Each measurement is
appended as a line of JSON to build/bench/suite.jsonl at once. --resume continues the last run in that file with the
missing measurements. bench/report.py makes document and picture of the last run.
"""

import argparse
import compileall
import json
import os
import resource
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import federation
import leveret
import streams
from confirm_latency import bare
from leveret.testing.processes import ProcessFailed, ServerProcess
from machine import about, stats
from run import QUEUE_KINDS, TOP, WORK, available, build_tools, load, measure, positive, server, servers
from scenarios import SCENARIOS, SKIPPED
from tables import Row, lookup, text

LOG = WORK / "suite.jsonl"
BARE = ("disk, append", "disk, overwrite")
START, LINK = "start", "federation"
STREAMS = ("append-16", "append-mixed", "replay-16", "replay-mixed")
TITLES = (START, *SCENARIOS, *STREAMS, LINK)
MAIN_FIGURES = {
    START: "start_s",
    LINK: "delivered_per_s",
    **{title: scenario.figure for title, scenario in (SCENARIOS | streams.SCENARIOS).items()},
}
IDLE_S = 2.0
FEDERATION = argparse.Namespace(size=100, window=1000)


class Log:
    """The measurements of one run, each of which is written at once."""

    def __init__(self, path: Path, options: dict[str, Any], resumes: bool) -> None:
        """Begin a run, or resume the last one. Raises ValueError if there is none, or if its options differ."""
        self.rows: list[Row] = []
        self._path = path
        if resumes:
            self.head, self.rows = last_run(path)
            if self.head["options"] != options:
                raise ValueError(f"the last run had other options: {json.dumps(self.head['options'])}")
            with path.open("a") as file:
                file.write("\n")  # the last line may have been cut off
        else:
            self.head = {"run": time.strftime("%Y-%m-%d %H:%M:%S"), "options": options, "about": about()}
            self._write(self.head)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self._write(row)
        outcome = row.get("error") or text(lookup(row, MAIN_FIGURES[row["scenario"]]))
        print(f"{row['round']} {row['scenario']:15} {row['broker']:20} {outcome}", file=sys.stderr, flush=True)

    def has(self, turn: int, title: str, broker: str) -> bool:
        return any((row["round"], row["scenario"], row["broker"]) == (turn, title, broker) for row in self.rows)

    def _write(self, row: Row) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def last_run(path: Path) -> tuple[Row, list[Row]]:
    """Return the head and the measurements of the last run. Raises ValueError if there is none."""
    lines = path.read_text().splitlines() if path.exists() else []
    found: list[Row] = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue  # a line that an interrupted run has cut off
    heads = [index for index, row in enumerate(found) if "run" in row]
    if not heads:
        raise ValueError(f"no run in {path}")
    return found[heads[-1]], found[heads[-1] + 1 :]


def brokers_of(title: str, names: Sequence[str]) -> list[str]:
    """Return which of the brokers a scenario measures; the others do not support it, or are in SKIPPED."""
    if title == START:
        found = [name for name in names if name not in (*QUEUE_KINDS[1:], "relay")]
    elif title == LINK or title in STREAMS:
        found = [name for name in names if name in ("rabbitmq", "leveret", "leveret-interpreted")]
    else:
        scenario = SCENARIOS[title]
        found = [name for name in names if name != "relay" or scenario.relayed]
        if not scenario.is_durable:
            found = [name for name in found if name not in QUEUE_KINDS[1:]]
        if title == "confirm-1":
            found += BARE
    return [name for name in found if (title, name) not in SKIPPED]


def missing(log: Log, titles: Sequence[str], options: argparse.Namespace) -> list[tuple[int, str, str]]:
    """Return round, scenario and broker of all missing measurements, in order."""
    return [
        (turn, title, name)
        for turn in range(1, options.rounds + 1)
        for title in titles
        for name in brokers_of(title, options.brokers)
        if not log.has(turn, title, name)
    ]


def measure_all(log: Log, titles: Sequence[str], options: argparse.Namespace, part: Callable[[str, str], Row]) -> None:
    """Make the missing measurements of these scenarios. A broker that fails to start gets a row with an error."""
    for turn, title, name in missing(log, titles, options):
        row: Row = {"round": turn, "scenario": title, "broker": name}
        try:
            row |= part(title, name)
        except ProcessFailed as error:
            row["error"] = str(error).splitlines()[0]
        log.add(row)


# -- the parts --------------------------------------------------------------------------------------------------------


def starting(log: Log, titles: Sequence[str], options: argparse.Namespace) -> None:
    """Measure the seconds from the command until the broker is ready, on an empty directory, and its idle memory."""
    data = WORK / "start"
    # bytecode, as in an installed package: Python may be set not to write it, and would compile at each start
    for source in {Path(leveret.__file__).parent, TOP / "src" / "leveret"}:
        compileall.compile_dir(source, quiet=1)

    def part(_: str, name: str) -> Row:
        shutil.rmtree(data, ignore_errors=True)
        broker = server(name, data)
        began_s = time.perf_counter()
        broker.start()
        start_s = time.perf_counter() - began_s
        try:
            time.sleep(IDLE_S)
            return {"start_s": start_s, "rss_mib": resident_mib(broker.pid)}
        finally:
            broker.kill()
            shutil.rmtree(data, ignore_errors=True)

    measure_all(log, titles, options, part)


def resident_mib(session: int) -> float:
    """Return the memory of all processes of a session."""
    pages = sum(int(fields[21]) for fields in stats() if int(fields[3]) == session)
    return pages * resource.getpagesize() / 2**20


def scenarios(log: Log, titles: Sequence[str], options: argparse.Namespace) -> None:
    """Run the load generator on brokers that keep running, except in scenarios that need a fresh one."""
    broken: set[int] = set()
    with servers(options.brokers) as brokers:

        def part(title: str, name: str) -> Row:
            scenario = SCENARIOS[title]
            if name in BARE:
                p50, p99 = bare(WORK, name == BARE[1])(options.seconds)
                (WORK / "bare").unlink()
                return {"confirm_latency_us": {"p50": p50, "p99": p99}}
            broker = brokers[name]
            if scenario.is_fresh or id(broker) in broken:
                afresh(broker)
                broken.discard(id(broker))
            row = load(name, broker, title, scenario, options.seconds)
            # what a failure leaves behind must not affect the next measurement, and backlogs leave memory allocated
            if "error" in row or scenario.is_fresh:
                broken.add(id(broker))
            return row

        measure_all(log, titles, options, part)


def afresh(broker: ServerProcess) -> None:
    """Restart the broker with an empty data directory."""
    broker.kill()
    shutil.rmtree(broker.data_dir, ignore_errors=True)
    broker.start()


def appending(log: Log, titles: Sequence[str], options: argparse.Namespace) -> None:
    """Measure streams; those to be read are filled first."""
    names = [name for name in options.brokers if name in brokers_of(STREAMS[0], options.brokers)]
    what = argparse.Namespace(only=titles, messages=500_000, mixed_messages=100_000)
    with servers(names) as brokers:
        streams.prepare(brokers, what)

        def part(title: str, name: str) -> Row:
            return measure(name, brokers[name], title, streams.SCENARIOS[title], options.seconds)

        measure_all(log, titles, options, part)


def linking(log: Log, titles: Sequence[str], options: argparse.Namespace) -> None:
    """Measure a federation link between two brokers of a kind."""
    data = WORK / "federation"
    what = argparse.Namespace(**vars(FEDERATION), seconds=options.seconds)
    with emptied(data), ExitStack() as stack:
        pairs = {name: federation.Pair(name, data / name) for name in brokers_of(LINK, options.brokers)}
        for pair in pairs.values():
            stack.enter_context(pair.up)
            stack.enter_context(pair.down)

        def part(_: str, name: str) -> Row:
            found = federation.throughput(pairs[name], what)
            cpu_us = found["up CPU µs"] + found["down CPU µs"]
            return {"delivered_per_s": found["msg/s"], "broker_cpu_us_per_msg": cpu_us}

        measure_all(log, titles, options, part)


@contextmanager
def emptied(directory: Path) -> Iterator[None]:
    """Delete a directory before and after."""
    shutil.rmtree(directory, ignore_errors=True)
    try:
        yield
    finally:
        shutil.rmtree(directory, ignore_errors=True)


PARTS: tuple[tuple[Callable[[Log, Sequence[str], argparse.Namespace], None], Sequence[str]], ...] = (
    (starting, (START,)),
    (scenarios, tuple(SCENARIOS)),
    (appending, STREAMS),
    (linking, (LINK,)),
)


# -- all --------------------------------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--brokers", type=names, help="comma separated; the ratios are to rabbitmq (default: all here)")
    parser.add_argument("--only", type=names, default=list(TITLES), help="comma separated scenarios (default: all)")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="measuring window (default: 2)")
    parser.add_argument("--resume", action="store_true", help="go on with the last run, which was interrupted")
    options = parser.parse_args()
    if unknown := set(options.only) - set(TITLES):
        parser.error(f"unknown scenarios: {', '.join(sorted(unknown))}")
    if options.brokers is None:
        here = available()
        options.brokers = [*(QUEUE_KINDS if "rabbitmq" in here else ()), *(name for name in here if name != "rabbitmq")]
    return options


def main() -> None:
    options = arguments()
    build_tools()
    # for ten thousand connections; the brokers inherit the limit
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    chosen = {name: getattr(options, name) for name in ("brokers", "only", "rounds", "seconds")}
    try:
        log = Log(LOG, chosen, options.resume)
    except ValueError as error:
        sys.exit(str(error))
    began_s = time.monotonic()
    try:
        for part, known in PARTS:
            titles = [title for title in known if title in options.only]
            if missing(log, titles, options):
                part(log, titles, options)
    except ProcessFailed as error:
        sys.exit(f"{error}\n{shlex.join([*sys.argv, '--resume'])} goes on where this ended")
    minutes = (time.monotonic() - began_s) / 60
    print(f"{len(log.rows)} measurements in {minutes:.1f} minutes, load now {os.getloadavg()[0]:.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
