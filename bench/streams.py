#!/usr/bin/env python3
"""Stream queues: appending with confirms, replaying from the first message, octets on disk.

    bench/streams.py
    bench/streams.py --only replay-16,slow-beside --rounds 5
    bench/streams.py --brokers leveret,leveret@DIRECTORY --only append-16

Brokers: as in bench/run.py, each with its streams on the disk of this directory; all run at once and take turns.

- append: persistent messages with up to 1,000 unconfirmed, for some seconds, into a stream that is new each time. The
  classic scenarios are the same into a durable classic queue. RabbitMQ confirms what it has written, leveret what is
  synced.
- replay: one consumer with x-stream-offset "first" reads a stream that was filled before, from the page cache; prefetch
  1,000, every 100th message acknowledged with all before it. readers-4: four of them at once, total messages;
  slow-beside: one, while another acknowledges 1,000 messages per second.
- disk: octets per message of that stream in the broker's stream files.

Bodies: 16 octets or json (100 octets), messages that differ in their bodies only; mixed, 50 to 5,120 octets, with
distinct routing keys, ids, times and headers. Every message's offset is checked. Compare ratios and CPU µs per message
within one run, not figures across runs. Prints tables in Markdown.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys

from leveret.testing.processes import ProcessFailed, ServerProcess
from run import WORK, available, build_tools, measure, positive, servers
from scenarios import Scenario
from tables import Results, line, lookup, text

STREAM = "-durable -qarg x-queue-type=stream"
PERSISTENT = "-persistent -confirm 1000"
APPEND = f"throughput -consumers 0 {PERSISTENT}"
READ = f"replay {STREAM} -prefetch 1000 -ack-every 100"
APPENDED, READ_AGAIN = "confirmed_per_s", "replayed_per_s"
BODIES = {"16": "-size 16", "json": "-json", "mixed": "-mixed"}


def stream(body: str) -> str:
    """Return the name of the stream that is filled with such messages and kept."""
    return f"bench.{body}"


SCENARIOS = {
    **{f"append-{body}": Scenario(f"{APPEND} {STREAM} {how}", APPENDED, f"{body}: appended and confirmed")
       for body, how in BODIES.items()},
    **{f"classic-{body}": Scenario(f"{APPEND} -durable {how}", APPENDED, f"{body}: the same into a classic queue")
       for body, how in BODIES.items()},
    **{f"replay-{body}": Scenario(f"{READ} -queue {stream(body)} {how}", READ_AGAIN, f"{body}: read by one consumer")
       for body, how in BODIES.items()},
    "readers-4": Scenario(f"{READ} -queue {stream('16')} -consumers 4", READ_AGAIN, "16: four consumers, all together"),
    "slow-beside": Scenario(f"{READ} -queue {stream('16')} -slow 1", READ_AGAIN, "16: one beside a slow one"),
}  # fmt: skip
FILES = {"rabbitmq": "mnesia/*/stream", "leveret": "streams"}


def fill(broker: ServerProcess, body: str, count: int) -> None:
    """Fill a stream with `count` messages."""
    what = f"publish-only {STREAM} {PERSISTENT} {BODIES[body]} -queue {stream(body)} -keep -no-drain -count {count}"
    command = [WORK / "amqpload", *shlex.split(what), "-port", str(broker.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + count / 1000, check=False)
    if done.returncode or json.loads(done.stdout)["queue_depth"] != count:
        raise ProcessFailed(f"{stream(body)} was not filled: {done.stdout}{done.stderr}")


def octets(name: str, broker: ServerProcess) -> int:
    """Return the size of the broker's files that hold messages of streams."""
    folders = broker.data_dir.glob(FILES["rabbitmq" if name.startswith("rabbitmq") else "leveret"])
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())


def prepare(brokers: dict[str, ServerProcess], options: argparse.Namespace) -> dict[tuple[str, str], float]:
    """Fill the streams to be read; return octets on disk per message, by body and broker."""
    per_message = {}
    for body in BODIES:
        if not any(stream(body) in SCENARIOS[title].arguments for title in options.only):
            continue
        count = options.mixed_messages if body == "mixed" else options.messages
        for name, broker in brokers.items():
            before = octets(name, broker)
            fill(broker, body, count)
            per_message[body, name] = (octets(name, broker) - before) / count
            print(f"filled {body:14} {name:20} {per_message[body, name]:.1f} octets", file=sys.stderr, flush=True)
    return per_message


def disk_table(per_message: dict[tuple[str, str], float], names: list[str]) -> str:
    lines = [line(["octets on disk per message", *names]), line(["---"] + ["---:"] * len(names))]
    for body in BODIES:
        if (body, names[0]) in per_message:
            lines.append(line([body, *(text(per_message[body, name]) for name in names)]))
    return "\n".join(lines)


def run(options: argparse.Namespace) -> tuple[Results, dict[tuple[str, str], float]]:
    """Run all rounds; return the results and the octets on disk per message."""
    results = Results(options.brokers, SCENARIOS)
    with servers(options.brokers) as brokers:
        per_message = prepare(brokers, options)
        for turn in range(1, options.rounds + 1):
            for title in options.only:
                scenario = SCENARIOS[title]
                for name, broker in brokers.items():
                    seconds = options.seconds if scenario.figure == APPENDED else options.replay_seconds
                    row = measure(name, broker, title, scenario, seconds)
                    results.rows.append(row)
                    outcome = row.get("error") or text(lookup(row, scenario.figure))
                    print(f"{turn}/{options.rounds} {title:14} {name:20} {outcome}", file=sys.stderr, flush=True)
    return results, per_message


def names_of(given: str) -> list[str]:
    return given.split(",")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=names_of, help="comma separated; the first is the base of the ratios")
    parser.add_argument("--only", type=names_of, default=list(SCENARIOS), help="comma separated scenarios")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="measuring window of appending")
    parser.add_argument("--replay-seconds", type=float, default=10.0, help="reading ends then, if not at its end")
    parser.add_argument("--messages", type=positive, default=1_000_000, help="in a stream that is read")
    parser.add_argument("--mixed-messages", type=positive, default=200_000, help="in the one of mixed messages")
    options = parser.parse_args()
    options.brokers = options.brokers or [name for name in available() if name in ("rabbitmq", "leveret")]
    if unknown := set(options.only) - set(SCENARIOS):
        parser.error(f"unknown scenarios: {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = arguments()
    build_tools()
    load = os.getloadavg()[0]
    try:
        results, per_message = run(options)
    except ProcessFailed as error:
        sys.exit(str(error))
    print(f"\nload before the run: {load:.2f}, {os.cpu_count()} processors\n\n{results.main_table()}")
    print("\nCPU µs: the broker's processor time per message, all threads.")
    print(f"\n{results.legend()}\n\n{results.details()}\n\n{disk_table(per_message, results.brokers)}")
    ours = [name for name in results.brokers if name.startswith("leveret")]
    if any(results.faults(title, name) for title in results.scenarios() for name in ours):
        sys.exit("leveret lost, repeated or disordered messages: see above")


if __name__ == "__main__":
    main()
