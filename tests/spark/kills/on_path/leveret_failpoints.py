"""Failpoints of a pipeline: the arrows between the calls of Spark's streaming engine, and the processes killed there.

This module is on the path of the driver and of its workers (sitecustomize.py). It wraps the methods of readers and
sinks, and kills exactly at the arrow that the plan names. The package contains none of this.

All processes share a directory, ``$LEVERET_FAILPOINTS``: ``plan.json`` lists steps, of which the first one without a
file in ``fired/`` is due; ``events.jsonl`` has a line for every arrow that was reached. The step after the death of an
executor is held until the task was repeated, which a file in ``repeated/`` records: if the driver died first, the
repetition would never be seen.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

PLANNED = ("offsets", "read", "read-end", "write", "write-end", "commit", "committed")
"""Arrows at which the batch is in the offset log, but not in the commit log: it must be replayed after a death here."""

UNPLANNED = ("latest", "commits")
"""Arrows between the commit log and the next entry of the offset log."""


def reach(flow: str, arrow: str) -> None:
    """Record that the flow has reached this arrow, and kill the victim if the plan says so."""
    state = Path(os.environ["LEVERET_FAILPOINTS"])
    batch, attempt = _task()
    event = {"flow": flow, "arrow": arrow, "batch": batch, "attempt": attempt, "pid": os.getpid()}
    append(state / "events.jsonl", json.dumps({**event, "driver": int(os.environ["LEVERET_DRIVER"])}) + "\n")
    if attempt:
        _repeated(state, flow)
    step = due(state)
    if step is None or step["is_held"] or (step["flow"], step["arrow"]) != (flow, arrow):
        return
    # counted in a file, since a worker may be killed before it reaches the arrow twice
    if append(state / f"passed-{step['number']}", ".") > step["skip"] and claim(state, step):
        strike(state, step["victim"])


def due(state: Path) -> dict[str, Any] | None:
    """Return the first step of the plan that has not fired yet, with its number; "is_held" means that it must wait."""
    is_held = False
    for number, step in enumerate(_plan(state)):
        if not (state / "fired" / str(number)).exists():
            return {**step, "number": number, "is_held": is_held}
        is_held = step["victim"] == "executor" and not (state / "repeated" / str(number)).exists()
    return None


def _plan(state: Path) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = json.loads((state / "plan.json").read_text())
    return steps


def _repeated(state: Path, flow: str) -> None:
    """Record that a task of this flow was repeated."""
    for number, step in enumerate(_plan(state)):
        is_fired = (state / "fired" / str(number)).exists()
        if is_fired and step["victim"] == "executor" and step["flow"] == flow:
            (state / "repeated" / str(number)).touch()


def claim(state: Path, step: dict[str, Any]) -> bool:
    """Return whether this process is the one that carries the step out."""
    try:
        os.close(os.open(state / "fired" / str(step["number"]), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def append(path: Path, text: str) -> int:
    """Append a line with one write; return the length of the file after it."""
    handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        os.write(handle, text.encode())
        return os.lseek(handle, 0, os.SEEK_CUR)
    finally:
        os.close(handle)


def strike(state: Path, victim: str) -> None:
    """Kill the driver with all its processes, this worker alone, or the broker (SIGKILL)."""
    if victim == "driver":
        kill_session(os.getsid(0))
    elif victim == "executor":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        kill_and_see(int((state / "broker.pid").read_text()))


def kill_session(session: int) -> None:
    """Kill all processes of a session, the JVM first, as only the JVM would continue without the others."""
    while found := [pid for pid in processes(session) if pid != os.getpid()]:
        for pid in sorted(found, key=lambda pid: command(pid) != "java"):
            kill_and_see(pid)
    if os.getsid(0) == session:
        os.kill(os.getpid(), signal.SIGKILL)


def stop_session(session: int) -> None:
    """Stop all processes of a session. One that is in a system call stops before it returns from there."""
    is_moving = True
    while is_moving:
        found = processes(session)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        is_moving = any(_stat(pid)[0] in ("R", "S") for pid in found) or processes(session) != found


def kill_and_see(pid: int) -> None:
    """Kill a process and wait until it has stopped running."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    while _stat(pid)[0] not in ("Z", "X", ""):
        time.sleep(0.0005)


def processes(session: int) -> list[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if (stat := _stat(pid))[0] not in ("Z", "X", "") and stat[1] == session]


def command(pid: int) -> str:
    """Return the name of a process's program; "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, int]:
    """Return state and session of a process; an empty state if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[3])


