"""A driver process, which runs flows.py in a session of its own, and the state of its checkpoints when it is dead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import leveret

from .on_path.leveret_failpoints import kill_session

HERE = Path(__file__).parent
STOP_S = 60


class Death(NamedTuple):
    """A flow's batches when its driver was killed: the last one planned and the last one committed; -1: none."""

    driver: int
    flow: str
    planned: int
    committed: int

    @property
    def in_flight(self) -> bool:
        """Return whether Spark must replay a batch."""
        return self.planned > self.committed


class Driver:
    """One driver process. All drivers of a job share its directory.

    It gets ready at once and waits for `begin`, so that the next driver is ready when this one dies.
    """

    def __init__(self, number: int, directory: Path) -> None:
        self.number = number
        self._directory = directory
        self._log = (directory / f"driver-{number}.log").open("wb")
        package = Path(leveret.__file__).parents[1]
        environment = {
            **os.environ,
            "PYTHONPATH": f"{HERE / 'on_path'}:{package}",
            "PYTHONUNBUFFERED": "1",
            "LEVERET_FAILPOINTS": str(directory / "state"),
            "LEVERET_DRIVER": str(number),
        }
        self._process = subprocess.Popen(
            [sys.executable, HERE / "flows.py", directory / "job.json"],
            env=environment,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def session(self) -> int:
        """The session id of all its processes."""
        return self._process.pid

    def begin(self) -> None:
        """Let it start its queries as soon as it is ready."""
        assert self._process.stdin is not None
        self._process.stdin.write(b".")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Kill all its processes (SIGKILL)."""
        kill_session(self.session)
        self._process.wait()
        self._log.close()

    def stop(self) -> int:
        """Ask it to stop its queries and to exit; return its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(STOP_S)
        finally:
            self.kill()

    def account(self) -> str:
        lines = (self._directory / f"driver-{self.number}.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-60:])


def deaths(driver: int, directory: Path, flows: list[str]) -> list[Death]:
    """Return the state of a dead driver's flows, from their checkpoints."""
    found = []
    for flow in flows:
        checkpoint = directory / flow / "checkpoint"
        found.append(Death(driver, flow, _newest(checkpoint / "offsets"), _newest(checkpoint / "commits")))
    return found


def _newest(log: Path) -> int:
    return max((int(path.name) for path in log.glob("*") if path.name.isdigit()), default=-1)
