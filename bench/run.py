#!/usr/bin/env python3
"""Runs the same scenarios on several brokers, in turns, and prints medians, ratios and processor time per message.

    bench/run.py --quick
    bench/run.py --brokers rabbitmq,leveret --only t16,rpc-50 --rounds 5 --seconds 5

Brokers: rabbitmq (with its default queues), rabbitmq-v2 (with x-queue-version=2, the only classic queues of RabbitMQ 4)
and rabbitmq-quorum, both for durable scenarios, garagemq, leveret (the compiled core, if available),
leveret-interpreted, leveret@DIRECTORY (another copy of the package, to compare two commits), and relay, which is no
broker: it only copies bytes, and shows the limit of TCP through one thread.
Each scenario runs on every broker before the next scenario (A B C A B C …), so that a disturbance of the machine
affects all of them. Compare ratios within one run, not figures across runs; CPU µs per message can be compared within a
run, too.
"""

import argparse
import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import leveret
from leveret.testing.processes import GarageMQProcess, LeveretProcess, ProcessFailed, RabbitMQProcess, ServerProcess
from scenarios import QUICK, SCENARIOS, Scenario
from tables import Results, Row, lookup, text

HERE = Path(__file__).resolve().parent
TOP = HERE.parent
WORK = TOP / "build" / "bench"
# GarageMQ often hangs when a queue that was busy is deleted, and on persistent messages: it stops answering.
EXTRA_ARGUMENTS = {
    "garagemq": ["-keep", "-timeout", "5", "-drain", "3"],
    "rabbitmq-v2": ["-qarg", "x-queue-version=2"],
    "rabbitmq-quorum": ["-qarg", "x-queue-type=quorum"],
}
QUEUE_KINDS = ("rabbitmq", "rabbitmq-v2", "rabbitmq-quorum")


class Relay(ServerProcess):
    """Runs bench/relay.c in place of a broker."""

    name = "relay"
    ready_pattern = LeveretProcess.ready_pattern

    def command(self) -> list[str]:
        return [str(WORK / "relay"), str(self.port)]


def build_tools() -> None:
    """Compile the load generator and the relay, if their sources are newer."""
    WORK.mkdir(parents=True, exist_ok=True)
    for name in ("amqpload", "relay"):
        source, program = HERE / f"{name}.c", WORK / name
        if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
            subprocess.run(["cc", "-O2", "-pthread", "-o", program, source], check=True)


def available() -> list[str]:
    """Return the brokers that can run here; the first is the base of all ratios."""
    names = []
    if RabbitMQProcess.program():
        names.append("rabbitmq")
    if shutil.which("garagemq"):
        names.append("garagemq")
    return [*names, *(["leveret"] if leveret.core() == "compiled" else []), "leveret-interpreted", "relay"]


def server(name: str, directory: Path) -> ServerProcess:
    """Return the broker of that name, not started. Its directory is on a real disk, so confirms cost real syncs."""
    if name.startswith("rabbitmq"):
        return RabbitMQProcess(directory)
    if name == "garagemq":
        return GarageMQProcess(directory)
    if name == "relay":
        return Relay(directory)
    if name.startswith("leveret@"):
        return LeveretProcess(directory, source=Path(name.partition("@")[2]))
    process = LeveretProcess(directory)
    if name == "leveret-interpreted":
        process.extra_environment["LEVERET_CORE"] = "interpreted"
    return process


@contextmanager
def servers(names: Sequence[str]) -> Iterator[dict[str, ServerProcess]]:
    """Start all brokers at once: an idle one costs next to nothing. RabbitMQ's kinds of queues share a node."""
    data = WORK / "data"
    with (WORK / "lock").open("w") as lock, ExitStack() as stack:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProcessFailed(f"another measurement is going on in {WORK}") from None
        shutil.rmtree(data, ignore_errors=True)
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        found: dict[str, ServerProcess] = {}
        for name in names:
            kin = next((other for other in found if name in QUEUE_KINDS and other in QUEUE_KINDS), None)
            found[name] = found[kin] if kin else stack.enter_context(server(name, data / name))
        yield found


def measure(name: str, broker: ServerProcess, title: str, scenario: Scenario, seconds: float) -> Row:
    """Run amqpload once. If it fails, return a row with an "error" and restart the broker."""
    row = load(name, broker, title, scenario, seconds)
    if "error" in row:
        broker.kill()
        broker.start()
    return row


def load(name: str, broker: ServerProcess, title: str, scenario: Scenario, seconds: float) -> Row:
    """Run amqpload once. If it fails, return a row with an "error"."""
    where = ["-port", str(broker.port), "-pid", str(broker.pid), "-seconds", str(seconds)]
    command = [WORK / "amqpload", *shlex.split(scenario.arguments), *where, *EXTRA_ARGUMENTS.get(name, [])]
    timeout_s = 12 * seconds + scenario.patience_s
    row: Row = {"scenario": title, "broker": name, "at": time.time(), "load1": os.getloadavg()[0]}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        row |= json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        row["error"] = f"not finished after {timeout_s:.0f} s"
    except json.JSONDecodeError:
        row["error"] = (done.stdout + done.stderr)[:200] or f"exit status {done.returncode}"
    return row


def run(options: argparse.Namespace) -> Results:
    """Run all rounds. Every run is also appended, as a line of JSON, to build/bench/runs.jsonl."""
    results = Results(options.brokers)
    with servers(options.brokers) as brokers, (WORK / "runs.jsonl").open("a") as log:
        for turn in range(1, options.rounds + 1):
            for scenario in options.only:
                for name, broker in brokers.items():
                    if name == "relay" and not SCENARIOS[scenario].relayed:
                        continue
                    row = measure(name, broker, scenario, SCENARIOS[scenario], options.seconds)
                    results.rows.append(row)
                    log.write(json.dumps(row) + "\n")
                    outcome = row.get("error") or text(lookup(row, SCENARIOS[scenario].figure))
                    print(f"{turn}/{options.rounds} {scenario:14} {name:20} {outcome}", file=sys.stderr, flush=True)
    return results


def positive(text: str) -> int:
    """Parse an argument that is a positive number."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="five scenarios, two rounds of 3 s, no garagemq, no relay")
    parser.add_argument("--brokers", type=lambda names: names.split(","), help="comma separated; the first is the base")
    parser.add_argument("--only", type=lambda names: names.split(","), help="comma separated scenarios")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="measuring window of each run")
    options = parser.parse_args()
    if options.brokers is None:
        options.brokers = [name for name in available() if not options.quick or name not in ("garagemq", "relay")]
    options.only = options.only or list(QUICK if options.quick else SCENARIOS)
    if unknown := set(options.only) - set(SCENARIOS):
        parser.error(f"unknown scenarios: {', '.join(sorted(unknown))}")
    options.rounds = options.rounds or (2 if options.quick else 3)
    options.seconds = options.seconds or (3 if options.quick else 5)
    return options


def main() -> None:
    options = arguments()
    if "rabbitmq" not in options.brokers:
        print("RabbitMQ is not installed or not asked for: the ratios are to the first broker", file=sys.stderr)
    build_tools()
    try:
        results = run(options)
    except ProcessFailed as error:
        sys.exit(str(error))
    print(f"\n{results.main_table()}\n\nCPU µs: the broker's processor time per message (per connection), all threads.")
    print(f"\n{results.legend()}\n\n{results.details()}")
    ours = [name for name in results.brokers if name.startswith("leveret")]
    if any(results.faults(scenario, name) for scenario in results.scenarios() for name in ours):
        sys.exit("leveret lost, repeated or disordered messages: see above")


if __name__ == "__main__":
    main()
