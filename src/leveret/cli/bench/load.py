"""One run of a scenario on one broker: declares queues, starts processes, measures, and cleans up."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import Any, Final

from leveret.cli.bench import delays, machine, worker
from leveret.cli.bench.histogram import LatencyHistogram
from leveret.cli.bench.job import BenchJob
from leveret.cli.bench.scenarios import Scenario
from leveret.cli.bench.worker import Report, Signals
from leveret.client import BlockingConnection, ClientError
from leveret.client.protocol.url import parse_url

WARMUP_S: Final = 0.5
STALL_S: Final = 5.0
START_S: Final = 30.0
GRACE_S: Final = 3.0
BUSY: Final = 0.9
EXPIRES_MS: Final = 600_000
"""Queues of a bench that was killed expire."""
SPAWN: Final = multiprocessing.get_context("spawn")
Figures = dict[str, Any]
# name of each role's times in the figures
TIMES: Final = {"publisher": "confirm_us", "consumer": "latency_us", "requester": "round_trip_us", "late": "late_us"}


class LoadFailed(Exception):
    """A process of the load generator failed; the text says why."""


def measured(scenario: Scenario, job: BenchJob) -> Figures:
    """Run the scenario once and return its figures. Raises LoadFailed, ClientError or OSError."""
    pid = machine.broker_pid(parse_url(job.url).host, parse_url(job.url).port)
    with _declared(scenario, job):
        before = machine.cpu_s(pid)
        if scenario.drains:
            sent = _phase(job, [(scenario.sender, job.publishers)])
            total = sum(report.count for report in sent)
            drain = dataclasses.replace(job, messages=total, confirm=0)
            reports = sent + _phase(drain, [(scenario.receiver, job.consumers)], total)
        else:
            receivers = (job.publishers if scenario.is_paired else job.consumers) if scenario.receiver else 0
            reports = _phase(job, [(scenario.receiver, receivers), (scenario.sender, job.publishers)])
        broker_s = machine.cpu_s(pid) - before
    return _figures(scenario, job, reports, broker_s if pid else 0.0)


@contextlib.contextmanager
def _declared(scenario: Scenario, job: BenchJob) -> Iterator[None]:
    """Declare the queues, and delete them when the block ends."""
    is_delayed = scenario.sender == "delayer"
    try:
        with BlockingConnection(job.url, name="leveret bench", reconnect=False) as connection:
            channel = connection.channel()
            if job.fanout:
                channel.declare_exchange(job.name, "fanout", durable=job.persistent)
            for number in range(job.queues):
                channel.declare_queue(job.queue(number), durable=job.persistent, arguments={"x-expires": EXPIRES_MS})
                if job.fanout:
                    channel.bind_queue(job.queue(number), job.name)
            if is_delayed:
                delays.declare(job, channel)
        yield
    finally:
        with (
            contextlib.suppress(ClientError, OSError),
            BlockingConnection(job.url, name="leveret bench", reconnect=False) as connection,
        ):
            channel = connection.channel()
            for number in range(job.queues):
                channel.delete_queue(job.queue(number))
            if job.fanout:
                channel.delete_exchange(job.name)
            if is_delayed:
                delays.remove(job, channel)


def _phase(job: BenchJob, roles: list[tuple[str, int]], goal: int = 0) -> list[Report]:
    """Run the processes until the senders have finished and `goal` messages (or, if 0, all sent ones) have arrived.

    Receivers start first. Returns the processes' reports.
    """
    counts = sum(count for _, count in roles)
    signals = Signals(
        SPAWN.Event(), SPAWN.Event(), SPAWN.Array("q", counts, lock=False), SPAWN.Value("q", 0, lock=False), WARMUP_S
    )
    processes: list[tuple[str, BaseProcess, Pipe]] = []
    try:
        for role, count in roles:
            for number in range(count):
                ours, theirs = SPAWN.Pipe()
                arguments = (role, job, signals, len(processes), number, theirs)
                process = SPAWN.Process(target=worker.run, args=arguments, daemon=True)
                with interrupts_held():
                    process.start()
                theirs.close()
                processes.append((role, process, ours))
        early = [said for _, _, pipe in processes if (said := _heard(pipe, START_S)) != "ready"]
        if early:
            raise LoadFailed(early[0].error if isinstance(early[0], Report) else "a benchmark process did not start")
        signals.start_ns.value = time.monotonic_ns()
        signals.go.set()
        sender = roles[-1][0]
        reports = _await_senders(job, [(role, pipe) for role, _, pipe in processes], sender) if not goal else []
        sent = goal or job.copies * sum(report.count for report in reports)
        if sender not in ("requester",):
            _await_all(job, signals, [index for index, one in enumerate(processes) if goal or one[0] != sender], sent)
        signals.stop.set()
        waiting = processes if goal else [one for one in processes if one[0] != sender]
        reports += [_report(_heard(pipe, GRACE_S + STALL_S)) for _, _, pipe in waiting]
        return reports
    finally:
        signals.stop.set()
        signals.go.set()
        for _, started, _ in processes:
            started.join(GRACE_S)
            if started.is_alive():
                started.terminate()
                started.join()


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Block SIGINT, so that processes started within the block never see Ctrl-C, not even during their start."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _heard(pipe: Pipe, timeout_s: float) -> Any:
    """Return the next message of a process; None if it ends or times out."""
    try:
        return pipe.recv() if pipe.poll(timeout_s) else None
    except EOFError:
        return None


def _report(said: Any) -> Report:
    if not isinstance(said, Report):
        raise LoadFailed("a benchmark process ended early or does not respond")
    if said.error:
        raise LoadFailed(said.error)
    return said


def _await_senders(job: BenchJob, pipes: list[tuple[str, Pipe]], sender: str) -> list[Report]:
    """Wait until all senders have finished; return their reports. Raises LoadFailed as soon as any process fails."""
    reports: list[Report] = []
    waiting = dict(enumerate(pipes))
    while any(role == sender for role, _ in waiting.values()):
        ready = multiprocessing.connection.wait([pipe for _, pipe in waiting.values()])
        for index, (role, pipe) in list(waiting.items()):
            if pipe in ready:
                report = _report(_heard(pipe, 0))
                if role != sender:
                    raise LoadFailed(f"a {role} process ended too early")
                reports.append(report)
                del waiting[index]
    return reports


def _await_all(job: BenchJob, signals: Signals, receivers: list[int], goal: int) -> None:
    """Wait until `goal` messages have arrived, or none has for a while."""
    patience_s = STALL_S + job.delay_s
    seen, changed_s = -1, time.monotonic()
    while receivers:
        count = sum(signals.counts[index] for index in receivers)
        if count >= goal or time.monotonic() - changed_s > patience_s:
            return
        if count != seen:
            seen, changed_s = count, time.monotonic()
        time.sleep(0.01)


def _figures(scenario: Scenario, job: BenchJob, reports: list[Report], broker_s: float) -> Figures:
    figures: Figures = {}
    roles = {report.role for report in reports}
    for role, name in (
        ("publisher", "published_per_s"),
        ("consumer", "delivered_per_s"),
        ("requester", "round_trips_per_s"),
    ):
        if role in roles:
            figures[name] = _per_s(job, [report for report in reports if report.role == role], scenario.drains)
    for role in roles & TIMES.keys():
        times = LatencyHistogram()
        for report in reports:
            if report.role == role:
                times.merge(report.times)
        is_late = scenario.sender == "delayer" and role == "consumer"
        if (found := times.figures()) and not (scenario.drains and role == "consumer"):
            figures["late_us" if is_late else TIMES[role]] = found
        if is_late:
            figures["early"] = times.early
            figures["early_us_max"] = times.early_us_max
    sent = sum(report.count for report in reports if report.role in ("publisher", "requester"))
    if {"publisher", "consumer"} <= roles:
        figures["missing"] = sent * job.copies - sum(report.count for report in reports if report.role == "consumer")
    figures["messages"] = sent
    figures["refused"] = sum(report.refused for report in reports)
    if broker_s and sent:
        figures["broker_cpu_us_per_message"] = broker_s / sent * 1e6
    shares = {report.role: 0.0 for report in reports}
    for report in reports:
        shares[report.role] = max(shares[report.role], report.cpu_s / report.wall_s if report.wall_s else 0.0)
    figures["generator_cpu"] = shares
    return figures


def _per_s(job: BenchJob, reports: list[Report], is_whole: bool) -> float:
    """Return the rate in the measuring window or, for a fixed number of messages, from the first to the last."""
    if job.messages or is_whole:
        begin = min((report.first_ns for report in reports if report.first_ns), default=0)
        span_s = (max(report.last_ns for report in reports) - begin) / 1e9
        return sum(report.count for report in reports) / span_s if span_s > 0 else 0.0
    return sum(report.measured for report in reports) / job.duration_s
