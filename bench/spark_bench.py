#!/usr/bin/env python3
"""The speed of the Spark source and sink: every figure is a ratio of jobs that took turns in one run.

    bench/spark_bench.py
    bench/spark_bench.py --only sink,rpc --rounds 5 --json figures.json
    bench/spark_bench.py --quick

One session with leveret.spark.session()'s settings runs on two threads, with leveret and RabbitMQ on the same machine.
Queues hold 100-byte persistent messages with an id and a header, streams 100-byte JSON messages. The "pika" jobs are
what one usually writes with it (bench/spark_pika.py): tuples, and confirms awaited one by one. The jobs of a figure
take turns; its first round warms up the JVM and the workers and does not count; medians of the others. Do not compare
figures across runs.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import leveret
from leveret.spark import session
from leveret.testing.processes import LeveretProcess, RabbitMQProcess
from run import WORK, build_tools, positive
from spark_jobs import (
    LEVERET,
    PIKA,
    Site,
    ask,
    counted,
    floor,
    latency,
    read_queue,
    write,
    write_with_pika,
)
from spark_pika import PikaDataSource
from spark_stream_jobs import (
    SEALED,
    live,
    read_data_frame,
    read_micro_batches,
    read_parquet,
    read_stream,
    read_with_pika,
)

HERE = Path(__file__).resolve().parent
RABBITMQ = "rabbitmq"


@dataclass(frozen=True)
class Figure:
    """Jobs that are compared with one another.

    Attributes:
        goals: Pairs of jobs, and the least ratio of the first to the second; None: no goal.
        most: Jobs and their greatest value, in the unit.
    """

    title: str
    unit: str
    jobs: dict[str, Callable[[Site], float]]
    goals: tuple[tuple[str, str, float | None], ...] = ()
    most: tuple[tuple[str, float], ...] = ()


FIGURES: dict[str, Figure] = {
    "stream": Figure(
        "a whole stream in a batch, all columns",
        "rows/s",
        {
            "sealed segments": lambda site: read_stream(site, LEVERET, SEALED),
            "lake.data_frame": read_data_frame,
            "spark.read.parquet": read_parquet,
            "over AMQP": lambda site: read_stream(site, LEVERET),
            "over AMQP, RabbitMQ": lambda site: read_stream(site, RABBITMQ),
            "pika": lambda site: read_with_pika(site, LEVERET),
            "pika, RabbitMQ": lambda site: read_with_pika(site, RABBITMQ),
        },
        (
            ("lake.data_frame", "spark.read.parquet", 0.95),
            ("sealed segments", "spark.read.parquet", 0.6),
            ("sealed segments", "pika", 10.0),
        ),
    ),
    "micro": Figure(
        "the same stream in five micro-batches",
        "rows/s",
        {
            "sealed segments": lambda site: read_micro_batches(site, LEVERET, SEALED),
            "over AMQP": lambda site: read_micro_batches(site, LEVERET),
            "over AMQP, RabbitMQ": lambda site: read_micro_batches(site, RABBITMQ),
        },
    ),
    "live": Figure(
        "a stream while it is appended to as fast as it goes",
        "rows/s",
        {LEVERET: lambda site: live(site, LEVERET), RABBITMQ: lambda site: live(site, RABBITMQ)},
        (("leveret", "rabbitmq", None),),
    ),
    "queue": Figure(
        "a queue in micro-batches",
        "rows/s",
        {
            "ack": lambda site: read_queue(site, LEVERET),
            "ack, RabbitMQ": lambda site: read_queue(site, RABBITMQ),
            "spool": lambda site: read_queue(site, LEVERET, mode="spool"),
            "spool, RabbitMQ": lambda site: read_queue(site, RABBITMQ, mode="spool"),
            "pika": lambda site: read_queue(site, LEVERET, PIKA),
            "pika, RabbitMQ": lambda site: read_queue(site, RABBITMQ, PIKA),
        },
        (("ack", "ack, RabbitMQ", 3.0), ("spool", "spool, RabbitMQ", 3.0)),
    ),
    "sink": Figure(
        "a frame into a queue, every row confirmed",
        "rows/s",
        {
            "unstaged": lambda site: write(site, LEVERET, delivery="at-least-once"),
            "staged": lambda site: write(site, LEVERET, delivery="exactly-once"),
            "RabbitMQ": lambda site: write(site, RABBITMQ, delivery="at-least-once"),
            "pika": lambda site: write_with_pika(site, LEVERET),
            "pika, RabbitMQ": lambda site: write_with_pika(site, RABBITMQ),
            "pika, no confirms": lambda site: write_with_pika(site, LEVERET, confirms=False),
        },
        (
            ("unstaged", "pika", 8.0),
            ("staged", "pika", 8.0),
            ("staged", "unstaged", None),
            ("unstaged", "RabbitMQ", None),
        ),
    ),
    "rpc": Figure(
        "calls of a service, window 256",
        "calls/s",
        {LEVERET: lambda site: ask(site, LEVERET), RABBITMQ: lambda site: ask(site, RABBITMQ)},
        (("leveret", "rabbitmq", 2.0),),
    ),
    "floor": Figure(
        "a micro-batch of 100 rows from a queue",
        "ms",
        {LEVERET: lambda site: floor(site, LEVERET), RABBITMQ: lambda site: floor(site, RABBITMQ)},
    ),
    "latency": Figure(
        "queue to Spark to queue, 200 messages/s, p50",
        "ms",
        {
            "unstaged": lambda site: latency(site, LEVERET, "at-least-once"),
            "staged": lambda site: latency(site, LEVERET, "exactly-once"),
            "staged, transformWithState": lambda site: latency(site, LEVERET, "exactly-once", counted),
            "RabbitMQ": lambda site: latency(site, RABBITMQ, "at-least-once"),
        },
        most=(("unstaged", 100.0), ("staged", 100.0)),
    ),
}

Found = dict[str, dict[str, list[float]]]


def measure(site: Site, name: str, rounds: int) -> dict[str, list[float]]:
    """Run every job of a figure once per round, alternately; the first round does not count."""
    found: dict[str, list[float]] = {job: [] for job in FIGURES[name].jobs}
    for turn in range(rounds + 1):
        for job, run in FIGURES[name].jobs.items():
            value = run(site)
            if turn:
                found[job].append(value)
            print(f"{turn}/{rounds} {name:8} {job:20} {value:12,.1f}", file=sys.stderr, flush=True)
    return found


def outcomes(name: str, jobs: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Return the ratios and bounds of a figure, each with its goal."""
    medians = {job: statistics.median(values) for job, values in jobs.items()}
    figure = FIGURES[name]
    ratios = [
        {"what": f"{job} : {base}", "is": medians[job] / medians[base], "least": least}
        for job, base, least in figure.goals
    ]
    return [*ratios, *({"what": job, "is": medians[job], "most": most} for job, most in figure.most)]


