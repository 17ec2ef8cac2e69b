#!/usr/bin/env python3
"""Has leveret become slower? Messages per second and processor time, compared with bench/baseline.json.

    bench/gate.py              `make bench-quick`: two to three minutes; exit status 1 beyond 15 %
    bench/gate.py --renew      make a new baseline, on purpose: on a quiet machine, then commit it

bench/instructions.py counts the core's instructions per message, and detects changes of one per cent, but sees neither
system calls nor the event loop. Here five scenarios run alternately on leveret and RabbitMQ; medians count. Figures of
two runs can only be compared by a reference that both have. Each line is compared by two references, and is worse only
if it is worse by both:

- a fixed loop of Python before each measurement shows when the whole machine is slower than it was;
- RabbitMQ in the same run shows what the loop does not measure, such as disk and network. If only RabbitMQ was faster
  this time, the loop shows that leveret has not become slower.

Neither helps while other programs compute: then fewer messages are handled in one turn of the broker's loop, and each
of them takes more work. Beside ten programs on two processors the same build took 0.65 to 1.6 µs per message, while the
loop's time varied by 1 %. So a round in which other programs (or the host of the virtual machine) used more than a
tenth of the processors does not count; if fewer than two rounds are left, the line is reported as not judged. A line
that seems to be worse is measured once more, with as many rounds, and judged by all of them.

If Python, compiler, C library, processor or RabbitMQ differ from the baseline's, the script says so, compares nothing
and does not fail.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import machine
from leveret.testing.processes import ProcessFailed, RabbitMQProcess, ServerProcess
from run import HERE, build_tools, load, positive, servers
from scenarios import QUICK, SCENARIOS
from tables import Row, line, lookup, text

BASELINE = HERE / "baseline.json"
LIMIT = 0.15
OTHERS_MAX = 0.1
"""The largest share of the processors that other programs may use in a round that counts."""
ROUNDS_MIN = 2
BASE, OURS = "rabbitmq", "leveret"
CPU_US = "broker_cpu_us_per_msg"
RENEW = "`make bench-quick GATE=--renew` on a quiet machine, and commit bench/baseline.json"


class Line(NamedTuple):
    name: str
    was: float
    now: float
    worse: float | None  # by which part, 0.2 is a fifth; below 0: better; None: not judged

    @property
    def fails(self) -> bool:
        return self.worse is not None and self.worse > LIMIT


class Round(NamedTuple):
    """One measurement of both brokers, one after the other."""

    loop_s: float
    others: float  # share of the processors used by neither brokers nor load generator
    per_s: float
    cpu_us: float
    rabbitmq_per_s: float
    rabbitmq_cpu_us: float


Figures = dict[str, float]


# -- comparing --------------------------------------------------------------------------------------------------------


def medians(rounds: Sequence[Round], others_max: float = OTHERS_MAX) -> Figures | None:
    """Return the medians of each figure, and of the ratios within a round; None if too few rounds count."""
    quiet = [found for found in rounds if found.others <= others_max]
    if len(quiet) < ROUNDS_MIN:
        return None
    columns: dict[str, list[float]] = {
        "loop_s": [found.loop_s for found in quiet],
        "per_s": [found.per_s for found in quiet],
        "cpu_us": [found.cpu_us for found in quiet],
        "ratio": [found.per_s / found.rabbitmq_per_s for found in quiet],
        "cpu_ratio": [found.cpu_us / found.rabbitmq_cpu_us for found in quiet],
    }
    return {name: statistics.median(values) for name, values in columns.items()}


def scenario_lines(name: str, was: Figures, now: Figures | None) -> list[Line]:
    """Compare messages per second and processor time of a scenario, each by the more favourable reference."""
    rate, cost = f"{name}: messages/s, times RabbitMQ", f"{name}: CPU µs per message"
    if now is None:
        return [Line(rate, was["ratio"], 0, None), Line(cost, was["cpu_us"], 0, None)]
    slower = now["loop_s"] / was["loop_s"]
    rate_worse = min(1 - now["ratio"] / was["ratio"], 1 - now["per_s"] * slower / was["per_s"])
    cpu_worse = min(now["cpu_ratio"] / was["cpu_ratio"], now["cpu_us"] / slower / was["cpu_us"]) - 1
    return [
        Line(rate, was["ratio"], now["ratio"], rate_worse),
        Line(cost, was["cpu_us"], now["cpu_us"] / slower, cpu_worse),
    ]


def differences(was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Describe how the machine or its programs differ from those of the baseline."""
    return [
        f"{name}: {now.get(name, 'none')}, of the baseline: {was.get(name, 'none')}"
        for name in {**was, **now}
        if was.get(name) != now.get(name)
    ]


