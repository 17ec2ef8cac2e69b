"""The output of a server process is known at once, however late the reading thread runs."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from leveret.testing.lines import Lines
from leveret.testing.processes import ProcessFailed, ServerProcess, free_port

SCRIPT = """
trap 'echo its last words; exit 5' TERM
trap 'echo something' USR1
echo ready
sleep 600 &
while :; do wait $!; done
"""


class Talker(ServerProcess):
    """Prints a line at SIGUSR1 and at its end; its child outlives it and could go on writing."""

    name = "talker"
    ready_pattern = re.compile("^ready$")

    def command(self) -> Sequence[str | Path]:
        return ["sh", "-c", SCRIPT]


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Return an event; while it is cleared, the threads that read output are blocked."""
    event = threading.Event()
    event.set()
    wait = Lines.wait

    def wait_for_turn(self: Lines) -> None:
        wait(self)
        event.wait()

    monkeypatch.setattr(Lines, "wait", wait_for_turn)
    yield event
    event.set()


def test_its_last_words_are_there_when_it_has_ended(turn: threading.Event) -> None:
    process = Talker().start()
    try:
        turn.clear()
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 5
        assert process.output == "ready\nits last words\n"
        turn.set()
        process.start()
        assert process.output == "ready\nits last words\nready\n"
    finally:
        turn.set()
        process.kill()


def test_a_failure_tells_its_last_words(turn: threading.Event) -> None:
    process = Talker().start()
    try:
        os.kill(process.pid, signal.SIGUSR1)
        assert process.said("something") == "something\n"
        turn.clear()
        with pytest.raises(ProcessFailed, match=r"exit status 5:\nready\nsomething\nits last words\n$"):
            process.__exit__(None, None, None)
    finally:
        process.kill()


def test_lines_are_cut_at_newlines_alone_and_the_last_one_needs_none() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", 0) as pipe:
        lines = Lines(pipe)
        assert lines.take() == []
        os.write(writing, b"one\r\ntwo\x0band \xe2\x80\xa8half\nof \xc3")
        assert lines.take() == ["one\n", "two\x0band \u2028half\n"]
        os.write(writing, b"\xa4 \xff")
        assert lines.take() == []
        os.close(writing)
        assert not lines.have_ended
        lines.wait()
        assert lines.take() == ["of ä \ufffd"]
        assert lines.have_ended
        assert lines.take() == []


TRIES_OURS_FIRST = """
import sys
from leveret.testing import processes
processes.FIRST_PORT = int(sys.argv[1])
offsets = iter(range(processes.PORTS))
processes.secrets.randbelow = lambda count: next(offsets)
print(processes.free_port())
"""


def test_two_processes_never_have_the_same_port(tmp_path: Path) -> None:
    """The other process, with another temporary directory, asks first for our port, on which nothing listens yet."""
    ours = free_port()
    command = [sys.executable, "-c", TRIES_OURS_FIRST, str(ours)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) > ours
    assert free_port() != ours