def show(found: Found, console: Console) -> None:
    """Print a table of medians, and one of ratios and bounds."""
    rates = Table("figure", "job", "median", "", "worst to best", title="figures")
    goals = Table("figure", "ratio, or bound", "is", "goal", "", title="goals")
    for name, jobs in found.items():
        for job, values in jobs.items():
            spread = f"{min(values):,.0f} to {max(values):,.0f}"
            rates.add_row(FIGURES[name].title, job, f"{statistics.median(values):,.0f}", FIGURES[name].unit, spread)
        for each in outcomes(name, jobs):
            goals.add_row(name, each["what"], f"{each['is']:.2f}", *judged(each))
    console.print(rates)
    console.print(goals)


def as_json(found: Found) -> str:
    said = {
        name: {"unit": FIGURES[name].unit, "jobs": jobs, "goals": outcomes(name, jobs)} for name, jobs in found.items()
    }
    settings = {"core": leveret.core(), "processors": os.cpu_count(), "load": os.getloadavg()}
    return json.dumps({"settings": settings, "figures": said}, indent=1)


def judged(outcome: dict[str, Any]) -> tuple[str, str]:
    """Return the goal's text, and whether it is met."""
    value, least, most = outcome["is"], outcome.get("least"), outcome.get("most")
    if least is None and most is None:
        return "", ""
    is_met = value >= least if least is not None else value <= most
    return f"≥ {least:g}" if least is not None else f"≤ {most:g}", "met" if is_met else "[bold]missed[/bold]"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, a fifth of the rows: for the order of things")
    parser.add_argument("--only", type=lambda names: names.split(","), default=list(FIGURES), help=", ".join(FIGURES))
    parser.add_argument("--rows", type=positive, default=100_000, help="messages in queues")
    parser.add_argument("--stream-rows", type=positive, default=1_000_000, help="messages in streams")
    parser.add_argument("--size", type=positive, default=100, help="bytes per body of a queue's messages")
    parser.add_argument("--per-trigger", type=positive, default=20_000, help="rows of a queue's micro-batch")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of latency and floor")
    parser.add_argument("--json", type=Path, help="all values as JSON, into this file")
    parser.add_argument("--core", type=Path, help="the directory that the broker imports leveret from, if another")
    options = parser.parse_args()
    if unknown := set(options.only) - set(FIGURES):
        parser.error(f"unknown figures: {', '.join(sorted(unknown))}")
    if options.quick:
        options.rounds, options.rows, options.stream_rows = 1, options.rows // 5, options.stream_rows // 5
    return options


def main() -> None:
    """Start the brokers and the session, measure, and print."""
    options = arguments()
    build_tools()
    # Spark's workers unpickle the pika jobs by the name of their module
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    data = WORK / "data"
    shutil.rmtree(data, ignore_errors=True)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        brokers = {
            LEVERET: stack.enter_context(LeveretProcess(data / LEVERET, source=options.core)),
            RABBITMQ: stack.enter_context(RabbitMQProcess(data / RABBITMQ)),
        }
        spark = session("leveret-bench", **{"spark.master": "local[2]", "spark.driver.memory": "2g"})
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(PikaDataSource)
        site = Site(
            spark, brokers, options.rows, options.size, options.stream_rows, options.per_trigger, options.seconds
        )
        found: Found = {}
        for name in options.only:
            found[name] = measure(site, name, options.rounds)
            if options.json:
                options.json.write_text(as_json(found))
    show(found, Console(width=150))


if __name__ == "__main__":
    main()
