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

ROOT = Path(__file__).parents[3]
APP = f"{__package__}.app"
AGAIN_S = 5.0  # after so long beat is told once more to stop
SOLO = ("-P", "solo", "--without-mingle")
"""A worker that runs its tasks itself, and starts quickly: it greets no other workers."""


def environment(app: str, broker_url: str, desk: str = "") -> dict[str, str]:
    """What the commands find in their environment: the application's name in `app`, and the broker."""
    return {
        "CELERY_BROKER_URL": broker_url,
        "LEVERET_CELERY_APP": app,
        "LEVERET_CELERY_DESK": desk,
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        # A user's shell may be root's, in a container.
        "C_FORCE_ROOT": "1",
    }


def celery(app: str, broker_url: str, *arguments: str) -> str:
    """Runs a command such as ``celery status`` to its end; gives what it printed."""
    command = [sys.executable, "-m", "celery", "-A", APP, *arguments]
    done = subprocess.run(
        command, env={**os.environ, **environment(app, broker_url)}, cwd=ROOT, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class CeleryProcess(ServerProcess):
    """A command that stays: ``worker`` or ``beat``. SIGTERM stops it warmly."""

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
    """``celery worker``, ready when it has said so. It stops when its tasks are done.

    Attributes:
        hostname: its name in remote control and events.
    """

    ready_pattern = re.compile(r"\bready\.")

    def __init__(self, app: str, broker_url: str, name: str, *arguments: str, desk: str = "") -> None:
        self.hostname = f"{name}@test"
        super().__init__(app, broker_url, "worker", "-l", "INFO", "-n", self.hostname, *arguments, desk=desk)

    def idle(self, app: Celery) -> None:
        """Waits until it has no task: a process of the pool whose last result was not taken yet stops late (30 s)."""
        inspect = app.control.inspect([self.hostname], timeout=DEADLINE_S, limit=1)
        until(lambda: inspect.active() == {self.hostname: []})

    def retire(self) -> None:
        """Asks it to stop, and does not wait: it finishes what it is doing."""
        os.kill(self.pid, signal.SIGTERM)


class Beat(CeleryProcess):
    """``celery beat`` of the application `ticking`; its schedule file lies in its own directory."""

    ready_pattern = re.compile(r"beat: Starting")

    def __init__(self, broker_url: str, desk: str) -> None:
        super().__init__("ticking", broker_url, "beat", "-l", "INFO", desk=desk)

    def _terminate(self, process: subprocess.Popen[bytes]) -> None:
        # its handler raises SystemExit wherever beat is just then, and in some places that is swallowed
        for _ in range(int(DEADLINE_S / AGAIN_S)):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(AGAIN_S)
            except subprocess.TimeoutExpired:
                continue
            return