def table(lines: Sequence[Line]) -> str:
    out = [line(["", "baseline", "now", "worse by", ""]), line(["---", "---:", "---:", "---:", "---"])]
    for found in lines:
        if found.worse is None:
            out.append(line([found.name, text(found.was), "", "", "not judged: others took the processors"]))
        else:
            mark = "**too much**" if found.fails else ""
            out.append(line([found.name, text(found.was), text(found.now), f"{found.worse:+.1%}", mark]))
    return "\n".join(out)


# -- measuring --------------------------------------------------------------------------------------------------------


def fixed_loop_s() -> float:
    """Return the processor time of a fixed amount of work: dictionaries, numbers, copies."""
    began_s = time.process_time()
    octets, kept, total = bytes(range(256)) * 256, {}, 0
    for number in range(400_000):
        kept[number & 4095] = number
        total += number * number % 7
        if number % 64 == 0:
            total += len(bytearray(octets))
    return time.process_time() - began_s


def processors_s() -> float:
    """Return the time that all processors have worked, or that the host has taken: user, nice, system, stolen."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(int(fields[index]) for index in (1, 2, 3, 8)) / os.sysconf("SC_CLK_TCK")


def own_s(sessions: set[int]) -> float:
    """Return the processor time of this process, its children that have ended, and the brokers' sessions."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ticks = sum(int(fields[11]) + int(fields[12]) for fields in machine.stats() if int(fields[3]) in sessions)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + ticks / os.sysconf("SC_CLK_TCK")


def measure_round(brokers: Mapping[str, ServerProcess], title: str, seconds: float) -> Round:
    """Measure both brokers. Raises ProcessFailed if one of them fails, which says nothing about speed."""
    sessions = {broker.pid for broker in brokers.values()}
    began = (time.monotonic(), processors_s(), own_s(sessions))
    loop_s, rows = [], {}
    scenario = SCENARIOS[title]._replace(arguments=f"{SCENARIOS[title].arguments} -warmup 0.5")
    for name in (BASE, OURS):
        loop_s.append(fixed_loop_s())
        rows[name] = load(name, brokers[name], title, scenario, seconds)
        if "error" in rows[name]:
            raise ProcessFailed(f"{title}, {name}: {rows[name]['error']}")
    passed_s = (time.monotonic() - began[0]) * (os.cpu_count() or 1)
    others_s = (processors_s() - began[1]) - (own_s(sessions) - began[2])
    found = Round(
        statistics.mean(loop_s),
        max(0.0, others_s / passed_s),
        *(figure(rows[name], path) for name in (OURS, BASE) for path in (scenario.figure, CPU_US)),
    )
    ratio = found.per_s / found.rabbitmq_per_s
    cells = [f"{text(found.per_s)}/s", f"{text(ratio)} x RabbitMQ", f"{text(found.cpu_us)} µs"]
    print(f"{title:12}", *(f"{cell:>16}" for cell in cells), f"others {found.others:.0%}", file=sys.stderr, flush=True)
    return found


def figure(row: Row, path: str) -> float:
    value = lookup(row, path)
    if not value:
        raise ProcessFailed(f"{row['scenario']}, {row['broker']}: no {path}")
    return value