def _task() -> tuple[int | None, int | None]:
    """Return batch and attempt of the running task; None in a driver's process."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return None, None
    batch = context.getLocalProperty("streaming.sql.batchId")
    return None if batch is None else int(batch), context.attemptNumber()


# -- the arrows


def install() -> None:
    """Wrap the methods at which arrows begin and end, when their modules are imported.

    Importing the modules here would take too long: Spark gives a new process 10 s to call back, and the imports take
    half of that on a busy machine.
    """
    sys.meta_path.insert(0, _Importing())


class _Importing:
    """A finder that delegates to the other finders, and wraps methods of the modules that they load."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in _ARROWS:
            return None
        sys.meta_path.remove(self)
        try:
            spec = find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = functools.partial(_loaded, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def _loaded(load: Callable[[ModuleType], None], module: ModuleType) -> None:
    load(module)
    for owner, name, around in _ARROWS[module.__name__]:
        _wrap(getattr(module, owner), name, around)


def _wrap(owner: type, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    method = owner.__dict__[name]
    setattr(owner, name, functools.wraps(method)(around(method)))


def _between(before: str, after: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def around(method: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: Any, *arguments: Any, **named: Any) -> Any:
            reach(self.flow, before)
            result = method(self, *arguments, **named)
            reach(self.flow, after)
            return result

        return called

    return around


def _named_by_source(method: Callable[..., Any]) -> Callable[..., Any]:
    def called(self: Any, *arguments: Any, **named: Any) -> Any:
        reader = method(self, *arguments, **named)
        reader.flow = self.options.get("queue") or self.options.get("stream")
        return reader

    return called


def _named_by_target(method: Callable[..., Any]) -> Callable[..., Any]:
    def called(self: Any, *arguments: Any, **named: Any) -> Any:
        sink = method(self, *arguments, **named)
        sink.flow = self.options["queue"].removesuffix(".target")
        return sink

    return called


def _taken(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap latestOffset, or read of a simple reader: a call from a batch's end shows that its commit log is written."""

    def called(self: Any, start: dict[str, Any], *limit: Any) -> Any:
        if self.__dict__.pop("taken", None) == start:
            reach(self.flow, "commits")
        result = method(self, start, *limit)
        end = result if limit else result[1]
        if end != start:
            self.taken = end
            reach(self.flow, "latest")
        return result

    return called


def _planned(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap partitions, the first call after the offset log."""

    def called(self: Any, start: Any, end: Any) -> Any:
        reach(getattr(self, "simple_reader", self).flow, "offsets")
        return method(self, start, end)

    return called


def _read(method: Callable[..., Any]) -> Callable[..., Any]:
    def called(self: Any, partition: Any) -> Iterator[Any]:
        return _passing(method(self, partition), self.flow, "read")

    return called


def _write(method: Callable[..., Any]) -> Callable[..., Any]:
    def called(self: Any, iterator: Iterator[Any]) -> Any:
        rows = 0

        def counted() -> Iterator[Any]:
            nonlocal rows
            for batch in iterator:
                rows += batch.num_rows
                yield batch

        result = method(self, _passing(counted(), self.flow, "write", ended=False))
        if rows:
            reach(self.flow, "write-end")
        return result

    return called


def _passing(batches: Iterator[Any], flow: str, arrow: str, ended: bool = True) -> Iterator[Any]:
    """Yield the batches; reach an arrow whenever the consumer has taken rows, and another one at the end."""
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        if rows:
            reach(flow, arrow)
    if rows and ended:
        reach(flow, f"{arrow}-end")


def _subscribed(method: Callable[..., Any]) -> Callable[..., Any]:
    def called(self: Any, queue: str, *arguments: Any, **named: Any) -> None:
        self.flow = queue
        method(self, queue, *arguments, **named)

    return called


def _spool_opened(method: Callable[..., Any]) -> Callable[..., Any]:
    def called(self: Any, queue: Any, *arguments: Any, **named: Any) -> None:
        method(self, queue, *arguments, **named)
        # from here on the spool's segments are synced
        self._files.flow = queue.queue

    return called


def _synced(method: Callable[..., Any]) -> Callable[..., Any]:
    def called(self: Any, path: str) -> None:
        flow = getattr(self, "flow", None)
        if flow is None:
            method(self, path)
            return
        reach(flow, "spool")
        method(self, path)
        reach(flow, "spooled")

    return called


_ARROWS: dict[str, list[tuple[str, str, Callable[[Callable[..., Any]], Callable[..., Any]]]]] = {
    "leveret.spark.source": [
        ("LeveretDataSource", "simpleStreamReader", _named_by_source),
        ("LeveretDataSource", "streamReader", _named_by_source),
        ("LeveretDataSource", "streamWriter", _named_by_target),
    ],
    "leveret.spark.queues.reader": [("QueueReader", "read", _taken)],
    "pyspark.sql.datasource_internal": [("_SimpleStreamReaderWrapper", "partitions", _planned)],
    "leveret.spark.streams.reader": [
        ("StreamReader", "latestOffset", _taken),
        ("StreamReader", "partitions", _planned),
        ("StreamReader", "read", _read),
    ],
    "leveret.spark.queues.spooling": [
        ("SpoolReader", "latestOffset", _taken),
        ("SpoolReader", "partitions", _planned),
        ("SpoolReader", "read", _read),
    ],
    "leveret.spark.queues.subscription": [
        ("Subscription", "__init__", _subscribed),
        ("Subscription", "acknowledge", _between("ack", "acked")),
    ],
    "leveret.spark.queues.spool.spool": [("Spool", "__init__", _spool_opened)],
    "leveret.spark.queues.spool.files": [("SpoolFiles", "sync", _synced)],
    "leveret.spark.sink.writer": [
        ("StreamSink", "write", _write),
        ("StreamSink", "commit", _between("commit", "committed")),
    ],
}
"""Methods by module and class. If one is missing, the import fails, and with it the run."""
