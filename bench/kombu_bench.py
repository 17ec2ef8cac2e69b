#!/usr/bin/env python3
"""kombu and Celery on leveret's transport and on py-amqp, in turns, on leveret and on RabbitMQ: rates and their ratios.

    python bench/kombu_bench.py
    python bench/kombu_bench.py --brokers leveret --messages 50000 --tasks 5000 --rounds 5

kombu: one process publishes messages of 200 bytes (JSON, transient) with a Producer, and then consumes them with a
Consumer that acknowledges each, prefetch 500. Celery: one process sends trivial tasks whose results are ignored, and a
worker, with the pool `solo` or with `prefork` of two processes, handles them afterwards; its start is not counted.
Each rate is told twice: by the clock, and by the processor time of the client's processes, which other load on the
machine disturbs less. Figures are medians over the rounds. Compare ratios within one run, not figures across runs.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import kombu
from celery import Celery

from leveret.frameworks import kombu_alias
from run import WORK, servers

__all__ = ["celery_rates", "kombu_rates"]

TRANSPORTS: Final = {"py-amqp": "pyamqp", "leveret's": "leveret"}
POOLS: Final = {"solo": ("-P", "solo"), "prefork 2": ("-P", "prefork", "-c", "2")}
BODY: Final = {"text": "x" * 188}
"""200 bytes as JSON."""
DEADLINE_S: Final = 300.0

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

assert kombu_alias.TRANSPORTS  # kombu knows leveret:// also where this checkout is not installed
app = Celery("kombu_bench", set_as_current=False)
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False)


@app.task(name="nothing")
def nothing() -> None:
    pass


@app.task(name="mark")
def mark(path: str) -> None:
    """Write the time into a file, which appears complete."""
    Path(f"{path}.new").write_text(str(time.time()))
    os.replace(f"{path}.new", path)


class Stopwatch:
    """Measures work by the clock, and by this process's processor time."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def rates(self, name: str, count: int) -> dict[str, float]:
        """Return what was done in a second so far, and in a second of processor time."""
        clock, cpu = (end - began for end, began in zip(
            (time.perf_counter(), time.process_time()), self._began, strict=True))
        return {name: count / clock, f"{name}, of CPU": count / cpu}


def kombu_rates(url: str, messages: int) -> dict[str, float]:
    """Return messages per second: "publish" and "consume". url: a broker's, with the scheme of a transport."""
    with kombu.Connection(url) as connection:
        queue = kombu.Queue("bench.kombu", durable=False)(connection.default_channel)
        queue.declare()
        queue.purge()
        producer = connection.Producer()
        watch = Stopwatch()
        for _ in range(messages):
            producer.publish(BODY, routing_key=queue.name, delivery_mode=1)
        queue.queue_declare(passive=True)  # answered when the broker has handled all of them
        found = watch.rates("publish", messages)
        left = messages

        def take(_: object, message: kombu.Message) -> None:
            nonlocal left
            left -= 1
            message.ack()

        watch = Stopwatch()
        with connection.Consumer(queue, callbacks=[take], prefetch_count=500):
            while left:
                connection.drain_events(timeout=DEADLINE_S)
        found |= watch.rates("consume", messages)
        queue.delete()
    return found


def celery_rates(url: str, tasks: int, pool: Sequence[str]) -> dict[str, float]:
    """Return tasks per second: "send", by one process, and "handle", by a worker. pool: the worker's options."""
    with tempfile.TemporaryDirectory() as directory:
        first, last = Path(directory) / "first", Path(directory) / "last"
        sender = Celery(broker=url, set_as_current=False)
        sender.send_task("mark", (str(first),))
        watch = Stopwatch()
        for _ in range(tasks):
            sender.send_task("nothing", ignore_result=True)
        found = watch.rates("send", tasks)
        sender.send_task("mark", (str(last),))
        sender.close()
        with worker(url, pool) as process:
            cpu_s = -busy_s(process, first)
            cpu_s += busy_s(process, last)
        handled_s = float(last.read_text()) - float(first.read_text())
    return found | {"handle": tasks / handled_s, "handle, of CPU": tasks / cpu_s}


def busy_s(worker: "subprocess.Popen[bytes]", mark: Path) -> float:
    """Return the processor time of a worker's processes when it has made a mark."""
    deadline = time.monotonic() + DEADLINE_S
    while not mark.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the worker has not handled its tasks in {DEADLINE_S:g} s")
        time.sleep(0.01)
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:
            continue  # the process has ended
        if int(fields[3]) == worker.pid:  # its session
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S


@contextmanager
def worker(url: str, pool: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a worker of this module's application."""
    command = [sys.executable, "-m", "celery", "-A", "kombu_bench", "worker", "-l", "ERROR", *pool]
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "CELERY_BROKER_URL": url, "PYTHONPATH": path, "C_FORCE_ROOT": "1"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def rates(url: str, messages: int, tasks: int) -> dict[str, float]:
    """Return all rates of one transport, by name."""
    found = {f"kombu, {name}": rate for name, rate in kombu_rates(url, messages).items()}
    for pool, options in POOLS.items() if tasks else ():
        found |= {f"Celery {pool}, {name}": rate for name, rate in celery_rates(url, tasks, options).items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", default="leveret,rabbitmq", help="as those of bench/run.py")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--tasks", type=int, default=3_000, help="0 = kombu alone")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    with servers(options.brokers.split(",")) as brokers:
        for name, broker in brokers.items():
            runs: dict[str, list[dict[str, float]]] = {transport: [] for transport in TRANSPORTS}
            for _ in range(options.rounds):
                for transport, scheme in TRANSPORTS.items():
                    url = broker.url.replace("amqp://", f"{scheme}://", 1)
                    runs[transport].append(rates(url, options.messages, options.tasks))
            print(f"\n{f'on {name}, a second':<38}{'py-amqp':>10}{'leveret':>10}{'ratio':>8}")
            for row in runs["py-amqp"][0]:
                other, own = (statistics.median(run[row] for run in runs[transport]) for transport in TRANSPORTS)
                print(f"  {row:<36}{other:>10,.0f}{own:>10,.0f}{own / other:>8.1f}", flush=True)


if __name__ == "__main__":
    main()
