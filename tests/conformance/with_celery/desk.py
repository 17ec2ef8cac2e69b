"""A desk to which tasks report: the test sees each of them at work, in order, and decides when it may continue."""

from __future__ import annotations

import json
import socket
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from ...waiting import DEADLINE_S


def report(desk: str, **words: object) -> str:
    """Report from a task to the desk and return its answer. EOFError if the desk has closed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line, line.makefile("rw") as stream:
        line.connect(desk)
        stream.write(json.dumps(words) + "\n")
        stream.flush()
        answer = stream.readline()
    if not answer:
        raise EOFError("the desk has closed")
    return str(json.loads(answer))


class Visit:
    """A task that has reported and waits."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        with line.makefile("r") as stream:
            self._words: dict[str, object] = json.loads(stream.readline())

    def __getitem__(self, word: str) -> object:
        return self._words[word]

    def answer(self, text: str = "") -> Self:
        """Answer the task, which lets it continue."""
        self._line.sendall(json.dumps(text).encode() + b"\n")
        self._line.close()
        return self


class Desk:
    """A Unix socket that tasks on this machine report to.

    Attributes:
        address: The path of the socket, which tasks get as an argument.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="desk-")
        self.address = str(Path(self._folder.name) / "s")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(self.address)
        self._socket.listen(64)
        self._lines: list[socket.socket] = []

    def next(self, deadline_s: float = DEADLINE_S) -> Visit:
        """Return the next task that reports. TimeoutError if none does."""
        self._socket.settimeout(deadline_s)
        line, _ = self._socket.accept()
        line.settimeout(deadline_s)
        self._lines.append(line)
        return Visit(line)

    def take(self, count: int) -> list[Visit]:
        """Return this many visits, and answer each at once."""
        return [self.next().answer() for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Tasks that still wait fail, so that a failed test leaves none behind.
        for line in [*self._lines, self._socket]:
            line.close()
        self._folder.cleanup()
