"""The processes that load a broker: publishers, consumers, requesters and responders.

Each reports that it is ready, waits for the start, and reports its counts at the end.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Event
from typing import Any, Final

from leveret.cli.bench.frames import FrameBatch, OnRun, Scanner, sampled
from leveret.cli.bench.histogram import LatencyHistogram
from leveret.cli.bench.job import BenchJob
from leveret.client import BlockingChannel, BlockingConnection, ClientError, Delivery, Properties

BATCH_OCTETS: Final = 256 << 10
BATCH_MAX: Final = 1024
PACE_S: Final = 0.001
"""The pause between two sends of a publisher at a given rate."""
IDLE_S: Final = 0.05


@dataclass
class Report:
    """The results of one process.

    Attributes:
        count: messages published or delivered.
        measured: those within the measuring window.
        first_ns, last_ns: times of the first and last message.
        cpu_s, wall_s: time that the process worked.
        refused: publishes refused by basic.nack.
        times: latencies or confirm times.
    """

    role: str
    count: int = 0
    measured: int = 0
    first_ns: int = 0
    last_ns: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    refused: int = 0
    times: LatencyHistogram = field(default_factory=LatencyHistogram)
    error: str = ""


@dataclass(frozen=True)
class Signals:
    """Objects shared by all processes of a run.

    Attributes:
        go: set when all processes are ready.
        stop: set to end the run.
        counts: messages so far, by index of the process.
    """

    go: Event
    stop: Event
    counts: Any
    start_ns: Any
    warmup_s: float

    def window_ns(self, job: BenchJob) -> tuple[int, int]:
        begin = int(self.start_ns.value) + (0 if job.messages else int(self.warmup_s * 1e9))
        return begin, begin + int(job.duration_s * 1e9) if not job.messages else 1 << 62


class Worker:
    """A connection and channel of a process, with its counters.

    Args:
        index: the process's index in `signals.counts`.
        on_run: called with runs of deliveries; by default their latencies are recorded.
    """

    def __init__(self, job: BenchJob, signals: Signals, index: int, role: str, on_run: OnRun | None = None) -> None:
        self.job = job
        self.signals = signals
        self.index = index
        self.report = Report(role)
        self.connection = BlockingConnection(job.url, heartbeat_s=0, name=f"leveret bench {role}", reconnect=False)
        self.channel: BlockingChannel = self.connection.channel()
        self.scanner = Scanner(on_run or self.on_run)
        self.connection.core.deliveries = self.scanner
        self.begin_ns = self.end_ns = 0

    def began(self, pipe: Pipe) -> None:
        """Report that the process is ready, and wait for the start."""
        pipe.send("ready")
        self.signals.go.wait()
        self.begin_ns, self.end_ns = self.signals.window_ns(self.job)
        self._cpu_s, self._wall_s = time.process_time(), time.monotonic()

    def ended(self) -> Report:
        self.report.cpu_s = time.process_time() - self._cpu_s
        self.report.wall_s = time.monotonic() - self._wall_s
        return self.report

    def counted(self, count: int, now_ns: int) -> None:
        """Count messages that were published or delivered."""
        report = self.report
        report.first_ns = report.first_ns or now_ns
        report.last_ns = now_ns
        report.count += count
        if self.begin_ns <= now_ns < self.end_ns:
            report.measured += count
        self.signals.counts[self.index] = report.count

    def pump(self, timeout_s: float | None) -> None:
        """Write and read once. Raises ClientError if the connection is lost."""
        if self.connection.core.outbox_size:
            timeout_s = 0
        self.connection.pump(timeout_s)
        self.connection.core.check_open()

    def on_run(self, data: bytes, start: int, stride: int, count: int) -> None:
        """Record the latencies of a run of deliveries."""
        now_ns = time.monotonic_ns()
        self.counted(count, now_ns)
        if now_ns >= self.begin_ns:
            for sent_ns, times in sampled(data, start, stride, count):
                self.report.times.add((now_ns - sent_ns) // 1000, times)

    def batch(self, exchange: str, key: str, most: int) -> FrameBatch:
        body = bytes(8) + bytes(index * 37 % 251 + 1 for index in range(self.job.size - 8))
        properties = Properties(delivery_mode=2 if self.job.persistent else 1)
        fitting = max(1, BATCH_OCTETS // (self.job.size + 64))
        frame_max = self.connection.core.frame_max
        return FrameBatch(
            self.channel.number, frame_max, exchange, key, body, properties, min(fitting, most, BATCH_MAX)
        )


def publisher(job: BenchJob, signals: Signals, index: int, number: int, pipe: Pipe) -> Report:
    """Publish to the process's queue, or the fanout exchange, at the given rate or as fast as possible."""
    worker = Worker(job, signals, index, "publisher")
    if job.confirm:
        worker.channel.confirm_select()
    most = max(1, job.confirm // 2) if job.confirm else BATCH_MAX
    if job.rate:
        most = min(most, max(1, int(job.rate / job.publishers * PACE_S)))
    batch = worker.batch(job.exchange, "" if job.fanout else job.queue(number), most)
    worker.began(pipe)
    goal = job.messages // job.publishers + (number < job.messages % job.publishers) if job.messages else 1 << 62
    interval_ns = int(batch.count * job.publishers / job.rate * 1e9) if job.rate else 0
    pending: deque[tuple[int, int]] = deque()
    due_ns, sent = time.monotonic_ns(), 0
    while sent < goal and due_ns < worker.end_ns and not signals.stop.is_set():
        count = min(batch.count, goal - sent)
        while job.confirm and sent + count - worker.scanner.confirmed > job.confirm:
            worker.pump(1.0)
            _confirmed(worker, pending)
        now_ns = time.monotonic_ns()
        if interval_ns:
            while now_ns < due_ns and not signals.stop.is_set():
                worker.pump((due_ns - now_ns) / 1e9)
                _confirmed(worker, pending)
                now_ns = time.monotonic_ns()
        else:
            due_ns = now_ns
        # with a rate, a message carries the time when it was due, so that a stalling broker can't hide its latency
        worker.connection.core.send(batch.stamped(due_ns, count))
        worker.pump(0)
        sent += count
        worker.counted(count, now_ns)
        if job.confirm:
            pending.append((sent, due_ns))
            _confirmed(worker, pending)
        due_ns += interval_ns
    while pending and not signals.stop.is_set():
        worker.pump(0.1)
        _confirmed(worker, pending)
    worker.report.refused = worker.scanner.refused
    report = worker.ended()
    worker.connection.close()
    return report


def _confirmed(worker: Worker, pending: deque[tuple[int, int]]) -> None:
    """Record the confirm times of the batches that are confirmed by now."""
    now_ns = time.monotonic_ns()
    while pending and pending[0][0] <= worker.scanner.confirmed:
        _, sent_ns = pending.popleft()
        if now_ns >= worker.begin_ns:
            worker.report.times.add((now_ns - sent_ns) // 1000)


def consumer(job: BenchJob, signals: Signals, index: int, number: int, pipe: Pipe) -> Report:
    """Consume from the process's queue until the run is stopped; acknowledge if there is a prefetch."""
    worker = Worker(job, signals, index, "consumer")
    scanner = worker.scanner
    worker.begin_ns = 1 << 62  # ignore what arrives before the start
    worker.channel.consume(
        job.queue(number), no_ack=not job.prefetch, prefetch_count=job.prefetch or None, deliver=scanner.took
    )
    worker.began(pipe)
    acked = 0
    while not signals.stop.is_set():
        worker.pump(IDLE_S)
        # read before the ack, as sending it reads, too: deliveries that arrive meanwhile belong to the next ack
        tag = scanner.last_tag
        if job.prefetch and tag > acked:
            worker.channel.ack(tag, multiple=True)
            acked = tag
    report = worker.ended()
    worker.connection.close()
    return report


def requester(job: BenchJob, signals: Signals, index: int, number: int, pipe: Pipe) -> Report:
    """Send requests with direct reply-to, `window` of them outstanding, and count replies."""
    worker = Worker(job, signals, index, "requester")
    worker.channel.consume("amq.rabbitmq.reply-to", no_ack=True, deliver=worker.scanner.took)
    body = bytes(8) + bytes(index * 37 % 251 + 1 for index in range(job.size - 8))
    properties = Properties(reply_to="amq.rabbitmq.reply-to")
    frame_max = worker.connection.core.frame_max
    batch = FrameBatch(worker.channel.number, frame_max, "", job.queue(number), body, properties, job.window)
    worker.began(pipe)
    sent = 0
    while time.monotonic_ns() < worker.end_ns and not signals.stop.is_set():
        if job.messages and worker.scanner.delivered >= job.messages // job.publishers:
            break
        free = job.window - (sent - worker.scanner.delivered)
        if free:
            worker.connection.core.send(batch.stamped(time.monotonic_ns(), free))
            sent += free
        worker.pump(IDLE_S)
    report = worker.ended()
    worker.connection.close()
    return report


def responder(job: BenchJob, signals: Signals, index: int, number: int, pipe: Pipe) -> Report:
    """Answer the requests of one requester; each reply carries the time of its request."""
    replies: list[FrameBatch] = []

    def answer(data: bytes, start: int, stride: int, count: int) -> None:
        worker.counted(count, time.monotonic_ns())
        worker.connection.core.send(replies[0].copied(data, start, stride, count))

    def first(delivery: Delivery) -> None:
        """Handle the first request on the client's general path, and learn the address for replies from it."""
        if not replies:
            key, frame_max = delivery.properties.reply_to or "", worker.connection.core.frame_max
            replies.append(FrameBatch(worker.channel.number, frame_max, "", key, delivery.body, Properties(), 1))
            worker.connection.core.deliveries = worker.scanner
        worker.scanner.took(delivery)

    worker = Worker(job, signals, index, "responder", answer)
    worker.connection.core.deliveries = _Nothing()
    worker.channel.consume(job.queue(number), no_ack=True, deliver=first)
    worker.began(pipe)
    while not signals.stop.is_set():
        worker.pump(IDLE_S)
    report = worker.ended()
    worker.connection.close()
    return report


class _Nothing:
    """A reader that leaves all frames to the client's general path."""

    def read(self, channels: Any, data: bytes, start: int) -> int:
        return start


ROLES: Final[dict[str, Callable[[BenchJob, Signals, int, int, Pipe], Report]]] = {
    "publisher": publisher,
    "consumer": consumer,
    "requester": requester,
    "responder": responder,
}


def run(role: str, job: BenchJob, signals: Signals, index: int, number: int, pipe: Pipe) -> None:
    """Run one process. The parent blocks SIGINT for it, so that Ctrl-C reaches only the parent."""
    from leveret.cli.bench import delays

    try:
        report = (ROLES | delays.ROLES)[role](job, signals, index, number, pipe)
    except (ClientError, OSError, ValueError) as error:
        report = Report(role, error=str(error))
    pipe.send(report)
