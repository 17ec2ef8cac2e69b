"""Celery's commands as processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from celery import Celery

from leveret.testing.processes import ServerProcess

from ...waiting import DEADLINE_S, until
from .app import on_transport

ROOT = Path(__file__).parents[3]
APP = f"{__package__}.app"
AGAIN_S = 5.0  # beat gets the next SIGTERM after this time
SOLO = ("-P", "solo", "--without-mingle")
"""Options of a worker that runs its tasks itself, and starts quickly, without a handshake with other workers."""


def environment(app: str, broker_url: str, desk: str = "") -> dict[str, str]:
    """Return the commands' environment, with the application's name in `app`, and the broker."""
    return {
        "CELERY_BROKER_URL": on_transport(broker_url),
        "LEVERET_CELERY_APP": app,
        "LEVERET_CELERY_DESK": desk,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "PYTHONUNBUFFERED": "1",
        # the tests may run as root, in a container
        "C_FORCE_ROOT": "1",
    }


def celery(app: str, broker_url: str, *arguments: str) -> str:
    """Run a command such as ``celery status`` to its end; return its output."""
    command = [sys.executable, "-m", "celery", "-A", APP, *arguments]
    done = subprocess.run(
        command, env={**os.environ, **environment(app, broker_url)}, cwd=ROOT, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class CeleryProcess(ServerProcess):
    """A command that keeps running: ``worker`` or ``beat``. SIGTERM stops it warmly."""

    name = "celery"
    stop_timeout_s = DEADLINE_S

    def __init__(self, app: str, broker_url: str, *arguments: str, desk: str = "") -> None:
        super().__init__()
        self._given = environment(app, broker_url, desk)
        self._arguments = arguments

    def command(self) -> Sequence[str | Path]:
        return [sys.executable, "-m", "celery", "--workdir", str(self.data_dir), "-A", APP, *self._arguments]

    def environment(self) -> Mapping[str, str]:
        return self._given


class Worker(CeleryProcess):
    """``celery worker``, ready when its output says so. It stops when its tasks are done.

    Attributes:
        hostname: Its name in remote control and events.
    """

    ready_pattern = re.compile(r"\bready\.")

    def __init__(self, app: str, broker_url: str, name: str, *arguments: str, desk: str = "") -> None:
        self.hostname = f"{name}@test"
        super().__init__(app, broker_url, "worker", "-l", "INFO", "-n", self.hostname, *arguments, desk=desk)

    def idle(self, app: Celery) -> None:
        """Wait until it has no task: a pool process whose last result was not read yet takes 30 s to stop."""
        inspect = app.control.inspect([self.hostname], timeout=DEADLINE_S, limit=1)
        until(lambda: inspect.active() == {self.hostname: []})

    def retire(self) -> None:
        """Ask it to stop without waiting; it finishes its current task."""
        os.kill(self.pid, signal.SIGTERM)


class Beat(CeleryProcess):
    """``celery beat`` of the application `ticking`; its schedule file is in its own directory."""

    ready_pattern = re.compile(r"beat: Starting")

    def __init__(self, broker_url: str, desk: str) -> None:
        super().__init__("ticking", broker_url, "beat", "-l", "INFO", desk=desk)

    def _terminate(self, process: subprocess.Popen[bytes]) -> None:
        # beat's handler raises SystemExit wherever beat is at that moment, and some places swallow it
        for _ in range(int(DEADLINE_S / AGAIN_S)):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(AGAIN_S)
            except subprocess.TimeoutExpired:
                continue
            return
