"""Child processes of the demo: started, monitored, and stopped in every case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import IO

from leveret.demo.errors import DemoError
from leveret.demo.plan import DemoPlan

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
"""How long a child may take to write its records before it is killed."""


class Child:
    """A process ``python -m leveret.demo.<role>``, as a context manager.

    Attributes:
        name: its role (the name of its module) and its first further argument.
        reported: the latest value of everything it reported (``count``, ``ready``, ``seconds``).
    """

    def __init__(self, role: str, plan: DemoPlan, *arguments: str) -> None:
        """Start the process. Its standard error goes to a log in the records directory."""
        self.name = " ".join((role, *arguments[:1]))
        self.reported: dict[str, float] = {}
        self._log = plan.records / f"{self.name.replace(' ', '-')}.log"
        self._news = threading.Condition()
        with self._log.open("wb") as log:
            # a session of its own: Ctrl-C reaches only the demo, which then stops its children in order
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"leveret.demo.roles.{role}", plan.to_json(), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._listener = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._listener.start()

    def _listen(self, reports: IO[bytes]) -> None:
        for line in reports:
            with self._news:
                self.reported.update(json.loads(line))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    @property
    def count(self) -> int:
        """The last reported count."""
        return int(self.reported.get("count", 0))

    @property
    def finished(self) -> bool:
        """Whether it has ended by itself, successfully.

        Raises:
            DemoError: it ended with an error.
        """
        code = self._process.poll()
        if code is None:
            return False
        if code != 0:
            raise DemoError(f"the {self.name} failed (exit status {code}): {_last_line(self._log)}; see {self._log}")
        self._listener.join()
        return True

    def wait_ready(self) -> None:
        """Wait until it reports ``ready``.

        Raises:
            DemoError: it ended, or was not ready in time.
        """
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        with self._news:
            while "ready" not in self.reported:
                if self._process.poll() is not None and not self.finished:
                    break
                if not self._news.wait(min(0.2, deadline_s - time.monotonic())) and time.monotonic() > deadline_s:
                    raise DemoError(f"the {self.name} is not ready after {READY_TIMEOUT_S:.0f} s; see {self._log}")

    def tell(self, word: str) -> None:
        """Send it a word on its standard input. No effect if it has ended successfully.

        Raises:
            DemoError: it ended with an error.
        """
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), f"{word}\n".encode())
        except BrokenPipeError:
            self._process.wait()
            self.finished  # noqa: B018  (asking raises if it failed)

    def stop(self) -> None:
        """Tell it to end, and wait until it has written its records.

        Raises:
            DemoError: it ended with an error, or too late (then it is killed).
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise DemoError(f"the {self.name} did not stop within {STOP_TIMEOUT_S:.0f} s; see {self._log}") from None
        if not self.finished:
            raise DemoError(f"the {self.name} is still running")

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process if it still runs; its records are not needed any more."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
