"""A file system that becomes read-only while the broker runs, as Linux does after an error of the medium."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from leveret.client import BlockingConnection, ConnectionClosed
from leveret.testing.processes import LeveretProcess

SOURCE = str(Path(__file__).parents[2] / "src")
# after SIGUSR1, the system refuses everything that changes a file or a name in the data directory
READ_ONLY = """
import errno, os, signal

def refuse(*args, **kwargs):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))

def opened(path, flags, *args, real=os.open, **kwargs):
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not str(path).startswith("/dev"):
        refuse()
    return real(path, flags, *args, **kwargs)

def turn(number, frame):
    os.open = opened
    for name in "pwrite pwritev fdatasync fsync ftruncate unlink remove rename replace mkdir rmdir link utime".split():
        setattr(os, name, refuse)

signal.signal(signal.SIGUSR1, turn)
"""


def test_a_file_system_that_goes_read_only_is_told_in_one_line_and_ends_with_5(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(READ_ONLY)
    process = LeveretProcess(tmp_path / "data")
    process.extra_environment["PYTHONPATH"] = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", SOURCE)))
    broker = process.start()
    try:
        channel = BlockingConnection(broker.url, reconnect=False).channel()
        channel.declare_queue("q", durable=True)
        os.kill(broker.pid, signal.SIGUSR1)
        with pytest.raises((ConnectionClosed, OSError)):
            channel.declare_queue("other", durable=True)
        assert broker.wait() == 5
        critical = [line for line in broker.output.splitlines() if " CRITICAL " in line]
        assert len(critical) == 1
        assert "Read-only file system" in critical[0]
        assert "Traceback" not in broker.output
    finally:
        broker.kill()