def measure(baseline: Mapping[str, Figures], options: argparse.Namespace) -> dict[str, list[Round]]:
    """Run the rounds of all scenarios; repeat those that seem to be worse, or were disturbed."""
    rounds: dict[str, list[Round]] = {title: [] for title in QUICK}
    with servers([BASE, OURS]) as brokers:
        titles: Sequence[str] = QUICK
        for _ in range(2):
            for _ in range(options.rounds):
                for title in titles:
                    rounds[title].append(measure_round(brokers, title, options.seconds))
            titles = doubtful(baseline, rounds)
    return rounds


def doubtful(baseline: Mapping[str, Figures], rounds: Mapping[str, Sequence[Round]]) -> list[str]:
    """Return the scenarios that seem to be worse than before, or had some, but too few quiet rounds."""
    found = []
    for title, done in rounds.items():
        if all(item.others > OTHERS_MAX for item in done):
            continue
        now = medians(done)
        lines = scenario_lines(title, baseline[title], now) if title in baseline else []
        if now is None or any(item.fails for item in lines):
            found.append(title)
    return found


# -- the gate ---------------------------------------------------------------------------------------------------------


def read_baseline(path: Path) -> dict[str, Any]:
    """Read the committed baseline. Raises ValueError if the file is missing or invalid."""
    try:
        found = json.loads(path.read_text())
        return {key: found[key] for key in ("made", "kind", "scenarios")}
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is no baseline ({type(error).__name__}: {error}); gate.py --renew makes one"
        ) from error


def renew(options: argparse.Namespace, kind: dict[str, str]) -> None:
    """Write a new baseline. Raises ValueError if the machine was too busy."""
    rounds = measure({}, options)
    found = {title: medians(done, 1.0 if options.busy else OTHERS_MAX) for title, done in rounds.items()}
    if disturbed := [title for title, figures in found.items() if figures is None]:
        raise ValueError(f"not done: other programs were busy during {', '.join(disturbed)} (--busy takes it anyway)")
    made = time.strftime("%Y-%m-%d") + (", on a busy machine" if options.busy else "")
    scenarios = {title: rounded(figures) for title, figures in found.items() if figures}
    new = {"made": made, "kind": kind, "scenarios": scenarios}
    BASELINE.write_text(json.dumps(new, indent=2, ensure_ascii=False) + "\n")
    print(f"{BASELINE} is new: commit it")


def rounded(figures: Figures) -> Figures:
    return {name: float(f"{value:.5g}") for name, value in figures.items()}


def compare(baseline: Mapping[str, Any], options: argparse.Namespace) -> list[Line]:
    """Measure all scenarios and compare them with the baseline."""
    rounds = measure(baseline["scenarios"], options)
    return [
        found
        for title, was in baseline["scenarios"].items()
        for found in scenario_lines(title, was, medians(rounds[title]))
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renew", action="store_true", help="write bench/baseline.json instead of comparing with it")
    parser.add_argument(
        "--busy", action="store_true", help="with --renew: also where other programs take the processors"
    )
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="measuring window of each run")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if RabbitMQProcess.program() is None:
        if options.renew:
            sys.exit("a baseline needs RabbitMQ")
        print("Nothing is compared: RabbitMQ, the yardstick, is not installed.")
        return
    build_tools()
    kind = machine.kind()
    try:
        if options.renew:
            renew(options, kind)
            return
        baseline = read_baseline(BASELINE)
        if unlike := differences(baseline["kind"], kind):
            print(f"Nothing is compared: the baseline of {baseline['made']} is of another kind.")
            print("\n".join(f"- {item}" for item in unlike))
            print(f"To compare on this one: {RENEW}")
            return
        lines = compare(baseline, options)
    except (ProcessFailed, ValueError) as error:
        sys.exit(str(error))
    print(f"\nAgainst the baseline of {baseline['made']}:\n\n{table(lines)}\n")
    failed = [found for found in lines if found.fails]
    for found in failed:
        change = f"{text(found.now)} instead of {text(found.was)}"
        print(f"{found.name}: {change}, {found.worse:.0%} worse; allowed are {LIMIT:.0%}")
    if failed:
        sys.exit(f"Slower than the baseline. Find out why; or, if it is meant to be so: {RENEW}")


if __name__ == "__main__":
    main()
