"""One process per data directory: the error names a living owner, the lock of a dead one is taken over."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.store.lock import DataDirectoryInUse, DirectoryLock

OWNER = """
import sys
from leveret.store.lock import DirectoryLock
lock = DirectoryLock(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lock of tmp_path/data until its input ends."""
    command = [sys.executable, "-c", OWNER, str(tmp_path / "data")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield process
        process.kill()


def test_a_live_owner_is_refused_by_pid(tmp_path: Path, owner: subprocess.Popen[bytes]) -> None:
    with pytest.raises(
        DataDirectoryInUse, match=f"{tmp_path}/data is in use by process {owner.pid}; stop it"
    ) as caught:
        DirectoryLock(str(tmp_path / "data"))
    assert caught.value.pid == owner.pid
    assert caught.value.path == str(tmp_path / "data")


def test_a_killed_owner_does_not_count(tmp_path: Path, owner: subprocess.Popen[bytes]) -> None:
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert (tmp_path / "data" / "lock").read_text() == f"{owner.pid}\n"
    with DirectoryLock(str(tmp_path / "data")):
        assert (tmp_path / "data" / "lock").read_text() == f"{os.getpid()}\n"


def test_released_it_can_be_taken_again(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    with pytest.raises(DataDirectoryInUse, match=f"process {os.getpid()}"):
        DirectoryLock(str(tmp_path))
    lock.release()
    lock.release()
    with DirectoryLock(str(tmp_path)):
        pass


def test_an_owner_that_has_not_written_its_pid_yet(tmp_path: Path) -> None:
    with DirectoryLock(str(tmp_path)):
        (tmp_path / "lock").write_text("")
        with pytest.raises(DataDirectoryInUse, match="in use by another process") as caught:
            DirectoryLock(str(tmp_path))
    assert caught.value.pid is None


def test_a_program_started_by_the_owner_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False) as child:
        lock.release()
        DirectoryLock(str(tmp_path)).release()
        child.kill()
